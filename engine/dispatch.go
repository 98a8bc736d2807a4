package engine

import (
	"fmt"
	"time"

	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/engine/record"
	"github.com/kconsume/kconsume/metrics"
	"github.com/kconsume/kconsume/plugin"
)

// accept takes the records of one fetch into a partition. Where not even one
// batch was whole the next fetch allows for more; stuck says why that did not help.
func (l *loop) accept(p *partition, set *record.Set, now time.Time) (stuck string) {
	if set.Next == p.position && set.Truncated > 0 {
		if p.grow >= set.Truncated {
			stuck = fmt.Sprintf("%s/%d: the batch at offset %d says it has %d bytes and does not come whole: it may be damaged; nothing is passed over", p.stage.Topic, p.lane.id, p.position, set.Truncated)
			p.pauseTo = now.Add(time.Second)
		}
		p.grow = set.Truncated
		return stuck
	}
	p.grow = 0
	if len(set.Records) > 0 {
		if !p.busy {
			p.busy = true
			l.shares()
		}
		c := &chunk{cost: set.Bytes + itemCost*len(set.Records), live: len(set.Records)}
		p.held += c.cost
		l.held += c.cost
		for i := range set.Records {
			l.admit(p, &set.Records[i], c, now.UnixMilli())
		}
	}
	p.position = max(p.position, set.Next)
	p.track.advance(set.Next)
	return ""
}

// admit puts one record where it has to wait: the gate, its key's queue, or
// among the ready.
func (l *loop) admit(p *partition, rec *record.Record, c *chunk, now int64) {
	a := admit(p.stage, p.lane.line.Topic, l.cfg.Group, rec, p.lane.id, p.lane.line.policy.maxAttempts, now)
	it := item{rec: *rec, meta: a.meta, due: a.due, chunk: c}
	it.key, it.keyed = orderKey(l.cfg.Order, l.seed, p.stage, rec)
	slot := p.track.push(rec.Offset, it)
	if a.foreign {
		l.met.Foreign.WithLabelValues(p.stage.Topic).Inc()
	}
	switch {
	case a.skip:
		p.handled[metrics.OutcomeSkipped].Inc()
		l.watch.met(a.group)
		l.tell(p, slot, EventSkipped, now, nil)
		l.settle(p, slot)
	case a.due > now:
		p.track.at(slot).state = itemWaiting
		p.gate.add(a.due, slot)
	default:
		l.enter(p, slot)
	}
}

// enter makes a record ready, or queues it behind its key.
func (l *loop) enter(p *partition, slot uint64) {
	it := p.track.at(slot)
	if len(p.lane.running) > 0 && p.lane.running.hold(p.placeOf(slot), ref{p, slot}) {
		it.state = itemQueued
		return
	}
	if it.keyed && !p.lane.keys.enter(it.key, ref{p, slot}) {
		it.state = itemQueued
		return
	}
	l.makeReady(p, slot)
}

func (l *loop) makeReady(p *partition, slot uint64) {
	it := p.track.at(slot)
	if l.drain != nil && slot >= p.limit {
		it.state = itemQueued // left to the next owner, and not in the way of others
		l.leaveKey(p.lane, it.key, it.keyed)
		return
	}
	it.state = itemReady
	p.ready.push(slot)
	if !p.queued {
		p.queued = true
		l.turns = append(l.turns, p)
	}
}

// leaveKey frees a key: the next record of that key is ready.
func (l *loop) leaveKey(ln *lane, key uint64, keyed bool) {
	if !keyed {
		return
	}
	if r, ok := ln.keys.leave(key); ok {
		l.makeReady(r.p, r.slot)
	}
}

// release lets go what has become due, in due order.
func (l *loop) release(now time.Time) {
	ms := now.UnixMilli()
	l.lastDue = time.Time{}
	for p := range l.owned {
		if p.stage.Delay == 0 || !l.running() {
			continue
		}
		for {
			w, ok := p.gate.pop(ms)
			if !ok {
				break
			}
			l.enter(p, w.slot)
		}
		if due, ok := p.gate.next(); ok {
			if at := msTime(due); l.lastDue.IsZero() || at.Before(l.lastDue) {
				l.lastDue = at
			}
		}
	}
}

