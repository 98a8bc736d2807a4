package engine

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/engine/topology"
	"github.com/kconsume/kconsume/plugin"
	"github.com/segmentio/kafka-go"
)

// EmitPolicy says what becomes of a record that a handler emitted while it
// cannot be sent.
type EmitPolicy string

const (
	// EmitOutbox: its source record is settled only once the broker has
	// acknowledged it; it is sent until then.
	EmitOutbox EmitPolicy = "outbox"
	// EmitBuffer: its source is settled at once; it is sent from memory until
	// it succeeds, the memory is full, or the process ends.
	EmitBuffer EmitPolicy = "buffer"
	// EmitDrop: its source is settled at once; it is sent once.
	EmitDrop EmitPolicy = "drop"
)

// headerEmitID names an emitted record: its source's id, "#" and its number
// among those that one delivery emits. It is the same on every redelivery.
const headerEmitID = "X-Emit-Id"

// codeEmitDenied is the code of a delivery that emits where it may not.
const codeEmitDenied = "emit_not_allowed"

// Reasons of a loss, beside those of a failed write.
const (
	lostOverflow = "overflow" // the memory for it is full
	lostExit     = "exit"     // the process ends
)

// looseShare is the part of MaxBuffer that emitted records may take which no
// source waits for.
const looseShare = 4

// emission is a record that a handler emitted, on its way to its topic.
type emission struct {
	passage
	rec   plugin.Record
	id    string
	lane  int32 // its source's partition, which decides where there is no key
	bytes int
	owed  *owed // nil: no source waits for it
}

// owed is an acknowledged delivery that is settled once all that it emitted to
// topics with an outbox has arrived.
type owed struct {
	p       *partition
	slot    uint64
	left    int // records that have not arrived
	bytes   int // of them
	handler string
	over    bool // it ended otherwise: the rest is not sent
}

// allow is the verdict, or a permanent one if it emits where it may not.
func (c *Config) allow(v *plugin.Verdict) *plugin.Verdict {
	for i := range v.Emitted {
		topic := v.Emitted[i].Topic
		if _, ok := c.Emit[topic]; !ok {
			return &plugin.Verdict{
				Class: plugin.ClassPermanent, Reason: plugin.ReasonPermanent, Code: codeEmitDenied, Rule: codeEmitDenied,
				Message: fmt.Sprintf("the handler emitted a record to topic %q, which is not allowed: allow it with --emit %s=outbox (or buffer, or drop)", topic, topic),
			}
		}
	}
	return v
}

// emit sends what an acknowledged delivery emitted, and settles its record, at
// once or when what has to arrive has arrived. It upholds I1: an outbox is the
// uncommitted source offset.
func (l *loop) emit(p *partition, slot uint64, v *plugin.Verdict, handler string, now time.Time) {
	m := p.past(p.track.at(slot))
	id := m.ID()
	o := &owed{p: p, slot: slot, handler: handler}
	for i := range v.Emitted {
		x := &emission{rec: v.Emitted[i], id: id + "#" + strconv.Itoa(i), lane: p.lane.id}
		x.bytes = itemCost + len(x.rec.Key) + len(x.rec.Value)
		for _, h := range x.rec.Headers {
			x.bytes += len(h.Key) + len(h.Value)
		}
		switch {
		case l.cfg.Emit[x.rec.Topic] == EmitOutbox:
			x.owed = o
			o.left++
			o.bytes += x.bytes
		case l.loose+x.bytes > l.cfg.MaxBuffer/looseShare:
			l.countLost(x.rec.Topic, lostOverflow, now)
			continue
		default:
			l.loose += x.bytes
		}
		l.ship(x)
	}
	if o.left == 0 {
		l.done(p, slot, false, v, handler, now)
		return
	}
	l.owe(p, o.bytes)
}

// owe counts what was emitted among what a partition holds.
func (l *loop) owe(p *partition, bytes int) {
	if p.gone {
		return
	}
	p.owed += bytes
	p.held += bytes
	l.held += bytes
	l.resume(p)
}

func (x *emission) source() *partition {
	if x.owed == nil {
		return nil
	}
	return x.owed.p
}

func (x *emission) wanted() bool { return x.owed == nil || !x.owed.over && !x.owed.p.gone }
func (x *emission) slim() bool   { return false }

// target is the partition that the key's hash says, as it is in Java's
// producer; without a key it follows from the source's, so that a redelivery
// goes there too. Behind records of its topic that were queued while its
// partitions were not known it queues up.
func (x *emission) target(l *loop) sinkID {
	id := sinkID{topicPartition: topicPartition{x.rec.Topic, -1}}
	n := len(l.layout[x.rec.Topic])
	if n == 0 || l.sinks[id] != nil {
		return id
	}
	id.partition = x.lane % int32(n)
	if x.rec.Key != nil {
		id.partition = int32(keyPartition(x.rec.Key, n))
	}
	return id
}

// message is the emitted record as the handler made it, our headers removed,
// and its id. Its time is the broker's or the client's, not its source's.
func (x *emission) message(partition int32) kafka.Message {
	m := kafka.Message{Key: x.rec.Key, Value: x.rec.Value, Partition: int(partition)}
	m.Headers = make([]kafka.Header, 0, len(x.rec.Headers)+1)
	for _, h := range x.rec.Headers {
		if !history.Ours(h.Key) && h.Key != headerEmitID {
			m.Headers = append(m.Headers, kafka.Header(h))
		}
	}
	m.Headers = append(m.Headers, kafka.Header{Key: headerEmitID, Value: []byte(x.id)})
	return m
}

