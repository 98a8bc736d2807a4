package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kconsume/kconsume/metrics"
	"github.com/segmentio/kafka-go"
)

// forward is a decided record on its way to a tier or the DLQ. Its source
// offset stays uncommitted until the broker has acknowledged it: that offset is
// its outbox, and nothing else need remember it. It upholds I1 and I3.
type forward struct {
	p        *partition
	slot     uint64
	decision decision
	meta     meta
	to       string
	// displaced: not a failure, but a waiting record written again to the end
	// of its own tier, so that a commit can pass what is settled behind it.
	displaced bool
	alone     bool // refused as too large in a batch: sent by itself
	bare      bool // refused by itself: sent without diagnostics
}

// sink is one partition of a topic that forwards are written to. One write at a
// time is in flight, in the order of the decisions; other sinks do not wait for
// it. The owner loop alone uses it.
type sink struct {
	topicPartition
	queue     []*forward
	busy      bool
	fails     int       // in a row
	notBefore time.Time // no write before: the last one failed
}

// Bounds of one write, and of the waits between failed ones. The longest wait
// outlasts the transport's metadata, so that a leader that moved is found.
const (
	forwardRecords = 250 // the client sets this many aside for each write, however few there are
	forwardBytes   = 900 << 10
	forwardWaitMin = 250 * time.Millisecond
	forwardWaitMax = 5 * time.Second
)

// forward queues a decided record for its sink, or keeps it until a generation
// is there to own it: a partition that is lost meanwhile is decided anew by its
// next owner.
func (l *loop) forward(f *forward) {
	f.p.track.at(f.slot).state = itemForwarding
	if l.gen == nil {
		f.p.outbox = append(f.p.outbox, f)
		return
	}
	id := topicPartition{f.to, f.p.lane.id}
	s := l.sinks[id]
	if s == nil {
		s = &sink{topicPartition: id}
		l.sinks[id] = s
	}
	s.queue = append(s.queue, f)
}

// flushOutbox forwards what was decided between two generations.
func (l *loop) flushOutbox(p *partition) {
	for _, f := range p.outbox {
		l.forward(f)
	}
	p.outbox = nil
}

// pumpSinks starts a write for each sink that has something and may, and
// returns when the next one may.
func (l *loop) pumpSinks(now time.Time) time.Time {
	var next time.Time
	for id, s := range l.sinks {
		if s.busy {
			continue
		}
		switch {
		case len(s.queue) == 0 && s.fails == 0:
			delete(l.sinks, id)
		case len(s.queue) == 0 || l.gen == nil:
		case now.Before(s.notBefore):
			if next.IsZero() || s.notBefore.Before(next) {
				next = s.notBefore
			}
		default:
			l.write(s)
		}
	}
	return next
}

// dropGone takes the forwards of a partition that was lost out of every queue.
func (l *loop) dropGone() {
	for _, s := range l.sinks {
		s.queue = slices.DeleteFunc(s.queue, func(f *forward) bool { return f.p.gone })
	}
}

// write sends the head of a sink's queue.
func (l *loop) write(s *sink) {
	batch, msgs := s.take()
	s.busy = true
	w := l.writers.of(s.topic)
	l.task(func(ctx context.Context) event {
		return &written{s, batch, positions(w.WriteMessages(ctx, msgs...), len(msgs))}
	})
}

// take cuts a batch off a sink's queue: one record of any size, or as many as
// fit the bounds.
func (s *sink) take() ([]*forward, []kafka.Message) {
	var msgs []kafka.Message
	bytes := 0
	for _, f := range s.queue {
		m := f.message(s.partition)
		n := len(m.Key) + len(m.Value) + 512
		if len(msgs) > 0 && (bytes+n > forwardBytes || len(msgs) == forwardRecords || f.alone) {
			break
		}
		msgs = append(msgs, m)
		bytes += n
		if f.alone {
			break
		}
	}
	batch := append([]*forward(nil), s.queue[:len(msgs)]...)
	s.queue = s.queue[len(msgs):]
	return batch, msgs
}

// message is the forwarded record: key, value and its own headers as they were,
// and ours. It carries no timestamp of the past, which a broker may refuse or
// expire at once.
func (f *forward) message(partition int32) kafka.Message {
	it := f.p.track.at(f.slot)
	return kafka.Message{
		Key: it.rec.Key, Value: it.rec.Value, Partition: int(partition),
		Headers: forwardHeaders(ownHeaders(it.rec.Headers), &f.meta, f.bare),
	}
}

