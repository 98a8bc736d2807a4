package engine

import (
	"time"

	"github.com/kconsume/kconsume/metrics"
	"github.com/segmentio/kafka-go"
)

// writers are the producers, two for each topic that is written to: one for
// batches, and one whose records go each in a request of its own, and so are
// refused for what they are and not for their neighbours. The owner loop alone
// makes them and reads their statistics; a writer itself is safe for concurrent
// use.
type writers struct {
	cfg     Config
	cluster *cluster
	made    map[writerID]*kafka.Writer
}

type writerID struct {
	topic string
	alone bool
}

func newWriters(c Config, k *cluster) *writers {
	return &writers{cfg: c, cluster: k, made: map[writerID]*kafka.Writer{}}
}

// noLimit is larger than any record a broker takes: the broker's own limit
// decides what is too large, not the client's.
const noLimit = 1 << 30

func (w *writers) of(topic string, alone bool) *kafka.Writer {
	id := writerID{topic, alone}
	wr := w.made[id]
	if wr == nil {
		wr = &kafka.Writer{
			Addr: w.cluster.addr, Topic: topic, Transport: w.cluster.transport,
			Balancer: copartition{}, RequiredAcks: kafka.RequireAll, Compression: kafka.Snappy,
			BatchSize: sinkRecords, BatchBytes: sinkBytes, BatchTimeout: 5 * time.Millisecond,
			MaxAttempts: w.cfg.WriteAttempts, WriteBackoffMin: w.cfg.WriteBackoffMin, WriteBackoffMax: w.cfg.WriteBackoffMax,
			WriteTimeout: w.cfg.WriteTimeout, ReadTimeout: w.cfg.ReadTimeout, Completion: sign,
		}
		if alone {
			wr.BatchSize, wr.BatchBytes = 1, noLimit
		}
		if w.cfg.Emit[topic] == EmitDrop {
			wr.MaxAttempts = 1
		}
		w.made[id] = wr
	}
	return wr
}

// count adds what the writers did since the last time to the metrics: their
// statistics are reset when they are read, so nobody else may read them.
func (w *writers) count(m *metrics.Engine) {
	for id, wr := range w.made {
		s := wr.Stats()
		m.WriterRetries.WithLabelValues(id.topic).Add(float64(s.Retries))
		m.WriterErrors.WithLabelValues(id.topic).Add(float64(s.Errors))
	}
}

// closeWait bounds the close of a writer, which can hang in the client.
const closeWait = 5 * time.Second

// close ends the writers. Nothing is written any more by then.
func (w *writers) close() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, wr := range w.made {
			_ = wr.Close() // all writes have returned: there is nothing to flush
		}
	}()
	select {
	case <-done:
	case <-time.After(closeWait):
	}
}

// copartition writes a record to the partition it names: a forward's is its
// source's number, so that one member owns a key's records in every stage.
// Where the target has no such partition the key decides. A client that has not
// heard yet that a topic has grown fails to find the partition, and finds it
// when the write is tried again.
type copartition struct{}

func (copartition) Balance(m kafka.Message, partitions ...int) int {
	switch n := len(partitions); {
	case m.Partition >= 0 && m.Partition < n:
		return partitions[m.Partition]
	case m.Partition >= 0 && exists(&m):
		return m.Partition
	case m.Partition >= 0 && m.Key == nil:
		return partitions[m.Partition%n]
	}
	return kafka.Murmur2Balancer{}.Balance(m, partitions...)
}

func exists(m *kafka.Message) bool {
	r, ok := m.WriterData.(*receipt)
	return ok && r.there
}

// keyPartition is the one of n partitions that a key belongs to, as Java's
// producer has it.
func keyPartition(key []byte, n int) int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return kafka.Murmur2Balancer{}.Balance(kafka.Message{Key: key}, all...)
}
