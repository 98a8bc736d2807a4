package dlq

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine/topology"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// BenchmarkMillion reads a DLQ of a million records of twelve kinds for the
// first time, then lists its groups again, plans one of them and reads a page.
func BenchmarkMillion(b *testing.B) {
	const n, partitions = 1_000_000, 12
	top, err := topology.New(topology.Config{Group: "g", Topics: []string{"t"}, RetryTopic: topology.DefaultRetryTopic, DLQTopic: topology.DefaultDLQTopic})
	if err != nil {
		b.Fatal(err)
	}
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for topic, n := range map[string]int32{"t": partitions, "t.replay": partitions, "t.dlq": partitions, "t.dlq.state": 1} {
		if err := c.CreateTopic(topic, n, nil); err != nil {
			b.Fatal(err)
		}
	}
	fill(b, c, n, partitions)
	transport := &kafka.Transport{MetadataTopics: []string{"t", "t.replay", "t.dlq", "t.dlq.state"}}
	defer transport.CloseIdleConnections()
	for b.Loop() {
		ctx, cancel := context.WithCancel(context.Background())
		s := New(Config{
			Group: "g", Daemon: "a", Lines: top.Lines, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
			Client: &kafka.Client{Addr: kafka.TCP(c.ListenAddrs()...), Transport: transport, Timeout: 10 * time.Second},
		})
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		heap := live()
		began := time.Now()
		var page GroupPage
		for !page.Scan.Complete {
			if page, err = s.Groups(ctx, "t.dlq", Filter{}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(time.Since(began).Seconds(), "s/first")
		b.ReportMetric(float64(live()-heap)/(1<<20), "MiB/index")
		if len(page.Groups) != 12 || page.Scan.Records != n {
			b.Fatalf("%d groups, %d records", len(page.Groups), page.Scan.Records)
		}
		began = time.Now()
		if _, err := s.Groups(ctx, "t.dlq", Filter{}); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "s/again")
		began = time.Now()
		p, err := s.Plan(ctx, "t.dlq", PlanRequest{Action: ActionReplay, Selection: Selection{Fingerprint: page.Groups[11].Fingerprint}}, Actor{Name: "x", Role: RoleAdmin})
		if err != nil || p.Records == 0 {
			b.Fatal(p.Records, err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "s/plan")
		began = time.Now()
		if _, err := s.Messages(ctx, "t.dlq", Query{Selection: Selection{Fingerprint: page.Groups[11].Fingerprint}}); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "s/page")
		cancel()
		<-done
	}
}

// live is how many bytes of the heap are in use.
func live() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func fill(b *testing.B, c *kfake.Cluster, n int, partitions int32) {
	b.Helper()
	k, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(50_000))
	if err != nil {
		b.Fatal(err)
	}
	defer k.Close()
	w := &world{}
	for i := range n {
		kind := i % 12
		if kind == 11 && i%1000 != 11 { // one kind is rare
			kind = 0
		}
		d := dead{
			partition: int32(i) % partitions, key: fmt.Append(nil, "k", i), value: `{"total":5,"customer":"anna"}`, class: "transient",
			message: fmt.Sprintf("%s: order %d of %012x is late", word1(kind), i, i*7919), group: "g", handler: "orders@1", origin: "t",
		}
		k.Produce(b.Context(), w.record(&d, int64(i)), func(_ *kgo.Record, err error) {
			if err != nil {
				b.Error(err)
			}
		})
	}
	if err := k.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
}
