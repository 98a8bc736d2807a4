// Shop is a service that embeds the engine, twice in one process.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/plugin"
	"github.com/prometheus/client_golang/prometheus"
)

// consumer is one engine with its registry.
type consumer struct {
	topic    string
	registry *prometheus.Registry
	first    atomic.Int64
	again    atomic.Int64
	stop     context.CancelFunc
	done     chan error
}

func start(broker, topic string) (*consumer, error) {
	c := &consumer{topic: topic, registry: prometheus.NewRegistry(), done: make(chan error, 1)}
	e, err := engine.New(engine.Config{
		Brokers: []string{broker}, Group: "shop-" + topic, Topics: []string{topic},
		Handler: plugin.HandlerFunc(c.handle), Retry: []time.Duration{200 * time.Millisecond},
		Registerer: c.registry, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	go func() { c.done <- e.Run(ctx) }()
	return c, nil
}

func (c *consumer) handle(_ context.Context, m *plugin.Message) error {
	if m.Attempt > 1 {
		c.again.Add(1)
	} else {
		c.first.Add(1)
	}
	if string(m.Value) == "bad" {
		return plugin.Transient(errors.New("always fails"))
	}
	return nil
}

// dead is what the registry says of the DLQ.
func (c *consumer) dead() (n float64) {
	families, err := c.registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		if f.GetName() == "kafka_dlq_messages_total" {
			n += f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return n
}

// main consumes two topics of ten records each, of which one is bad, and then
// tells what it saw and how many goroutines are left.
func main() {
	var both []*consumer
	for _, topic := range os.Args[2:] {
		c, err := start(os.Args[1], topic)
		if err != nil {
			panic(err)
		}
		both = append(both, c)
	}
	for _, c := range both {
		wait(func() bool { return c.first.Load() >= 10 && c.dead() >= 1 })
		c.stop()
		if err := <-c.done; err != nil {
			panic(err)
		}
		fmt.Printf("%s: %d first deliveries, %d retries, %v in the DLQ\n", c.topic, c.first.Load(), c.again.Load(), c.dead())
	}
	wait(func() bool { return runtime.NumGoroutine() == 1 })
	fmt.Println("goroutines:", runtime.NumGoroutine())
}

// wait polls a condition for at most a minute.
func wait(ok func() bool) {
	for range 6000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
