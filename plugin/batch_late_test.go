package plugin

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestBatchDeadline(t *testing.T) {
	t.Run("the least of all, heeded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			list := some(3, time.Minute)
			list[1].Timeout = 2 * time.Second
			list[2].Timeout = 0
			start := time.Now()
			y := gather(t, BatchConfig{}, func(ctx context.Context, b *Batch) error {
				if at, ok := ctx.Deadline(); !ok || at.Sub(start) != 2*time.Second {
					t.Errorf("deadline %v, %v", at.Sub(start), ok)
				}
				<-ctx.Done()
				return fmt.Errorf("insert: %w", ctx.Err())
			}, list)
			for h, a := range y.verdicts {
				if v := a.Verdict; a.Late || v.Class != ClassTransient || v.Reason != ReasonTimeout {
					t.Errorf("handle %d: %+v", h, a)
				}
			}
			if d := time.Since(start); d != 2*time.Second || len(y.verdicts) != 3 {
				t.Errorf("%d answered after %v", len(y.verdicts), d)
			}
		})
	})
	t.Run("a late batch keeps all its keys, and is one late call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			p := NewPool(Batches(BatchHandlerFunc(func(_ context.Context, b *Batch) error {
				<-release
				b.Fail(0, Permanent(errors.New("too late to count")))
				return nil
			}), BatchConfig{}), PoolConfig{Concurrency: 1})
			defer p.Close()
			p.Deliver(some(5, time.Second))
			y := newTally()
			y.until(t, p, 5)
			for h, a := range y.verdicts {
				if !a.Late || a.Verdict.Reason != ReasonTimeout {
					t.Errorf("handle %d: %+v", h, a)
				}
			}
			if late, _ := p.Late(); late != 1 || len(y.ended) != 0 {
				t.Errorf("%d late calls, %d ended", late, len(y.ended))
			}
			close(release)
			y.untilEnded(t, p, 5)
			if late, _ := p.Late(); late != 0 {
				t.Errorf("%d late calls after the end", late)
			}
		})
	})
	t.Run("what is handled again has the rest of its time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			y := gather(t, BatchConfig{}, func(ctx context.Context, b *Batch) error {
				if len(b.Messages) > 1 {
					time.Sleep(7 * time.Second)
					panic("boom")
				}
				if at, _ := ctx.Deadline(); at.Sub(start) != 10*time.Second {
					t.Errorf("alone, the deadline is %v after the start", at.Sub(start))
				}
				if b.Messages[0].Offset == 1 {
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			}, some(3, 10*time.Second))
			// The third one comes when its time is over, and has no use for it.
			if got := fmt.Sprint(sorted(y.acked)); got != "[0 2]" {
				t.Errorf("acknowledged %s", got)
			}
			if v := y.verdicts[1].Verdict; v.Reason != ReasonTimeout || v.Class != ClassTransient {
				t.Errorf("handle 1: %+v", v)
			}
		})
	})
	t.Run("a panic past the deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			y := gather(t, BatchConfig{}, func(ctx context.Context, b *Batch) error {
				calls++
				<-ctx.Done()
				panic(ctx.Err())
			}, some(3, time.Second))
			for h, a := range y.verdicts {
				if a.Verdict.Reason != ReasonTimeout || a.Verdict.Stack == "" {
					t.Errorf("handle %d: %+v", h, a.Verdict)
				}
			}
			if calls != 1 || len(y.verdicts) != 3 {
				t.Errorf("%d calls, %d verdicts", calls, len(y.verdicts))
			}
		})
	})
}

func TestBatchCancel(t *testing.T) {
	for _, c := range []struct {
		name   string
		cancel []uint64
		then   func(context.Context, *Batch) error
		acked  string
		calls  int
	}{
		{"one, acknowledged all the same", []uint64{1}, func(ctx context.Context, _ *Batch) error { return ctx.Err() }, "[0 1 2]", 1},
		{"one, failed with the rest", []uint64{1}, func(context.Context, *Batch) error { return Drop("rest") }, "[]", 1},
		{"one, failed singly", []uint64{1}, func(_ context.Context, b *Batch) error { b.Fail(1, Permanent(errors.New("x"))); return nil }, "[0 2]", 1},
		{"one, unknown error", []uint64{1}, func(_ context.Context, b *Batch) error {
			if len(b.Messages) > 1 {
				return errors.New("x")
			}
			return nil
		}, "[0 2]", 3},
		{"one, panic", []uint64{1}, func(_ context.Context, b *Batch) error {
			if len(b.Messages) > 1 {
				panic("x")
			}
			return nil
		}, "[0 2]", 3},
		{"all", []uint64{2, 0, 1}, func(ctx context.Context, _ *Batch) error {
			<-ctx.Done()
			return ctx.Err()
		}, "[]", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l batchLog
				release := make(chan struct{})
				p := NewPool(Batches(BatchHandlerFunc(func(ctx context.Context, b *Batch) error {
					l.note(b)
					<-release
					if alive := ctx.Err() == nil; alive != (len(c.cancel) < 3) {
						t.Errorf("the context is alive: %v, with %d of 3 cancelled", alive, len(c.cancel))
					}
					return c.then(ctx, b)
				}), BatchConfig{}), PoolConfig{Concurrency: 1})
				defer p.Close()
				p.Deliver(some(3, time.Minute))
				synctest.Wait()
				for _, h := range c.cancel {
					p.Cancel([]uint64{h})
				}
				close(release)
				y := newTally()
				y.until(t, p, 3)
				if got := fmt.Sprint(sorted(y.acked)); got != c.acked {
					t.Errorf("acknowledged %s, want %s", got, c.acked)
				}
				if len(l.calls) != c.calls {
					t.Errorf("calls %v, want %d", l.calls, c.calls)
				}
				for _, h := range c.cancel {
					if v := y.verdicts[h].Verdict; !y.acked[h] && (v.Class != ClassUnspecified || v.Rule != RuleCancelled) {
						t.Errorf("handle %d: %+v", h, v)
					}
				}
			})
		})
	}
}

// Records that wait to be handled again are cancelled like any that wait.
func TestBatchCancelBeforeTheSecondCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := NewPool(Batches(BatchHandlerFunc(func(_ context.Context, b *Batch) error {
			if len(b.Messages) > 1 {
				panic("x")
			}
			<-release
			return nil
		}), BatchConfig{}), PoolConfig{Concurrency: 1})
		defer p.Close()
		p.Deliver(some(3, time.Minute))
		synctest.Wait() // the first one runs alone, two wait
		p.Cancel([]uint64{2})
		y := newTally()
		y.until(t, p, 1)
		close(release)
		y.until(t, p, 3)
		if got := fmt.Sprint(sorted(y.acked)); got != "[0 1]" || y.verdicts[2].Verdict.Rule != RuleCancelled {
			t.Errorf("acknowledged %s, handle 2: %+v", got, y.verdicts[2])
		}
	})
}

func TestBatchClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := NewPool(Batches(BatchHandlerFunc(func(ctx context.Context, b *Batch) error {
			if len(b.Messages) > 1 {
				panic("x")
			}
			<-ctx.Done()
			<-release
			return ctx.Err()
		}), BatchConfig{}), PoolConfig{Concurrency: 2})
		p.Deliver(some(6, time.Minute))
		synctest.Wait() // two run alone, four wait to
		go p.Close()
		synctest.Wait()
		close(release)
		y := newTally()
		for a := range p.Answers() {
			y.add(t, a)
		}
		if len(y.verdicts) != 6 {
			t.Errorf("%d of 6 answered", len(y.verdicts))
		}
	})
}
