package dev

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// broker is the embedded broker.
type broker struct {
	cluster *kfake.Cluster
	address string // host:port
}

const (
	partitions = 3
	// keepRecords is what a partition keeps in memory: about an hour of samples.
	keepRecords = 10_000
	trimEvery   = 10 * time.Second
)

// startBroker listens on a free loopback port and creates the main topics.
// The caller closes it.
func startBroker(topics []string) (*broker, error) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DefaultNumPartitions(partitions))
	if err != nil {
		return nil, fmt.Errorf("start the embedded broker: %w", err)
	}
	for _, t := range topics {
		if err := c.CreateTopic(t, partitions, nil); err != nil {
			c.Close()
			return nil, fmt.Errorf("create topic %s on the embedded broker: %w", t, err)
		}
	}
	return &broker{cluster: c, address: c.ListenAddrs()[0]}, nil
}

func (b *broker) close() { b.cluster.Close() }

// keepTrimming bounds the topics until ctx ends.
func (b *broker) keepTrimming(ctx context.Context, topics []string) {
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			b.trim(topics, keepRecords)
		}
	}
}

// trim deletes the oldest records beyond keep of each partition. Topics that
// do not exist yet are passed over.
func (b *broker) trim(topics []string, keep int64) {
	for _, t := range topics {
		for _, p := range b.cluster.PartitionInfos(t) {
			if from := p.HighWatermark - keep; from > p.LogStartOffset {
				_ = b.cluster.DeleteRecords(t, p.Partition, from) // fails only if the topic is gone
			}
		}
	}
}
