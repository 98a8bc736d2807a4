package daemon_test

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/test/kcat"
	kafkago "github.com/segmentio/kafka-go"
)

func listenLoopback() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

const (
	lineRecords    = 100_000
	linePartitions = 12
)

// wordOf is what becomes of the record number i: 1 % fail once, 0.1 % always,
// ten are poison.
func wordOf(i int) string {
	switch {
	case i%10_000 == 9_999:
		return "poison"
	case i%1000 == 500:
		return "fail 9"
	case i%100 == 50:
		return "fail 1"
	}
	return "ok"
}

func load(t *testing.T, topic string) {
	t.Helper()
	w := &kafkago.Writer{
		Addr: kafkago.TCP(broker.Cluster(t).Bootstrap()), Topic: topic, RequiredAcks: kafkago.RequireAll,
		BatchSize: 500, BatchTimeout: 5 * time.Millisecond, Balancer: &kafkago.RoundRobin{},
	}
	defer w.Close()
	transport := &kafkago.Transport{} // the default one may know an older view of the topics
	defer transport.CloseIdleConnections()
	w.Transport = transport
	for i := 0; i < lineRecords; {
		var batch []kafkago.Message
		for range 6000 {
			if i == lineRecords {
				break
			}
			value := wordOf(i) + "\n"
			value += strings.Repeat("x", 1024-len(value))
			batch = append(batch, kafkago.Message{Key: fmt.Appendf(nil, "k%d", i), Value: []byte(value)})
			i++
		}
		if err := w.WriteMessages(t.Context(), batch...); err != nil {
			t.Fatal(err)
		}
	}
}

// A stop by SIGTERM repeats nothing; a kill loses nothing, and repeats only what
// was in flight or settled since the last commit.
func TestStopAndKill(t *testing.T) {
	topic, group := "line", "line-group"
	createTopic(t, topic, linePartitions)
	load(t, topic)
	log := filepath.Join(t.TempDir(), "probe.log")
	stages := []string{topic, topic + ".retry.1s", topic + ".retry.2s"}
	flags := []string{"--retry", "1s,2s"}

	// SIGTERM in the middle, twice.
	calls := counter{path: log}
	d := start(t, topic, group, log, flags...)
	until(t, "a quarter is handled", func() bool { return calls.count(t) > lineRecords/4 })
	d.stop()
	afterFirst := calls.count(t)
	d = start(t, topic, group, log, flags...)
	until(t, "half is handled", func() bool { return calls.count(t) > lineRecords/2 })
	d.stop()
	stopped := deliveries(t, log)
	if len(stopped) >= lineRecords {
		t.Error("everything was handled before the second SIGTERM: it was not in the middle")
	}
	seen := map[string]int{}
	for _, one := range stopped {
		seen[fmt.Sprint(one.id, " attempt ", one.attempt)]++
	}
	for what, n := range seen {
		if n != 1 {
			t.Errorf("clean stops: %s was handled %d times", what, n)
		}
	}
	t.Logf("SIGTERM after %d and %d of %d deliveries: %d handled twice", afterFirst, len(stopped), lineRecords, len(stopped)-len(seen))

	// SIGKILL, and once more to the end.
	d = start(t, topic, group, log, flags...)
	until(t, "three quarters are handled", func() bool { return calls.count(t) > lineRecords*3/4 })
	d.kill()
	committed := committedOffsets(t, group, stages, linePartitions)
	beforeKill := calls.count(t)
	if beforeKill >= lineRecords {
		t.Error("everything was handled before the SIGKILL: it was not in the middle")
	}
	d = start(t, topic, group, log, flags...)
	until(t, "the lag is zero", func() bool { return lag(t, group, stages, linePartitions) == 0 })
	d.stop()

	all := deliveries(t, log)
	repeated := checkRepeats(t, all, committed)
	t.Logf("SIGKILL after %d deliveries: %d repeated, all of them uncommitted; %d deliveries in all", beforeKill, repeated, len(all))
	checkOutcome(t, topic, all)
}

// checkRepeats fails if a record was handled again that the kill found
// committed; it returns how many were handled again.
func checkRepeats(t *testing.T, all []delivery, committed map[tp]int64) int {
	t.Helper()
	seen := map[string]bool{}
	repeated := 0
	for _, one := range all {
		name := fmt.Sprint(one.id, " attempt ", one.attempt)
		if !seen[name] {
			seen[name] = true
			continue
		}
		repeated++
		p, offset := origin(t, one.id)
		if one.stage == "main" && offset < committed[tp{"line", p}] {
			t.Errorf("%s was handled again, though %d was committed", name, committed[tp{"line", p}])
		}
	}
	return repeated
}

// checkOutcome fails unless every record was handled or is in the DLQ, as its
// value says, and none ended in both.
func checkOutcome(t *testing.T, topic string, all []delivery) {
	t.Helper()
	handled := map[string]bool{}
	for _, one := range all {
		if one.word == "ok" || one.word == "fail 1" && one.attempt == 2 {
			handled[one.id] = true
		}
	}
	dead := map[string]string{}
	for _, r := range kcat.Consume(t, broker.Cluster(t).Bootstrap(), topic+".dlq") {
		h := map[string]string{}
		for _, one := range r.Headers {
			h[one.Key] = string(one.Value)
		}
		dead[h["X-Record-Id"]] = h["X-Error-Class"]
	}
	classes := map[string]int{}
	for id, class := range dead {
		classes[class]++
		if handled[id] {
			t.Errorf("%s was handled and is in the DLQ", id)
		}
	}
	if n := len(handled) + len(dead); n != lineRecords {
		t.Errorf("%d handled and %d in the DLQ, want %d together", len(handled), len(dead), lineRecords)
	}
	if classes["transient"] != lineRecords/1000 || classes["poison"] != 10 {
		t.Errorf("the DLQ has %v, want %d transient and 10 poison", classes, lineRecords/1000)
	}
	t.Logf("%d handled, %d in the DLQ: %v", len(handled), len(dead), classes)
}