// arrived lets its source go on.
func (x *emission) arrived(l *loop, now time.Time) {
	l.met.Emitted.WithLabelValues(x.rec.Topic).Inc()
	o := x.owed
	if o == nil {
		l.loose -= x.bytes
		return
	}
	if o.over || o.p.gone {
		return
	}
	l.unpark(x)
	l.owe(o.p, -x.bytes)
	o.bytes -= x.bytes
	if o.left--; o.left == 0 && o.p.track.open(o.slot) {
		l.done(o.p, o.slot, false, &plugin.Verdict{Class: plugin.ClassAck}, o.handler, now)
	}
}

// failed: it is written again, but for one that has one try.
func (x *emission) failed(l *loop, f writeFailure, now time.Time) bool {
	if l.cfg.Emit[x.rec.Topic] != EmitDrop {
		return true
	}
	l.lose(x, f.reason, now)
	return false
}

// oversize: one that its source waits for follows the policy. With a pointer
// the source's own record becomes a dead letter, which says so.
func (x *emission) oversize(l *loop, s *sink, now time.Time) {
	switch {
	case x.owed == nil:
		l.lose(x, "too_large", now)
	case l.cfg.Oversize == OversizePointer:
		l.deadSource(x, s.topic, now)
	default:
		l.park(x, s, now)
	}
}

// deadSource sends the source of an emitted record that is too large to the
// DLQ. What it emitted besides and has not arrived is not sent.
func (l *loop) deadSource(x *emission, topic string, now time.Time) {
	o := x.owed
	o.over = true
	l.owe(o.p, -o.bytes)
	l.dropUnwanted()
	it := o.p.track.at(o.slot)
	m := o.p.past(it)
	m.Trace = it.trace
	v := plugin.Verdict{
		Code:    "emit_too_large",
		Message: fmt.Sprintf("it emitted a record of %d bytes, which is too large for %s: raise max.message.bytes of %s and replay this record", x.bytes, topic, topic),
	}
	d := decision{route: routeDead, failed: m.Failed + 1, reason: plugin.ReasonOversize}
	l.forward(&forward{p: o.p, slot: o.slot, decision: d, to: o.p.lane.line.DLQ, meta: afterFailure(m, l.cfg.Group, d, &v, o.handler, now)})
}

// lose gives up an emitted record that no source waits for.
func (l *loop) lose(x *emission, reason string, now time.Time) {
	l.loose -= x.bytes
	l.countLost(x.rec.Topic, reason, now)
}

// countLost counts losses, and tells that they go on and why.
func (l *loop) countLost(topic, reason string, now time.Time) {
	l.met.EmitLost.WithLabelValues(topic, reason).Inc()
	l.lostAt[topic] = now
	l.problems.set(lossesOf(topic), fmt.Sprintf("emitted records are lost (%s): kconsume_emit_lost_total counts them; --emit %s=outbox loses none", reason, topic))
}

func lossesOf(topic string) string { return "records for " + topic }

// lossQuiet is how long nothing must be lost until that counts as over.
const lossQuiet = 10 * time.Second

func (l *loop) endLosses(now time.Time) {
	for topic, at := range l.lostAt {
		if now.Sub(at) > lossQuiet {
			delete(l.lostAt, topic)
			l.problems.set(lossesOf(topic), "")
		}
	}
}

// loseRest counts what is left in memory when the process ends. What is being
// written may have arrived all the same.
func (l *loop) loseRest() {
	left := map[string]int{}
	for _, s := range l.sinks {
		if s.loose() {
			left[s.topic] += len(s.queue) + len(s.batch)
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(left)) {
		if n := left[topic]; n > 0 {
			l.met.EmitLost.WithLabelValues(topic, lostExit).Add(float64(n))
			l.log.Error("emitted records were not sent before the end: they are lost", "topic", topic, "records", n)
		}
	}
}

// checkEmitted tells of topics that cannot be written to, before anything is.
func (l *loop) checkEmitted() {
	for topic := range l.cfg.Emit {
		text := ""
		if len(l.layout[topic]) == 0 {
			text = fmt.Sprintf("cannot find topic %s, which the handler may emit to: create it, or allow this user to describe and write it", topic)
		}
		l.problems.set("emit to "+topic, text)
	}
}

// emitTopics are the topics that a handler may write to.
func (c *Config) emitTopics() []string { return slices.Sorted(maps.Keys(c.Emit)) }

// checkEmit says what is wrong with Emit. Our own topics hold our records only.
func (c *Config) checkEmit(t *topology.Topology) error {
	mine := map[string]bool{}
	for _, name := range t.Names() {
		mine[name] = true
	}
	for _, main := range c.Topics {
		mine[main] = false
	}
	for _, topic := range c.emitTopics() {
		if err := topology.CheckName(topic); err != nil {
			return configError("emit: %v", err)
		}
		switch policy := c.Emit[topic]; {
		case mine[topic]:
			return configError("emit to %s: it is a topic of kconsume's own; emit to another", topic)
		case policy != EmitOutbox && policy != EmitBuffer && policy != EmitDrop:
			return configError("emit to %s: policy %q: one of outbox, buffer, drop", topic, policy)
		}
	}
	return nil
}
