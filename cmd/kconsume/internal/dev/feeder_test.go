package dev

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func startTestBroker(t *testing.T, topics ...string) *broker {
	t.Helper()
	b, err := startBroker(topics)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	return b
}

// The feeder's records, read back by a client of its own: each is the sample
// it was made from, on its key's partition, and the feeder names it rightly.
func TestFeederWritesSamplesAndNamesThem(t *testing.T) {
	b := startTestBroker(t, "orders.confirmed")
	f, err := newFeeder(b.address, "orders.confirmed")
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.run(ctx, time.Millisecond) }()

	c, err := kgo.NewClient(kgo.SeedBrokers(b.address), kgo.ConsumeTopics("orders.confirmed"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const want = 50
	samples := map[string]string{} // value → what
	for n := range want {
		s := sampleAt(n)
		samples[s.key+string(s.value)] = s.what
	}
	partitionOf := map[string]int32{}
	for seen := 0; seen < want; {
		fetches := c.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			what, known := samples[string(r.Key)+string(r.Value)]
			if !known {
				return
			}
			seen++
			if got := f.label(place{r.Topic, r.Partition, r.Offset}); got != what {
				t.Errorf("%d/%d is called %q, want %q", r.Partition, r.Offset, got, what)
			}
			if p, ok := partitionOf[string(r.Key)]; ok && p != r.Partition {
				t.Errorf("key %s on partitions %d and %d", r.Key, p, r.Partition)
			}
			partitionOf[string(r.Key)] = r.Partition
		})
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("run ended with %v after its context", err)
	}
	if got := f.label(place{"orders.confirmed", 0, 1 << 40}); got != "" {
		t.Errorf("a record of somebody else is called %q", got)
	}
}

func TestFeederReportsABrokerThatIsGone(t *testing.T) {
	b := startTestBroker(t, "orders.confirmed")
	f, err := newFeeder(b.address, "no.such.topic")
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if err := f.run(t.Context(), time.Millisecond); err == nil {
		t.Error("run ended without an error though its topic does not exist")
	}
}

func TestFeederForgetsTheOldest(t *testing.T) {
	f := &feeder{labels: make(map[place]string)}
	for i := range int64(maxLabels + 10) {
		f.remember(place{"t", 0, i}, fmt.Sprint(i))
	}
	if len(f.labels) != maxLabels {
		t.Errorf("%d labels, want %d", len(f.labels), maxLabels)
	}
	if f.label(place{"t", 0, 9}) != "" || f.label(place{"t", 0, 10}) != "10" {
		t.Error("not the oldest were forgotten")
	}
}

func TestTrimKeepsTheNewest(t *testing.T) {
	b := startTestBroker(t, "t", "u")
	f, err := newFeeder(b.address, "t")
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	for n := range 30 {
		if err := f.send(t.Context(), sample{key: "a", value: []byte{byte(n)}, what: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	b.trim([]string{"t", "u", "not there"}, 10)
	left := int64(0)
	for _, p := range b.cluster.PartitionInfos("t") {
		left += p.HighWatermark - p.LogStartOffset
	}
	if left != 10 {
		t.Errorf("%d records are left, want 10", left)
	}
}
