package engine

import (
	"hash/fnv"
	"time"

	"github.com/segmentio/kafka-go"
)

// writers are the producers, one for each topic that is written to. The owner
// loop alone makes them; a writer itself is safe for concurrent use.
type writers struct {
	cfg     Config
	cluster *cluster
	byTopic map[string]*kafka.Writer
}

func newWriters(c Config, k *cluster) *writers {
	return &writers{cfg: c, cluster: k, byTopic: map[string]*kafka.Writer{}}
}

// noLimit is larger than any record a broker takes: the broker's own limit
// decides what is too large, not the client's.
const noLimit = 1 << 30

func (w *writers) of(topic string) *kafka.Writer {
	wr := w.byTopic[topic]
	if wr == nil {
		wr = &kafka.Writer{
			Addr: w.cluster.addr, Topic: topic, Transport: w.cluster.transport,
			Balancer: copartition{}, RequiredAcks: kafka.RequireAll, Compression: kafka.Snappy,
			BatchSize: forwardRecords, BatchBytes: noLimit, BatchTimeout: 5 * time.Millisecond,
			MaxAttempts: w.cfg.WriteAttempts, WriteBackoffMin: w.cfg.WriteBackoffMin, WriteBackoffMax: w.cfg.WriteBackoffMax,
			WriteTimeout: w.cfg.WriteTimeout, ReadTimeout: w.cfg.ReadTimeout,
		}
		w.byTopic[topic] = wr
	}
	return wr
}

// closeWait bounds the close of a writer, which can hang in the client.
const closeWait = 5 * time.Second

// close ends the writers. Nothing is written any more by then.
func (w *writers) close() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, wr := range w.byTopic {
			_ = wr.Close() // all writes have returned: there is nothing to flush
		}
	}()
	select {
	case <-done:
	case <-time.After(closeWait):
	}
}

// copartition writes a record to the partition with its source's number, so
// that one member owns a key's records in every stage. Where the target has no
// such partition the key decides.
type copartition struct{}

func (copartition) Balance(m kafka.Message, partitions ...int) int {
	if m.Partition < len(partitions) {
		return partitions[m.Partition]
	}
	h := fnv.New32a()
	_, _ = h.Write(m.Key)
	return partitions[int(h.Sum32()%uint32(len(partitions)))]
}
