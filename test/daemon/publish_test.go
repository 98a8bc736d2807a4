package daemon_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/test/kcat"
	kafkago "github.com/segmentio/kafka-go"
)

// scraped reports whether /metrics has a series, by name and labels, that is
// not 0.
func (d *daemon) scraped(series string) bool {
	res, err := http.Get("http://" + d.metrics + "/metrics")
	if err != nil {
		return false // not listening yet
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok && strings.TrimSpace(value) != "0" {
			return true
		}
	}
	return false
}

// noise is a word and, behind it, text that no compression makes smaller.
func noise(word string, n int) []byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	b := append([]byte(word), '\n')
	for range n {
		b = append(b, byte('0'+rnd.IntN(70)))
	}
	return b
}

func setTopic(t *testing.T, topic, name, value string) {
	t.Helper()
	res, err := client(t).IncrementalAlterConfigs(t.Context(), &kafkago.IncrementalAlterConfigsRequest{
		Resources: []kafkago.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafkago.IncrementalAlterConfigsRequestConfig{{Name: name, Value: value, ConfigOperation: kafkago.ConfigOperationSet}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range res.Resources {
		if r.Error != nil {
			t.Fatal(r.Error)
		}
	}
}

// A record that the tier's topic refuses as too large holds up its partition
// and nothing else, and goes on by itself when the topic takes it.
func TestOversize(t *testing.T) {
	topic, group := "large", "large-group"
	tier := topic + ".retry.1s"
	stages := []string{topic, tier}
	createTopic(t, topic, 2)
	log := filepath.Join(t.TempDir(), "probe.log")
	d := start(t, topic, group, log, "--retry", "1s")
	until(t, "the topics are there", func() bool { return lag(t, group, stages, 2) == 0 })
	setTopic(t, tier, "max.message.bytes", "3000")

	large := noise("fail 1", 10_000)
	at := broker.Cluster(t).Bootstrap()
	batch := []kcat.Record{}
	for i := range 20 {
		value := []byte("fail 1")
		if i == 7 {
			value = large
		}
		batch = append(batch, kcat.Record{Key: fmt.Append(nil, i), Value: value})
	}
	kcat.Produce(t, at, topic, 0, batch)
	until(t, "the tier refuses a record", func() bool {
		return d.scraped(`kconsume_forward_failures_total{kind="configuration",reason="too_large",topic="` + tier + `"}`)
	})
	calls := counter{path: log}
	until(t, "its neighbours are handled twice", func() bool { return calls.count(t) == 20+19 })
	kcat.Produce(t, at, topic, 1, []kcat.Record{{Key: []byte("k"), Value: []byte("ok")}})
	until(t, "the other partition goes on", func() bool { return calls.count(t) == 20+19+1 })
	if n := lag(t, group, []string{topic}, 2); n < 13 {
		t.Errorf("lag %d: it was committed past the large record", n)
	}

	setTopic(t, tier, "max.message.bytes", "1000000")
	until(t, "the lag is zero", func() bool { return lag(t, group, stages, 2) == 0 })
	d.stop()
	seen := map[string]int{}
	for _, one := range deliveries(t, log) {
		seen[fmt.Sprint(one.id, " attempt ", one.attempt)]++
	}
	if len(seen) != 41 {
		t.Errorf("%d deliveries, want 20 twice and one once", len(seen))
	}
	for what, n := range seen {
		if n != 1 {
			t.Errorf("%s was handled %d times", what, n)
		}
	}
}

// What a handler emits through an outbox: the source is not committed while it
// cannot be sent, and each record is there once when it can.
func TestEmitOutbox(t *testing.T) {
	topic, group, out := "orders", "orders-group", "audit"
	createTopic(t, topic, 2)
	var sent []kcat.Record
	for i := range 200 {
		sent = append(sent, kcat.Record{Key: fmt.Appendf(nil, "k%d", i), Value: []byte("emit " + out)})
	}
	log := filepath.Join(t.TempDir(), "probe.log")
	d := start(t, topic, group, log, "--emit", out+"=outbox", "--write-attempts", "2")
	kcat.Produce(t, broker.Cluster(t).Bootstrap(), topic, 0, sent)
	calls := counter{path: log}
	until(t, "all are handled", func() bool { return calls.count(t) == len(sent) })
	until(t, "a write is refused", func() bool {
		return d.scraped(`kconsume_forward_failures_total{kind="configuration",reason="unknown_topic",topic="` + out + `"}`)
	})
	if n := lag(t, group, []string{topic}, 2); n != int64(len(sent)) {
		t.Errorf("lag %d while nothing can be emitted, want %d", n, len(sent))
	}

	createTopic(t, out, 3)
	until(t, "the lag is zero", func() bool { return lag(t, group, []string{topic}, 2) == 0 })
	d.stop()
	ids := map[string]bool{}
	got := kcat.Consume(t, broker.Cluster(t).Bootstrap(), out)
	for _, r := range got {
		if len(r.Headers) != 1 || r.Headers[0].Key != "X-Emit-Id" || !strings.HasSuffix(string(r.Headers[0].Value), "#0") {
			t.Fatalf("a record has headers %v", r.Headers)
		}
		ids[string(r.Headers[0].Value)] = true
		all := []int{0, 1, 2}
		if want := (kafkago.Murmur2Balancer{}).Balance(kafkago.Message{Key: r.Key}, all...); int(r.Partition) != want {
			t.Errorf("key %s is in partition %d, not %d", r.Key, r.Partition, want)
		}
	}
	if len(got) != len(sent) || len(ids) != len(sent) {
		t.Errorf("%d records with %d names were emitted, want %d", len(got), len(ids), len(sent))
	}
	for _, id := range deliveries(t, log) {
		if !ids[id.id+"#0"] {
			t.Errorf("nothing was emitted of %s", id.id)
		}
	}
}
