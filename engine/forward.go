package engine

import (
	"fmt"
	"time"

	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/metrics"
	"github.com/kconsume/kconsume/plugin"
	"github.com/segmentio/kafka-go"
)

// forward is a decided record on its way to a tier or the DLQ. Its source
// offset stays uncommitted until the broker has acknowledged it: that offset is
// its outbox, and nothing else need remember it. It upholds I1 and I3.
type forward struct {
	passage
	p        *partition
	slot     uint64
	decision decision
	meta     history.Meta
	to       string
	// displaced: not a failure, but a waiting record written again to the end
	// of its own tier, so that a commit can pass what is settled behind it.
	displaced bool
	bare      bool // goes without diagnostics
	pointer   bool // goes to the DLQ in a larger record's place
	// dialects are the other tools' headers that a dead letter has, too.
	dialects []history.Dialect
}

// forward sends a decided record on its way.
func (l *loop) forward(f *forward) {
	f.p.track.at(f.slot).state = itemForwarding
	f.dialects = l.cfg.Headers
	l.ship(f)
}

func (f *forward) source() *partition { return f.p }
func (f *forward) wanted() bool       { return !f.p.gone }

func (f *forward) target(*loop) sinkID {
	return sinkID{topicPartition: topicPartition{f.to, f.p.lane.id}}
}

// message is the forwarded record: key, value and its own headers as they were,
// and ours. It carries no timestamp of the past, which a broker may refuse or
// expire at once. A pointer has the key and our headers only; its value is
// empty, not null, which would be a tombstone to whoever replays it.
func (f *forward) message(partition int32) kafka.Message {
	rec := &f.p.track.at(f.slot).rec
	m := kafka.Message{Key: rec.Key, Value: rec.Value, Partition: int(partition)}
	var own []plugin.Header
	if f.pointer {
		m.Value = []byte{}
	} else {
		own = history.Own(rec.Headers)
	}
	m.Headers = f.meta.Headers(own, f.bare)
	if f.decision.route == routeDead {
		m.Headers = append(m.Headers, f.meta.Foreign(f.dialects, f.bare)...)
	}
	return m
}

// slim cuts the diagnostics off.
func (f *forward) slim() bool {
	if f.bare || f.displaced {
		return false
	}
	f.bare = true
	return true
}

// failed: a forward never gives up while its partition is ours.
func (f *forward) failed(*loop, writeFailure, time.Time) bool { return true }

// oversize follows the policy. A record that was only to be moved within its
// tier waits where it is.
func (f *forward) oversize(l *loop, s *sink, now time.Time) {
	switch {
	case f.displaced:
		it := f.p.track.at(f.slot)
		it.state = itemWaiting
		f.p.gate.add(it.due, f.slot)
	case l.cfg.Oversize == OversizePointer && !f.pointer:
		l.pointTo(f.p, f.slot, f.meta, s.topic, f.meta.Message)
	default:
		l.park(f, s, now)
	}
}

// pointTo sends a small record to the DLQ in place of one that is too large for
// a topic: key and origin, and where the record itself lies.
func (l *loop) pointTo(p *partition, slot uint64, m history.Meta, topic, why string) {
	rec := &p.track.at(slot).rec
	at := fmt.Sprintf("%s/%d at offset %d", p.stage.Topic, p.lane.id, rec.Offset)
	m.Due, m.Class = 0, string(plugin.ReasonOversize)
	m.Message = fmt.Sprintf("too large for %s: this record stands for the one in %s, with a value of %d bytes; it failed with: %s", topic, at, len(rec.Value), why)
	l.problems.once("records for "+topic, fmt.Sprintf("the record in %s is too large: a pointer to it goes to %s in its place", at, p.lane.line.DLQ))
	l.forward(&forward{
		p: p, slot: slot, meta: m, to: p.lane.line.DLQ, pointer: true,
		decision: decision{route: routeDead, failed: m.Failed, reason: plugin.ReasonOversize},
	})
}

// arrived settles a record whose forward the broker has acknowledged.
func (f *forward) arrived(l *loop, now time.Time) {
	p := f.p
	if p.gone || !p.track.open(f.slot) {
		return
	}
	l.unpark(f)
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
			Kind: kind, At: now, ID: m.ID(), Topic: m.Origin.Topic, Partition: m.Origin.Partition, Offset: m.Origin.Offset,
			Key: p.track.at(f.slot).rec.Key, Stage: p.stage.Name, Attempt: m.Failed, To: f.to,
			Class: m.Class, Code: m.Code, Message: m.Message,
		}
		if m.Due > 0 {
			e.Due = msTime(m.Due)
		}
		l.cfg.Observer(e)
	}
	if kind != EventDead {
		l.settle(p, f.slot)
		return
	}
	l.conclude(p, f.slot, history.Outcome{
		Status: history.OutcomeFailedAgain, Handler: f.meta.Handler, Class: f.meta.Class,
		Again: &history.Place{Partition: p.lane.id, Offset: f.offset},
	}, now)
}
