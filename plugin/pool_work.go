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
	for c := p.next(w); c != nil; c = p.next(w) {
		p.call(w, c)
	}
}

// next settles w's call and takes the next one; nil means that w is to end.
func (p *Pool) next(w *worker) *call {
	now := time.Now() // the call's start, unless it has to wait
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle(w)
	for {
		if w.waked {
			w.waked, p.waking = false, false
		}
		if p.closed || p.surplus() > 0 {
			return nil
		}
		if c := p.claim(); c != nil {
			p.start(w, c, now)
			p.wake()
			return c
		}
		p.idle++
		p.idlers.Wait()
		p.idle--
		w.waked = true
		now = time.Now()
	}
}

// claim takes the oldest delivery that waits; nil = none does.
func (p *Pool) claim() *call {
	for p.head < len(p.queue) {
		b := p.queue[p.head]
		for b.next < len(b.calls) {
			c := &b.calls[b.next]
			b.next++
			p.queued--
			if !c.settled {
				return c
			}
		}
		p.queue[p.head] = nil
		p.head++
	}
	p.queue, p.head = p.queue[:0], 0
	return nil
}

func (p *Pool) start(w *worker, c *call, now time.Time) {
	w.current = c
	if d := c.delivery.Timeout; d > 0 {
		c.deadline = now.Add(d)
		p.watch(c.deadline, now)
	}
}

// settle answers for w's call, if it has one that has ended.
func (p *Pool) settle(w *worker) {
	c := w.current
	if c == nil {
		return
	}
	v, handle := w.verdict, c.delivery.Handle
	w.current, w.verdict = nil, nil
	switch {
	case c.late:
		p.late--
		if !p.gone {
			p.pending.Ended = append(p.pending.Ended, handle)
			p.signal()
		}
	case v != nil:
		p.answer(Answer{Handle: handle, Verdict: *v})
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
		c := w.current
		if c == nil || c.late || c.deadline.IsZero() {
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
			c.late = true
			p.late++
			p.answer(Answer{Handle: c.delivery.Handle, Verdict: c.lateVerdict(), Late: true})
		}
	}
	p.wake()
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
			v := panicVerdict(recover(), debug.Stack(), c.circumstances())
			w.verdict = &v
		}
		c.returned()
	}()
	w.verdict = p.judge(c, p.handler.Handle(c, &c.delivery.Message))
	returned = true
}

// judge is the verdict on what the handler returned; nil = acknowledged.
func (p *Pool) judge(c *call, err error) *Verdict {
	if err == nil {
		emitted := c.delivery.Message.emitted
		if len(emitted) == 0 {
			return nil
		}
		return &Verdict{Class: ClassAck, Emitted: emitted}
	}
	v := Classify(err, c.circumstances(), p.config.Classifiers...)
	return &v
}

func (c *call) circumstances() Circumstances {
	return Circumstances{Cancelled: c.cancelled(), Late: c.expired(time.Now())}
}
