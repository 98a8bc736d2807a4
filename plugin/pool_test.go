package plugin

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// tally gathers a pool's answers and checks that each delivery has one.
type tally struct {
	acked    map[uint64]bool
	verdicts map[uint64]Answer
	ended    map[uint64]bool
	batches  int
}

func newTally() *tally {
	return &tally{acked: map[uint64]bool{}, verdicts: map[uint64]Answer{}, ended: map[uint64]bool{}}
}

func (y *tally) add(t *testing.T, a Answers) {
	t.Helper()
	y.batches++
	for _, h := range a.Acked {
		y.once(t, h)
		y.acked[h] = true
	}
	for _, v := range a.Verdicts {
		y.once(t, v.Handle)
		y.verdicts[v.Handle] = v
	}
	for _, h := range a.Ended {
		if !y.verdicts[h].Late || y.ended[h] {
			t.Errorf("handle %d ended without a late answer, or twice", h)
		}
		y.ended[h] = true
	}
}

func (y *tally) once(t *testing.T, h uint64) {
	t.Helper()
	if _, ok := y.verdicts[h]; ok || y.acked[h] {
		t.Errorf("handle %d answered twice", h)
	}
}

func (y *tally) answered() int { return len(y.acked) + len(y.verdicts) }

// until reads answers until n deliveries have one.
func (y *tally) until(t *testing.T, p *Pool, n int) {
	t.Helper()
	for y.answered() < n {
		a, ok := <-p.Answers()
		if !ok {
			t.Fatalf("answers closed after %d of %d", y.answered(), n)
		}
		y.add(t, a)
	}
}

// untilEnded reads answers until n late calls have ended.
func (y *tally) untilEnded(t *testing.T, p *Pool, n int) {
	t.Helper()
	for len(y.ended) < n {
		a, ok := <-p.Answers()
		if !ok {
			t.Fatalf("answers closed after %d of %d ends", len(y.ended), n)
		}
		y.add(t, a)
	}
}

func some(n int, timeout time.Duration) []Delivery {
	list := make([]Delivery, n)
	for i := range list {
		list[i] = Delivery{Handle: uint64(i), Timeout: timeout, Message: Message{Topic: "t", Offset: int64(i), Time: time.UnixMilli(5), Attempt: 1}}
	}
	return list
}

func TestPoolAnswersEachDeliveryOnce(t *testing.T) {
	const batches, each = 50, 40
	h := HandlerFunc(func(_ context.Context, m *Message) error {
		switch m.Offset % 4 {
		case 0:
			return Permanent(errors.New("no"))
		case 1:
			runtime.Gosched()
		case 2:
			m.Emit(Record{Topic: "out"})
		}
		return nil
	})
	p := NewPool(h, PoolConfig{Handler: "orders@1", Concurrency: 8})
	defer p.Close()
	var senders sync.WaitGroup
	for b := range batches {
		senders.Go(func() {
			list := some(each, time.Minute)
			for i := range list {
				list[i].Handle += uint64(b * each)
			}
			p.Deliver(list)
		})
	}
	y := newTally()
	y.until(t, p, batches*each)
	senders.Wait()
	for h, a := range y.verdicts {
		switch want := h % each % 4; {
		case want == 0 && a.Verdict.Class == ClassPermanent:
		case want == 2 && a.Verdict.Class == ClassAck && len(a.Verdict.Emitted) == 1:
		default:
			t.Errorf("handle %d: %+v", h, a.Verdict)
		}
	}
	if len(y.acked) != batches*each/2 {
		t.Errorf("%d acknowledged, want %d", len(y.acked), batches*each/2)
	}
}

func TestPoolFillsIDs(t *testing.T) {
	ids := make(chan string, 3)
	p := NewPool(HandlerFunc(func(_ context.Context, m *Message) error {
		ids <- m.ID
		return nil
	}), PoolConfig{Concurrency: 1})
	defer p.Close()
	p.Deliver([]Delivery{
		{Handle: 1, Message: Message{Topic: "a", Partition: 1, Offset: 2, Time: time.UnixMilli(3)}},
		{Handle: 2, Message: Message{ID: "given", Topic: "a"}},
		{Handle: 3, Message: Message{Topic: "b\xff", Offset: math.MaxInt64, Time: time.UnixMilli(-1)}},
	})
	newTally().until(t, p, 3)
	close(ids)
	got := slices.Collect(func(yield func(string) bool) {
		for id := range ids {
			if !yield(id) {
				return
			}
		}
	})
	want := []string{"a/1/2@3", "given", "b\xff/0/9223372036854775807@-1"}
	if !slices.Equal(got, want) {
		t.Errorf("ids %q, want %q", got, want)
	}
}

func TestPoolBoundsConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		p := NewPool(HandlerFunc(func(context.Context, *Message) error {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			return nil
		}), PoolConfig{Concurrency: 5})
		defer p.Close()
		start := time.Now()
		p.Deliver(some(20, 0))
		newTally().until(t, p, 20)
		if most.Load() != 5 {
			t.Errorf("%d calls at once, want 5", most.Load())
		}
		if d := time.Since(start); d != 4*time.Second {
			t.Errorf("20 calls of a second by fives took %v", d)
		}
	})
}

// A slow record must not hold up the answers of others.
func TestPoolAnswersAsTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(HandlerFunc(func(_ context.Context, m *Message) error {
			if m.Offset == 0 {
				time.Sleep(time.Hour)
			}
			return nil
		}), PoolConfig{Concurrency: 2})
		defer p.Close()
		start := time.Now()
		p.Deliver(some(10, 0))
		y := newTally()
		y.until(t, p, 9)
		if y.acked[0] || time.Since(start) != 0 {
			t.Errorf("nine quick records took %v; slow one acked: %v", time.Since(start), y.acked[0])
		}
		y.until(t, p, 10)
	})
}

func TestPoolContainsPanics(t *testing.T) {
	p := NewPool(HandlerFunc(func(_ context.Context, m *Message) error {
		switch m.Offset {
		case 0:
			panic("boom")
		case 1:
			runtime.Goexit()
		case 2:
			var e *brokenError
			return e
		case 3:
			panic((*brokenError)(nil))
		}
		return nil
	}), PoolConfig{Concurrency: 1})
	defer p.Close()
	p.Deliver(some(6, time.Minute))
	y := newTally()
	y.until(t, p, 6)
	for h, text := range map[uint64]string{0: "panic: boom", 1: "ended its goroutine", 2: "nil pointer", 3: "panic: "} {
		v := y.verdicts[h].Verdict
		if v.Class != ClassPermanent || v.Reason != ReasonPanic || v.Rule != rulePanic || !strings.Contains(v.Message, text) {
			t.Errorf("handle %d: %+v", h, v)
		}
		if !strings.Contains(v.Stack, "plugin.(*Pool).call") {
			t.Errorf("handle %d: stack %q", h, v.Stack)
		}
	}
	if !y.acked[4] || !y.acked[5] {
		t.Error("the pool did not go on after a panic")
	}
}

// brokenError is what a handler returns that returns a nil pointer as an error.
type brokenError struct{ text string }

func (e *brokenError) Error() string { return e.text }