// positions turns the result of a write into one error per record. A failure of
// the whole call leaves every outcome unknown: all are written again, with the
// same id.
func positions(err error, n int) []error {
	if err == nil {
		return nil
	}
	if each, ok := errors.AsType[kafka.WriteErrors](err); ok && len(each) == n {
		return each
	}
	all := make([]error, n)
	for i := range all {
		all[i] = err
	}
	return all
}

// written is a write's result: errs is nil, or one error per record.
type written struct {
	s     *sink
	batch []*forward
	errs  []error
}

func (w *written) apply(l *loop) {
	now := time.Now()
	s := w.s
	s.busy = false
	var again []*forward
	var failure error
	for i, f := range w.batch {
		if w.errs == nil || w.errs[i] == nil {
			l.forwarded(f, now)
			continue
		}
		failure = w.errs[i]
		l.refused(f, len(w.batch), failure)
		if !f.p.gone {
			again = append(again, f)
		}
	}
	what := fmt.Sprintf("write to %s/%d", s.topic, s.partition)
	if failure == nil {
		s.fails = 0
		l.problems.set(what, "")
		return
	}
	s.queue = append(again, s.queue...) // in front: the order of the decisions stays
	s.fails++
	s.notBefore = now.Add(min(forwardWaitMax, forwardWaitMin<<min(s.fails-1, 10)))
	l.problems.set(what, writeProblem(s.topic, failure))
}

// forwarded settles a record whose forward the broker has acknowledged.
func (l *loop) forwarded(f *forward, now time.Time) {
	p := f.p
	if p.gone || !p.track.open(f.slot) {
		return
	}
	kind := EventRetried
	switch {
	case f.displaced:
		l.settle(p, f.slot)
		return
	case f.decision.route == routeDead:
		kind = EventDead
		p.lane.line.dead.Inc()
		p.handled[metrics.OutcomeDead].Inc()
	default:
		p.lane.line.retry[f.decision.tier].Inc()
		p.handled[metrics.OutcomeRetry].Inc()
	}
	if l.cfg.Observer != nil {
		m := &f.meta
		e := Event{
			Kind: kind, At: now, ID: m.id(), Topic: m.origin.topic, Partition: m.origin.partition, Offset: m.origin.offset,
			Key: p.track.at(f.slot).rec.Key, Stage: p.stage.Name, Attempt: m.failed, To: f.to,
			Class: m.class, Code: m.code, Message: m.message,
		}
		if m.due > 0 {
			e.Due = msTime(m.due)
		}
		l.cfg.Observer(e)
	}
	l.settle(p, f.slot)
}

// refused notes a failed write. Of a batch that is too large nobody knows which
// record is: each is sent alone, and one refused alone goes without diagnostics.
func (l *loop) refused(f *forward, batch int, err error) {
	l.met.ForwardFails.WithLabelValues(f.to, writeReason(err)).Inc()
	if !errors.Is(err, kafka.MessageSizeTooLarge) {
		return
	}
	if batch == 1 {
		f.bare = true
	}
	f.alone = true
}

// writeReason is the bounded word for a failed write.
func writeReason(err error) string {
	switch {
	case errors.Is(err, kafka.MessageSizeTooLarge):
		return "too_large"
	case errors.Is(err, kafka.UnknownTopicOrPartition):
		return "unknown_topic"
	case errors.Is(err, kafka.TopicAuthorizationFailed), errors.Is(err, kafka.ClusterAuthorizationFailed):
		return "denied"
	case errors.Is(err, kafka.NotEnoughReplicas), errors.Is(err, kafka.NotEnoughReplicasAfterAppend):
		return "replicas"
	case errors.Is(err, kafka.LeaderNotAvailable), errors.Is(err, kafka.NotLeaderForPartition):
		return "leader"
	case errors.Is(err, kafka.InvalidTimestamp):
		return "timestamp"
	case errors.Is(err, kafka.RequestTimedOut), errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	if _, ok := errors.AsType[kafka.Error](err); ok {
		return "broker"
	}
	return "network"
}

// writeProblem says what failed and what to do about it.
func writeProblem(topic string, err error) string {
	hint := "it is tried again until it succeeds; its source offset stays uncommitted"
	switch writeReason(err) {
	case "too_large":
		hint = "raise max.message.bytes of " + topic + "; it goes on by itself then"
	case "unknown_topic":
		hint = "create " + topic + " (kconsume topics apply); it goes on by itself then"
	case "denied":
		hint = "allow this user to write to " + topic + "; it goes on by itself then"
	case "replicas":
		hint = "the cluster has fewer replicas in sync than min.insync.replicas of " + topic
	case "timestamp":
		hint = "set message.timestamp.type=LogAppendTime on " + topic + ", or correct this host's clock"
	}
	return fmt.Sprintf("cannot write to %s: %v: %s", topic, err, hint)
}
