package engine

import "time"

// started begins a generation. What this member owned goes on untouched where
// it is ours again and nobody else can have gone on with it between (follows).
// Everything else is dropped, and read anew from its committed
// offset.
type started struct{ gen *generation }

func (s *started) apply(l *loop) {
	before := l.lastGen
	l.gen, l.lastGen, l.ending, l.reshaped = s.gen, s.gen, nil, false
	l.met.Generations.Inc()
	for p := range l.owned {
		at, ours := s.gen.starts[topicPartition{p.stage.Topic, p.lane.id}]
		if !ours || !follows(before, s.gen, p, at) {
			l.dropPartition(p)
			continue
		}
		switch {
		case at.committed <= p.track.committable():
			p.committed = max(p.committed, at.committed) // the answer to a commit may have been lost
		default:
			p.committed = -1 // of the topic that bore this name before: commit anew
		}
	}
	if l.drain == nil {
		for tp, at := range s.gen.starts {
			if so, known := l.stages[tp.topic]; known && l.byTopic[tp] == nil {
				l.addPartition(so, tp.partition, at.committed, at.position)
			}
		}
		l.setState(StateRunning)
	}
	l.shares()
	for p := range l.owned {
		l.flushOutbox(p)
	}
	if len(s.gen.starts) == 0 {
		l.log.Warn("this member was given no partition", "group", l.cfg.Group, "generation", s.gen.id)
	}
	l.log.Info("joined the group", "group", l.cfg.Group, "generation", s.gen.id, "member", s.gen.member, "partitions", len(s.gen.starts))
	if l.layout != nil {
		l.lead()
	}
	l.askLayout()
	l.watch.search()
}

// follows reports that a partition which is ours in both generations may go on
// where it was. In the same generation, or the very next one of the same member,
// nobody else can have owned it. Where a generation lies between that we did not
// see, or the client has lost our member id, what is committed decides: it has
// not moved beyond what we have settled.
func follows(before, now *generation, p *partition, at start) bool {
	if before == nil || now.id < before.id {
		return false
	}
	if before.member == now.member && now.id <= before.id+1 {
		return true
	}
	if before.member != now.member && now.id != before.id+1 {
		return false
	}
	return at.committed >= p.committed && at.committed <= p.track.committable()
}

// ended says that a generation is over; done is closed when the loop has let go.
type ended struct {
	gen  *generation
	done chan struct{}
	// rest is set before done is closed: settled, and not known to be committed.
	rest offsets
	// doubt is set before done is closed: a commit may still arrive.
	doubt bool
}

// endWait is how long the end of a generation waits for what is in flight: one
// member that waits holds up the whole group.
const endWait = time.Second

// commitWait bounds a last commit that a coordinator does not answer.
const commitWait = time.Second

// ending is a generation being closed: no new record is sent, what is in flight
// is given a little time, and what is settled is committed once more.
type ending struct {
	until     time.Time
	committed bool
	of        *ended
}

func (e *ended) apply(l *loop) {
	if l.gen != e.gen {
		close(e.done)
		return
	}
	l.ending = &ending{until: time.Now().Add(endWait), of: e}
	if l.drain == nil {
		l.setState(StateJoining)
		l.setLimits()
	}
}

// setLimits marks how far each partition was begun: below lies a record that is
// settled, in flight or being forwarded.
func (l *loop) setLimits() {
	for p := range l.owned {
		p.limit = p.begun()
	}
}

// begun is the slot behind the last record that was begun.
func (p *partition) begun() uint64 {
	for s := p.track.tail; s > p.track.head; s-- {
		if !p.track.open(s - 1) {
			return s
		}
		if st := p.track.at(s - 1).state; st == itemFlying || st == itemForwarding {
			return s
		}
	}
	return p.track.head
}

// stepEnding closes a generation that has ended, and returns when to look again.
func (l *loop) stepEnding(now time.Time) time.Time {
	e := l.ending
	if e == nil {
		return time.Time{}
	}
	if !l.quiet() && now.Before(e.until) {
		return e.until
	}
	if hard := e.until.Add(commitWait); now.Before(hard) {
		if l.committing {
			return hard // or its end, which is an event
		}
		if !e.committed {
			e.committed = true
			if l.commit(now) {
				return hard
			}
		}
	}
	l.letGo()
	return time.Time{}
}

