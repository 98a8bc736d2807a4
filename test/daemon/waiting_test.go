package daemon_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/test/kcat"
	kafkago "github.com/segmentio/kafka-go"
)

// While records wait in a tier the main topic goes on at once, and none of them
// comes early. How fast and how late is told, not judged: the machine decides.
func TestMainBesideWaiting(t *testing.T) {
	const waiting, fresh, partitions = 10_000, 1000, 12
	topic, group := "beside", "beside-group"
	createTopic(t, topic, partitions)
	log := filepath.Join(t.TempDir(), "probe.log")
	d := start(t, topic, group, log, "--retry", "5s,30s")
	transport := &kafkago.Transport{}
	defer transport.CloseIdleConnections()
	w := &kafkago.Writer{
		Addr: kafkago.TCP(broker.Cluster(t).Bootstrap()), Topic: topic, RequiredAcks: kafkago.RequireAll, BatchSize: 1000,
		BatchTimeout: time.Millisecond, Balancer: &kafkago.RoundRobin{}, Transport: transport,
	}
	defer w.Close()
	var batch []kafkago.Message
	for i := range waiting {
		value := append([]byte("fail 2\n"), bytes.Repeat([]byte("x"), 1000)...)
		batch = append(batch, kafkago.Message{Key: fmt.Appendf(nil, "w%d", i), Value: value})
	}
	if err := w.WriteMessages(t.Context(), batch...); err != nil {
		t.Fatal(err)
	}
	calls := counter{path: log}
	until(t, "all have failed twice", func() bool { return calls.count(t) >= 2*waiting })

	// One fresh record at a time; its key says when it was handed to the broker.
	for range fresh {
		now := strconv.FormatInt(time.Now().UnixNano(), 10)
		if err := w.WriteMessages(t.Context(), kafkago.Message{Key: []byte(now), Value: []byte("ok")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if n := calls.count(t); n != 2*waiting+fresh {
		t.Errorf("%d calls, want %d: the third deliveries began before the fresh records had ended", n, 2*waiting+fresh)
	}
	until(t, "all are handled", func() bool { return calls.count(t) >= 3*waiting+fresh })
	stages := []string{topic, topic + ".retry.5s", topic + ".retry.30s"}
	until(t, "the lag is zero", func() bool { return lag(t, group, stages, partitions) == 0 })
	d.stop()

	due := map[string]int64{} // by record id and attempt, unix ms
	for _, tier := range stages[1:] {
		for _, r := range kcat.Consume(t, broker.Cluster(t).Bootstrap(), tier) {
			n, err := strconv.ParseInt(header(r, "X-Retry-Due"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			failed, _ := strconv.Atoi(header(r, "X-Retry-Attempts"))
			due[fmt.Sprint(header(r, "X-Record-Id"), " ", failed+1)] = n
		}
	}
	var latency, lateness []time.Duration
	for _, one := range deliveries(t, log) {
		if one.word == "ok" {
			sent, err := strconv.ParseInt(strings.TrimPrefix(one.key, "="), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			latency = append(latency, time.Duration(one.begin-sent))
			continue
		}
		if one.attempt == 1 {
			continue
		}
		at, ok := due[fmt.Sprint(one.id, " ", one.attempt)]
		if !ok {
			t.Fatalf("%s attempt %d was delivered from nowhere", one.id, one.attempt)
		}
		late := time.Duration(one.begin) - time.Duration(at)*time.Millisecond
		if late < 0 {
			t.Errorf("%s attempt %d came %v early", one.id, one.attempt, -late)
		}
		lateness = append(lateness, late)
	}
	if len(latency) != fresh || len(lateness) != 2*waiting {
		t.Errorf("%d fresh and %d retried deliveries, want %d and %d", len(latency), len(lateness), fresh, 2*waiting)
	}
	t.Logf("%d fresh records beside %d waiting: median %v, p99 %v from the producer's call to the handler's", fresh, waiting, quantile(latency, 0.5), quantile(latency, 0.99))
	t.Logf("%d retries: none early, median lateness %v, p99 %v", len(lateness), quantile(lateness, 0.5), quantile(lateness, 0.99))
}

func quantile(ds []time.Duration, q float64) time.Duration {
	slices.Sort(ds)
	return ds[min(len(ds)-1, int(q*float64(len(ds))))].Round(10 * time.Microsecond)
}