// turn is how many records of one partition are sent before it is another's turn.
const turn = 32

// dispatch sends ready records to the handler, partition by partition in turn,
// as far as the window allows. While a generation ends or the engine drains,
// only what lies below a record that was begun is sent: a commit then passes all
// of them, and nothing is handled twice.
func (l *loop) dispatch(now time.Time) {
	if l.gen == nil {
		return
	}
	var batch []plugin.Delivery
	if !l.running() {
		for p := range l.owned {
			for _, slot := range p.ready.takeBelow(p.limit) {
				batch = l.sendWatched(batch, p, slot, now)
			}
		}
		l.handOver(batch)
		return
	}
	window := l.pace.window
	for len(l.turns) > 0 && l.inFlight < window && (l.inFlight < l.cfg.Concurrency || l.flyBytes < maxAheadBytes) {
		p := l.turns[0]
		for n := 0; n < turn && l.inFlight < window && l.mayGo(p, now); n++ {
			batch = l.sendWatched(batch, p, p.ready.pop(), now)
		}
		l.turns = l.turns[1:]
		if p.queued = l.mayGo(p, now); p.queued {
			l.turns = append(l.turns, p)
		}
	}
	if len(l.turns) == 0 {
		l.turns = nil
	}
	l.handOver(batch)
}

// resume gives a partition that held back its turn again.
func (l *loop) resume(p *partition) {
	if !p.gone && !p.queued && p.ready.len() > 0 && !p.holdsBack() {
		p.queued = true
		l.turns = append(l.turns, p)
	}
}

func (l *loop) handOver(batch []plugin.Delivery) {
	if len(batch) > 0 {
		l.deliver.Deliver(batch)
	}
}

// send adds one ready record to the batch for the handler.
func (l *loop) send(batch []plugin.Delivery, p *partition, slot uint64, now time.Time) []plugin.Delivery {
	if p.gone || !p.track.open(slot) || p.track.at(slot).state != itemReady {
		return batch
	}
	it := p.track.at(slot)
	it.state = itemFlying
	p.flying++
	l.inFlight++
	l.flyBytes += len(it.rec.Key) + len(it.rec.Value)
	if it.due > 0 && p.lateness != nil {
		p.lateness.Observe(now.Sub(msTime(it.due)).Seconds())
	}
	l.tell(p, slot, EventDelivered, now.UnixMilli(), nil)
	d := plugin.Delivery{Handle: p.handle(slot), Message: p.message(it), Timeout: l.cfg.HandlerTimeout}
	l.tracing.begin(p, it, &d.Message, now)
	return append(batch, d)
}

// answered takes a batch of answers.
func (l *loop) answered(a plugin.Answers) {
	now := time.Now()
	ack := plugin.Verdict{Class: plugin.ClassAck}
	for _, h := range a.Acked {
		l.answer(h, &ack, false, a.Handler, now)
	}
	for i := range a.Verdicts {
		v := &a.Verdicts[i]
		l.answer(v.Handle, &v.Verdict, v.Late, a.Handler, now)
	}
	for _, h := range a.Ended {
		l.ended(h)
	}
	l.pace.answered(len(a.Acked)+len(a.Verdicts), now)
	if l.careful() {
		l.resumeAll()
	}
}

// find is the delivery that a handle names, if it is one that flies.
func (l *loop) find(handle uint64) (p *partition, slot uint64, ok bool) {
	idx := handle >> slotBits
	if idx >= uint64(len(l.parts)) || l.parts[idx] == nil {
		return nil, 0, false
	}
	p = l.parts[idx]
	slot = handle & (1<<slotBits - 1)
	return p, slot, p.track.open(slot) && p.track.at(slot).state == itemFlying
}

