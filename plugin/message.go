package plugin

import (
	"context"
	"time"

	"github.com/kconsume/kconsume/plugin/internal/wire"
)

// Header is one header of a record. Names repeat and their order counts.
// A name is bytes by Kafka's rules and need not be UTF-8; a nil Value is null
// and differs from an empty one.
type Header struct {
	Key   string
	Value []byte
}

// Message is one delivery of one record. Handlers must not change its bytes.
type Message struct {
	// ID is the same on every delivery and replay of a record:
	// origin topic/partition/offset@timestamp-ms.
	ID string
	// Topic, Partition and Offset are the record's origin, also when it is
	// delivered from a retry topic.
	Topic     string
	Partition int32
	Offset    int64
	// Key and Value keep null (nil) and empty apart.
	Key, Value []byte
	// Headers are the record's own, in order; kconsume's are removed.
	Headers []Header
	// Time is the origin record's timestamp.
	Time time.Time
	// Attempt is 1 on the first delivery and at most MaxAttempts.
	Attempt, MaxAttempts int
	// Stage is "main", or the retry tier it came from, such as "retry.5s".
	Stage string
	// Trace is the span of this delivery, where kconsume makes one; see TraceContext.
	Trace Trace

	emitted []Record
}

// Record is what a handler emits.
type Record struct {
	Topic      string
	Key, Value []byte
	Headers    []Header
}

// Emit queues a record that is sent once this delivery is acknowledged, and
// only then, to one of the topics that kconsume is told to allow (--emit). It
// must be called before the handler returns, and its bytes must not be changed
// any more. The record carries the header X-Emit-Id, which is the same when the
// delivery is repeated: ID, "#" and the record's number among the delivery's,
// from 0.
func (m *Message) Emit(r Record) { m.emitted = append(m.emitted, r) }

// Emitted is what was queued with Emit so far.
func (m *Message) Emitted() []Record { return m.emitted }

// AppendID appends the stable id of a record to b.
func AppendID(b []byte, topic string, partition int32, offset, timestampMS int64) []byte {
	return wire.AppendID(b, topic, partition, offset, timestampMS)
}

// Handler handles one record at a time; it is called from many goroutines at
// once. nil means done. What an error means is told by its type: see Classify.
type Handler interface {
	Handle(context.Context, *Message) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(context.Context, *Message) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, m *Message) error { return f(ctx, m) }
