package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// feeder writes to the main topic at a steady rate.
type feeder struct {
	end  context.CancelFunc
	done sync.WaitGroup
	err  error // once done
}

// feedEvery is how often records are sent: 25 at a time for 5,000 a second.
const feedEvery = 5 * time.Millisecond

func feed(ctx context.Context, brokers string, rate int) *feeder {
	ctx, end := context.WithCancel(ctx)
	f := &feeder{end: end}
	f.done.Go(func() { f.err = f.run(ctx, brokers, rate) })
	return f
}

// stop ends it and says whether something could not be written.
func (f *feeder) stop() error {
	f.end()
	f.done.Wait()
	return f.err
}

func (f *feeder) run(ctx context.Context, brokers string, rate int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers), kgo.ProducerLinger(0))
	if err != nil {
		return fmt.Errorf("feed the main topic: %w", err)
	}
	defer client.Close()
	var mu sync.Mutex
	var failed error
	tick := time.NewTicker(feedEvery)
	defer tick.Stop()
	began, sent := time.Now(), 0
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(client.Flush(context.WithoutCancel(ctx)), failed)
		}
		for due := int(time.Since(began).Seconds() * float64(rate)); sent < due; sent++ {
			value := fmt.Appendf(nil, "%d %0180d", time.Now().UnixNano(), sent)
			client.Produce(context.WithoutCancel(ctx), &kgo.Record{Topic: topic, Key: fmt.Append(nil, sent%10_000), Value: value}, func(_ *kgo.Record, err error) {
				if err != nil {
					mu.Lock()
					failed = fmt.Errorf("feed the main topic: %w", err)
					mu.Unlock()
				}
			})
		}
	}
}
