package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestPoolDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := NewPool(HandlerFunc(func(ctx context.Context, m *Message) error {
			if m.Offset == 0 {
				<-release // deaf to its context
				return Permanent(errors.New("too late to count"))
			}
			<-ctx.Done()
			if m.Offset == 1 {
				return nil
			}
			return Permanent(errors.New("on purpose"))
		}), PoolConfig{Concurrency: 3})
		defer p.Close()
		start := time.Now()
		p.Deliver(some(3, 2*time.Second))
		y := newTally()
		y.until(t, p, 3)
		if d := time.Since(start); d != 2*time.Second+lateAfter {
			t.Errorf("answered after %v", d)
		}
		a := y.verdicts[0]
		if !a.Late || a.Verdict.Class != ClassTransient || a.Verdict.Reason != ReasonTimeout {
			t.Errorf("the deaf call's answer: %+v", a)
		}
		if !y.acked[1] {
			t.Error("a call that returned nil at its deadline is not acknowledged")
		}
		if v := y.verdicts[2]; v.Late || v.Verdict.Class != ClassPermanent {
			t.Errorf("an explicit verdict at the deadline: %+v", v)
		}
		if late, _ := p.Late(); late != 1 {
			t.Errorf("%d late calls, want 1", late)
		}
		close(release)
		y.untilEnded(t, p, 1)
		if late, _ := p.Late(); late != 0 {
			t.Errorf("%d late calls after the end, want 0", late)
		}
	})
}

// Different timeouts: each is answered at its own.
func TestPoolDeadlinesOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := NewPool(HandlerFunc(func(context.Context, *Message) error {
			<-release
			return nil
		}), PoolConfig{Concurrency: 10})
		defer p.Close()
		defer close(release)
		list := some(5, 0)
		for i, d := range []time.Duration{5 * time.Second, time.Second, 0, 3 * time.Second, 2 * time.Second} {
			list[i].Timeout = d
		}
		start := time.Now()
		p.Deliver(list)
		y := newTally()
		for n, h := range []uint64{1, 4, 3, 0} {
			y.until(t, p, n+1)
			want := list[h].Timeout + lateAfter
			if _, ok := y.verdicts[h]; !ok || time.Since(start) != want {
				t.Errorf("handle %d: answered %v at %v, want %v", h, ok, time.Since(start), want)
			}
		}
	})
}

// Late calls leave their places to others, up to the bound.
func TestPoolLateCallsStarveNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var quick atomic.Int64
		p := NewPool(HandlerFunc(func(_ context.Context, m *Message) error {
			if m.Key != nil {
				<-release
			}
			quick.Add(1)
			return nil
		}), PoolConfig{Concurrency: 2, MaxLate: 3})
		defer p.Close()
		stuck := some(5, time.Second)
		for i := range stuck {
			stuck[i].Handle, stuck[i].Message.Key = uint64(100+i), []byte("stuck")
		}
		y := newTally()
		p.Deliver(stuck[:3])
		y.until(t, p, 3)
		p.Deliver(some(4, time.Minute))
		y.until(t, p, 7)
		if late, bound := p.Late(); late != 3 || bound != 3 {
			t.Errorf("late calls %d of %d, want 3 of 3", late, bound)
		}
		// Two more take the two places that are left, and keep them.
		p.Deliver(stuck[3:])
		y.until(t, p, 9)
		last := []Delivery{{Handle: 1000, Message: Message{Topic: "t"}}}
		p.Deliver(last)
		synctest.Wait()
		if quick.Load() != 4 {
			t.Errorf("%d quick calls, want 4: past the bound late calls keep their places", quick.Load())
		}
		close(release)
		y.until(t, p, 10)
		y.untilEnded(t, p, 5)
		synctest.Wait()
		p.mu.Lock()
		workers := len(p.workers)
		p.mu.Unlock()
		if workers > 2 {
			t.Errorf("%d workers are left, want at most 2", workers)
		}
	})
}

