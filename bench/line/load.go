package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kconsume/kconsume/test/kafka"
)

const (
	loaders = 4
	keys    = 10_000
)

// load creates the topic and fills it with incompressible values, keyed by one
// of ten thousand keys.
func load(ctx context.Context, c *kafka.Cluster, topic string, s settings) error {
	if err := c.CreateTopic(ctx, kafkago.TopicConfig{Topic: topic, NumPartitions: s.partitions}); err != nil {
		return err
	}
	transport := &kafkago.Transport{}
	defer transport.CloseIdleConnections()
	w := &kafkago.Writer{
		Addr:         kafkago.TCP(c.Bootstrap()),
		Topic:        topic,
		Balancer:     &kafkago.Hash{},
		RequiredAcks: kafkago.RequireAll,
		BatchSize:    900,
		BatchBytes:   1_000_000,
		BatchTimeout: 20 * time.Millisecond,
		Transport:    transport,
	}
	defer w.Close()
	value := make([]byte, s.size)
	rand.Read(value)
	errs := make([]error, loaders)
	var wait sync.WaitGroup
	for l := range loaders {
		wait.Go(func() { errs[l] = loadPart(ctx, w, value, l*s.records/loaders, (l+1)*s.records/loaders) })
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("fill topic %s: %w", topic, err)
		}
	}
	return nil
}

// loadPart writes the records from one number to another.
func loadPart(ctx context.Context, w *kafkago.Writer, value []byte, from, to int) error {
	const chunk = 10_000
	for ; from < to; from += chunk {
		var messages []kafkago.Message
		for i := from; i < min(from+chunk, to); i++ {
			messages = append(messages, kafkago.Message{Key: strconv.AppendInt(nil, int64(i%keys), 10), Value: value})
		}
		if err := w.WriteMessages(ctx, messages...); err != nil {
			return err
		}
	}
	return nil
}
