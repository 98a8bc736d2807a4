package plugin

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// wake sees to it that a worker comes for what is queued, if there is room for
// one more call. One at a time: who comes wakes the next, so that a handler that
// returns at once keeps few workers busy and one that waits gets all of them.
func (p *Pool) wake() {
	if p.queued == 0 || p.waking || p.closed {
		return
	}
	switch {
	case p.surplus() >= 0 && p.idle == 0:
	case p.idle > 0:
		p.waking = true
		p.idlers.Signal()
	default:
		p.waking = true
		w := &worker{waked: true}
		p.workers[w] = struct{}{}
		go p.work(w)
	}
}

// surplus is by how many the workers exceed the calls that may run.
func (p *Pool) surplus() int {
	return len(p.workers) - p.config.Concurrency - min(p.late, p.config.MaxLate)
}

func (p *Pool) work(w *worker) {
	defer p.leave(w)
	for p.next(w) {
		if p.batches != nil {
			p.callBatch(w)
		} else {
			p.call(w, w.calls[0])
		}
	}
}

// next settles w's calls and takes the next ones; false means that w is to end.
func (p *Pool) next(w *worker) bool {
	now := time.Now() // the call's start, unless it has to wait
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle(w)
	for {
		if w.waked {
			w.waked, p.waking = false, false
		}
		if p.closed || p.surplus() > 0 {
			return false
		}
		if p.claim(w) {
			p.start(w, now)
			p.wake()
			return true
		}
		p.idle++
		p.idlers.Wait()
		p.idle--
		w.waked = true
		now = time.Now()
	}
}

// claim gives w what waits longest: one delivery, or as many as go into a
// batch. It reports whether anything does.
func (p *Pool) claim(w *worker) bool {
	for len(p.again) > 0 {
		c := p.again[0]
		p.again = p.again[1:]
		p.queued--
		if !c.settled {
			w.calls = append(w.calls, c)
			return true
		}
	}
	for len(w.calls) < p.most {
		c := p.oldest()
		if c == nil || len(w.calls) > 0 && p.lonely(c) {
			break
		}
		p.queue[p.head].next++
		p.queued--
		w.calls = append(w.calls, c)
		if p.lonely(c) {
			break
		}
	}
	return len(w.calls) > 0
}

// oldest is the first delivery of the queue that is not settled, without taking
// it out; nil = none waits.
func (p *Pool) oldest() *call {
	for p.head < len(p.queue) {
		b := p.queue[p.head]
		for b.next < len(b.calls) {
			if c := &b.calls[b.next]; !c.settled {
				return c
			}
			b.next++
			p.queued--
		}
		p.queue[p.head] = nil
		p.head++
	}
	p.queue, p.head = p.queue[:0], 0
	return nil
}

// start sets the deadlines of w's calls, which count from their first start.
func (p *Pool) start(w *worker, now time.Time) {
	w.outcomes = append(w.outcomes[:0], make([]outcome, len(w.calls))...)
	w.ctx = &w.calls[0].callContext
	if p.batches != nil {
		w.ctx = &callContext{draining: p.drains}
	}
	for _, c := range w.calls {
		if d := c.delivery.Timeout; d > 0 && c.deadline.IsZero() {
			c.deadline = now.Add(d)
		}
		if !c.deadline.IsZero() && (w.ctx.deadline.IsZero() || c.deadline.Before(w.ctx.deadline)) {
			w.ctx.deadline = c.deadline
		}
	}
	if !w.ctx.deadline.IsZero() {
		p.watch(w.ctx.deadline, now)
	}
}

// settle answers for w's calls, if it has some that have ended.
func (p *Pool) settle(w *worker) {
	if len(w.calls) == 0 {
		return
	}
	for i, c := range w.calls {
		p.settleCall(w, c, &w.outcomes[i])
	}
	if w.late {
		p.late--
	}
	clear(w.calls)
	clear(w.outcomes)
	w.calls, w.ctx, w.late = w.calls[:0], nil, false
}