// letGo ends the generation for the loop. What is settled may be committed once
// more by another connection, unless an earlier commit may still be on its way
// by this one and arrive behind it (I4).
func (l *loop) letGo() {
	if l.ending.of.doubt = l.committing || l.gen.doubt; !l.ending.of.doubt {
		l.ending.of.rest = l.settled()
	}
	close(l.ending.of.done)
	l.gen, l.ending = nil, nil
}

// quiet reports that nothing which was begun is unfinished.
func (l *loop) quiet() bool {
	if l.inFlight > 0 {
		return false
	}
	for _, s := range l.sinks {
		if s.holdsUp() {
			return false
		}
	}
	for p := range l.owned {
		if len(p.outbox) > 0 {
			return false
		}
	}
	return true
}

// draining is the engine's stop: nothing new is read, what was begun is
// finished and committed within the drain timeout.
type draining struct {
	until    time.Time
	cut      bool      // the time is over: calls are cancelled, forwards given up
	cutUntil time.Time // cancelled calls may still answer
	commits  int       // tried
}

// cutWait is how long cancelled calls may take to answer at a stop.
const cutWait = 500 * time.Millisecond

// drainCommits is how often a stop tries to commit what is settled.
const drainCommits = 3

func (l *loop) beginDrain() {
	if l.drain != nil {
		return
	}
	l.setLimits()
	l.drain = &draining{until: time.Now().Add(l.cfg.DrainTimeout)}
	l.setState(StateDraining)
	l.log.Info("stopping", "in_flight", l.inFlight, "drain_timeout", l.cfg.DrainTimeout.String())
	for p := range l.owned {
		for n := p.ready.len(); n > 0; n-- {
			l.makeReady(p, p.ready.pop()) // what lies beyond the limit gives its key up
		}
		l.displace(p, time.Time{})
	}
}

// displace writes the waiting records that have settled ones behind them to the
// end of their tier again, due as before: a commit can then pass them, and a
// clean stop repeats nothing. Those due before a time stay.
func (l *loop) displace(p *partition, after time.Time) {
	for _, slot := range p.gate.takeBelow(p.limit, after.UnixMilli()) {
		l.forward(&forward{p: p, slot: slot, meta: p.past(p.track.at(slot)), to: p.stage.Topic, displaced: true})
	}
}

// worthDisplacing is how long a record must still wait to be written again.
const worthDisplacing = time.Second

// unclog displaces what waits long in a tier that is full, where something
// behind it is settled: else neither the commit nor the reading goes on, and a
// record further back comes late though its time has come.
func (l *loop) unclog(now time.Time) {
	if !l.running() {
		return
	}
	for p := range l.owned {
		if p.stage.Delay > 0 && p.held*2 > p.bound(now) {
			p.limit = p.begun()
			l.displace(p, now.Add(worthDisplacing))
		}
	}
}

// stepDrain ends the loop once everything that was begun is committed, or the
// time is over; it returns when to look again.
func (l *loop) stepDrain(now time.Time) time.Time {
	d := l.drain
	if d == nil || l.stopped {
		return time.Time{}
	}
	hard := d.until.Add(cutWait + commitWait)
	if !now.Before(hard) {
		if l.ending != nil {
			l.letGo()
		}
		l.stopped = true
		return time.Time{}
	}
	if !d.cut && !(l.quiet() && l.loose == 0) {
		if now.Before(d.until) {
			return d.until
		}
		l.cut(now)
	}
	switch {
	case l.ending != nil || l.committing:
		return hard
	case d.cut && l.inFlight > 0 && now.Before(d.cutUntil):
		return d.cutUntil
	case l.gen == nil && len(l.settled()) > 0 && now.Before(d.until):
		return d.until // between two generations: the next one can commit
	case l.gen != nil && d.commits < drainCommits && l.commit(now):
		d.commits++
		return hard
	}
	l.stopped = true
	return time.Time{}
}

// cut gives up what did not end in time: it stays uncommitted.
func (l *loop) cut(now time.Time) {
	l.drain.cut, l.drain.cutUntil = true, now.Add(cutWait)
	l.log.Warn("the drain timeout is over: what is unfinished stays uncommitted and is delivered again", "in_flight", l.inFlight)
	var cancel []uint64
	for p := range l.owned {
		for s := p.track.head; s < p.track.tail; s++ {
			if p.track.open(s) && p.track.at(s).state == itemFlying {
				cancel = append(cancel, p.handle(s))
			}
		}
	}
	if len(cancel) > 0 {
		l.deliver.Cancel(cancel)
	}
}