// What case 14's handler returns when it is cancelled says nothing.
func TestPoolCancel(t *testing.T) {
	returns := []error{
		errors.New("stopped"), Permanent(errors.New("x")), Transient(errors.New("x")), RetryAfter(errors.New("x"), time.Second),
		Drop("x"), fmt.Errorf("%v", context.Canceled), context.Canceled, nil,
	}
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(HandlerFunc(func(ctx context.Context, m *Message) error {
			<-ctx.Done()
			if ctx.Err() != context.Canceled {
				t.Errorf("cancelled with %v", ctx.Err())
			}
			if m.Offset == int64(len(returns)) {
				panic("cancelled")
			}
			return returns[m.Offset]
		}), PoolConfig{Concurrency: len(returns) + 1})
		defer p.Close()
		list := some(len(returns)+3, time.Minute) // two wait
		p.Deliver(list)
		synctest.Wait()
		p.Cancel([]uint64{uint64(len(returns) + 2), 12345})
		y := newTally()
		y.until(t, p, 1)
		var all []uint64
		for i := range list {
			all = append(all, uint64(i))
		}
		p.Cancel(all)
		y.until(t, p, len(list))
		for i := range list {
			h := uint64(i)
			if h == uint64(len(returns)-1) {
				if !y.acked[h] {
					t.Error("an acknowledgement in time was dropped")
				}
				continue
			}
			if v := y.verdicts[h].Verdict; v.Class != ClassUnspecified || v.Rule != RuleCancelled {
				t.Errorf("handle %d: %+v", h, v)
			}
		}
	})
}

func TestPoolCancelledAndDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := NewPool(HandlerFunc(func(context.Context, *Message) error {
			<-release
			return nil
		}), PoolConfig{})
		defer p.Close()
		p.Deliver(some(1, time.Second))
		synctest.Wait()
		p.Cancel([]uint64{0})
		y := newTally()
		y.until(t, p, 1)
		if a := y.verdicts[0]; !a.Late || a.Verdict.Class != ClassUnspecified || a.Verdict.Rule != RuleCancelled {
			t.Errorf("answer: %+v", a)
		}
		close(release)
		y.untilEnded(t, p, 1)
	})
}

func TestPoolClose(t *testing.T) {
	t.Run("idle", func(t *testing.T) {
		p := NewPool(HandlerFunc(func(context.Context, *Message) error { return nil }), PoolConfig{})
		p.Close()
		p.Close()
		if _, ok := <-p.Answers(); ok {
			t.Error("answers are not closed")
		}
		p.Deliver(some(1, 0))
	})
	t.Run("heeding", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := NewPool(HandlerFunc(func(ctx context.Context, _ *Message) error {
				<-ctx.Done()
				time.Sleep(time.Second) // cleaning up
				return ctx.Err()
			}), PoolConfig{Concurrency: 2})
			p.Deliver(some(4, time.Minute))
			synctest.Wait()
			go p.Close()
			y := newTally()
			for a := range p.Answers() {
				y.add(t, a)
			}
			if len(y.verdicts) != 4 {
				t.Errorf("%d of 4 answered", len(y.verdicts))
			}
		})
	})
	t.Run("nobody reads, one call is deaf", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			p := NewPool(HandlerFunc(func(_ context.Context, m *Message) error {
				if m.Offset == 0 {
					<-release
				}
				return nil
			}), PoolConfig{Concurrency: 2, CloseWait: 3 * time.Second})
			p.Deliver(some(4, time.Minute))
			synctest.Wait()
			start := time.Now()
			p.Close()
			if d := time.Since(start); d != 3*time.Second {
				t.Errorf("Close took %v, want 3s", d)
			}
			if _, ok := <-p.Answers(); ok {
				t.Error("answers are not closed")
			}
			close(release)
		})
	})
}

func TestPoolDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(HandlerFunc(func(_ context.Context, m *Message) error {
			time.Sleep(time.Duration(m.Offset) * time.Second)
			return nil
		}), PoolConfig{Concurrency: 2})
		defer p.Close()
		p.Deliver(some(5, time.Minute))
		p.drain()
		y := newTally()
		for a := range p.Answers() {
			y.add(t, a)
		}
		if len(y.acked) != 5 {
			t.Errorf("%d of 5 answered before the end", len(y.acked))
		}
	})
}
