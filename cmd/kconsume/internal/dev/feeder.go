package dev

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// place is where a record lies on a main topic.
type place struct {
	topic     string
	partition int32
	offset    int64
}

// feeder writes sample orders and knows which record is which.
type feeder struct {
	topic  string
	client *kgo.Client

	// mu is held from before a record is sent until its place is known, so
	// whoever asks about a record that was just delivered waits for the answer.
	mu     sync.Mutex
	labels map[place]string
	ring   []place // keys of labels, oldest at next once it is full
	next   int
}

// maxLabels bounds what the feeder remembers, in records.
const maxLabels = 4096

// newFeeder connects to the embedded broker. The caller closes it.
func newFeeder(address, topic string) (*feeder, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ClientID("kconsume-dev-orders"), kgo.ProducerLinger(0))
	if err != nil {
		return nil, fmt.Errorf("connect to the embedded broker: %w", err)
	}
	return &feeder{topic: topic, client: c, labels: make(map[place]string)}, nil
}

func (f *feeder) close() { f.client.Close() }

// run sends one sample each interval until ctx ends.
func (f *feeder) run(ctx context.Context, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for n := 0; ; n++ {
		if err := f.send(ctx, sampleAt(n)); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (f *feeder) send(ctx context.Context, s sample) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &kgo.Record{Topic: f.topic, Key: []byte(s.key), Value: s.value}
	if err := f.client.ProduceSync(ctx, r).FirstErr(); err != nil {
		return fmt.Errorf("send %s to the embedded broker: %w", s.what, err)
	}
	f.remember(place{r.Topic, r.Partition, r.Offset}, s.what)
	return nil
}

// remember is called with mu held.
func (f *feeder) remember(p place, what string) {
	if len(f.ring) < maxLabels {
		f.ring = append(f.ring, p)
	} else {
		delete(f.labels, f.ring[f.next])
		f.ring[f.next] = p
		f.next = (f.next + 1) % maxLabels
	}
	f.labels[p] = what
}

// label is what a record is, "" if somebody else wrote it or it is long ago.
func (f *feeder) label(p place) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.labels[p]
}