func (p *Pool) settleCall(w *worker, c *call, o *outcome) {
	handle := c.delivery.Handle
	switch {
	case w.late:
		if !p.gone {
			p.pending.Ended = append(p.pending.Ended, handle)
			p.signal()
		}
	case o.again && c.cancelled(): // as all are that the pool's end meets
		p.answer(Answer{Handle: handle, Verdict: cancelledVerdict()})
	case o.again:
		c.delivery.Message.emitted = nil
		p.again = append(p.again, c)
		p.queued++
	case o.verdict != nil:
		p.answer(Answer{Handle: handle, Verdict: *o.verdict})
	case !p.gone:
		p.pending.Acked = append(p.pending.Acked, handle)
		p.open--
		p.signal()
	}
}

// leave is w's end: asked for by next, or because the handler ended the
// goroutine it was called on.
func (p *Pool) leave(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle(w)
	delete(p.workers, w)
	if p.closed {
		p.signal()
	}
	p.wake()
}

// watch has expire run at t, if it would not run before. Deadlines mostly grow,
// so the alarm is set about once per timeout, not once per call.
func (p *Pool) watch(t, now time.Time) {
	if !p.alarmAt.IsZero() && !t.Before(p.alarmAt) {
		return
	}
	p.alarmAt = t
	if p.alarm == nil {
		p.alarm = time.AfterFunc(t.Sub(now), p.expire)
		return
	}
	p.alarm.Reset(t.Sub(now))
}

// expire ends the contexts of the calls whose time is over, answers for those
// that are not back a while later, and sets the alarm for the next one. It is
// right whenever it runs.
func (p *Pool) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alarmAt = time.Time{}
	if p.closed {
		return
	}
	now := time.Now()
	for w := range p.workers {
		c := w.ctx
		if c == nil || w.late || c.deadline.IsZero() {
			continue
		}
		switch late := c.deadline.Add(lateAfter); {
		case now.Before(c.deadline):
			p.watch(c.deadline, now)
		case now.Before(late):
			c.expire()
			p.watch(late, now)
		default:
			c.expire()
			p.belate(w)
		}
	}
	p.wake()
}

// belate answers for w's calls, which run on. A batch keeps all its keys until
// it has ended.
func (p *Pool) belate(w *worker) {
	w.late = true
	p.late++
	for _, c := range w.calls {
		p.answer(Answer{Handle: c.delivery.Handle, Verdict: c.lateVerdict(), Late: true})
	}
}

func (c *call) lateVerdict() Verdict {
	if c.cancelled() {
		return cancelledVerdict()
	}
	return timeoutVerdict(fmt.Errorf("no answer within %v: %w", c.delivery.Timeout, context.DeadlineExceeded))
}

// call runs the handler on one delivery and leaves its verdict in w.
func (p *Pool) call(w *worker, c *call) {
	returned := false
	defer func() {
		if !returned {
			v := panicVerdict(recover(), debug.Stack(), p.circumstances(w, c))
			w.outcomes[0].verdict = &v
		}
		c.cancel()
	}()
	w.outcomes[0].verdict = p.judge(w, c, p.handler.Handle(c, &c.delivery.Message))
	returned = true
}

// judge is the verdict on what the handler returned for c; nil = acknowledged.
func (p *Pool) judge(w *worker, c *call, err error) *Verdict {
	if err == nil {
		emitted := c.delivery.Message.emitted
		if len(emitted) == 0 {
			return nil
		}
		return &Verdict{Class: ClassAck, Emitted: emitted}
	}
	v := Classify(err, p.circumstances(w, c), p.config.Classifiers...)
	return &v
}

func (p *Pool) circumstances(w *worker, c *call) Circumstances {
	at := Circumstances{Cancelled: c.cancelled(), Late: w.ctx.expired(time.Now())}
	select {
	case <-p.drains:
		at.Draining = true
	default:
	}
	return at
}