// answer takes one answer: frees the key, decides, and settles or forwards.
func (l *loop) answer(handle uint64, v *plugin.Verdict, late bool, handler string, now time.Time) {
	p, slot, ok := l.find(handle)
	if !ok {
		l.problems.once("answers", fmt.Sprintf("handler %s answered for a record that it does not have", handler))
		return
	}
	it := p.track.at(slot)
	it.state = itemForwarding
	key, keyed := it.key, it.keyed
	if it.noted {
		l.answeredNoted(p.idAt(slot))
	}
	p.flying--
	l.inFlight--
	l.flyBytes -= len(it.rec.Key) + len(it.rec.Value)
	var at place
	if late || p.gone {
		at = p.placeOf(slot) // before the item is settled and gone
	}
	if late {
		l.late[handle] = lateCall{p: p, key: key, keyed: keyed, place: at}
		p.late++
		if !p.gone { // else it was noted when the partition was lost
			p.lane.running.add(at)
		}
	}
	// The answer to a call that we cancelled is no verdict.
	cancelled := v.Class == plugin.ClassUnspecified && v.Rule == plugin.RuleCancelled
	if p.gone || cancelled {
		l.tracing.cut(it)
	} else {
		l.decided(p, slot, v, handler, now)
	}
	if !late {
		// The key is freed last: what comes behind a forward of its key is
		// written behind it.
		l.leaveKey(p.lane, key, keyed)
		if p.gone {
			l.ranOut(p.lane, at)
		}
	}
	l.free(p)
}

// ended frees what a late call held.
func (l *loop) ended(handle uint64) {
	c, ok := l.late[handle]
	if !ok {
		return
	}
	delete(l.late, handle)
	c.p.late--
	l.leaveKey(c.p.lane, c.key, c.keyed)
	l.ranOut(c.p.lane, c.place)
	l.free(c.p)
}

// decided carries a decision out.
func (l *loop) decided(p *partition, slot uint64, v *plugin.Verdict, handler string, now time.Time) {
	it := p.track.at(slot)
	failed := 0
	if it.meta != nil {
		failed = it.meta.Failed
	}
	if v.Class == plugin.ClassAck && len(v.Emitted) > 0 {
		v = l.cfg.allow(v)
	}
	pol := p.policy()
	d := pol.decide(failed, v, now)
	l.tracing.end(it, d, v, handler)
	t := l.tallyOf(p, handler)
	t.answered.Inc()
	if d.route != routeSettle {
		t.fail(d.reason)
	}
	switch {
	case v.Class == plugin.ClassAck && len(v.Emitted) > 0:
		l.emit(p, slot, v, handler, now)
		return
	case d.route == routeSettle:
		l.done(p, slot, d.dropped, v, handler, now)
		return
	}
	m := p.past(it)
	m.Trace = it.trace
	m = afterFailure(m, l.cfg.Group, d, v, handler, now)
	f := &forward{p: p, slot: slot, decision: d, meta: m, to: p.lane.line.DLQ}
	if d.route == routeRetry {
		f.to = p.lane.line.policy.tiers[d.tier].Topic
	}
	l.forward(f)
}

// done settles a record that the handler is done with.
func (l *loop) done(p *partition, slot uint64, dropped bool, v *plugin.Verdict, handler string, now time.Time) {
	outcome, kind := metrics.OutcomeAck, EventAcked
	if dropped {
		outcome, kind = metrics.OutcomeDrop, EventDropped
	}
	p.handled[outcome].Inc()
	l.tell(p, slot, kind, now.UnixMilli(), v)
	l.conclude(p, slot, history.Outcome{Status: history.OutcomeSucceeded, Handler: handler}, now)
}

// settle says that nothing more is to be done about a record.
func (l *loop) settle(p *partition, slot uint64) {
	c := p.track.at(slot).chunk
	if !p.track.settle(slot) {
		return
	}
	if c.live--; c.live == 0 && !p.gone {
		p.held -= c.cost
		l.held -= c.cost
	}
}

// tell reports a step of a record's way to the observer.
func (l *loop) tell(p *partition, slot uint64, kind EventKind, nowMS int64, v *plugin.Verdict) {
	if l.cfg.Observer == nil {
		return
	}
	it := p.track.at(slot)
	m := p.past(it)
	e := Event{
		Kind: kind, At: msTime(nowMS), ID: m.ID(), Topic: m.Origin.Topic, Partition: m.Origin.Partition,
		Offset: m.Origin.Offset, Key: it.rec.Key, Stage: p.stage.Name, Attempt: m.Failed + 1,
	}
	if it.due > 0 {
		e.Due = msTime(it.due)
	}
	if v != nil {
		e.Code, e.Message = v.Code, v.Message
	}
	l.cfg.Observer(e)
}
