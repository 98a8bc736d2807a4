package plugin

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kconsume/kconsume/plugin/internal/wire"
)

// batchLog notes which offsets came together, in the order of the calls.
type batchLog struct {
	mu    sync.Mutex
	calls [][]int64 // guarded by mu
}

func (l *batchLog) note(b *Batch) []int64 {
	offsets := make([]int64, len(b.Messages))
	for i, m := range b.Messages {
		offsets[i] = m.Offset
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, offsets)
	return offsets
}

// gather runs h on n deliveries that wait when its first call is free, in
// virtual time, and returns the answers.
func gather(t *testing.T, c BatchConfig, h BatchHandlerFunc, list []Delivery) *tally {
	t.Helper()
	p := NewPool(Batches(h, c), PoolConfig{Handler: "b@1", Concurrency: 1})
	defer p.Close()
	p.Deliver(list)
	y := newTally()
	y.until(t, p, len(list))
	return y
}

func TestBatchIsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l batchLog
		p := NewPool(Batches(BatchHandlerFunc(func(_ context.Context, b *Batch) error {
			l.note(b)
			time.Sleep(time.Second)
			return nil
		}), BatchConfig{Max: 4}), PoolConfig{Concurrency: 1})
		defer p.Close()
		list := some(11, time.Minute)
		p.Deliver(list[:1])
		synctest.Wait() // it is not kept waiting for company
		p.Deliver(list[1:4])
		p.Deliver(list[4:9])
		time.Sleep(2500 * time.Millisecond) // during the third call
		p.Deliver(list[9:])
		y := newTally()
		y.until(t, p, len(list))
		if got, want := fmt.Sprint(l.calls), "[[0] [1 2 3 4] [5 6 7 8] [9 10]]"; got != want {
			t.Errorf("batches %s, want %s", got, want)
		}
		if len(y.acked) != len(list) {
			t.Errorf("%d acknowledged", len(y.acked))
		}
	})
}

func TestBatchConcurrencyOfItsOwn(t *testing.T) {
	for _, c := range []struct{ own, host, want int }{{0, 3, 3}, {2, 3, 2}, {5, 3, 3}} {
		synctest.Test(t, func(t *testing.T) {
			var l batchLog
			release := make(chan struct{})
			p := NewPool(Batches(BatchHandlerFunc(func(_ context.Context, b *Batch) error {
				l.note(b)
				<-release
				return nil
			}), BatchConfig{Max: 1, Concurrency: c.own}), PoolConfig{Concurrency: c.host})
			defer p.Close()
			p.Deliver(some(10, 0))
			synctest.Wait()
			if len(l.calls) != c.want {
				t.Errorf("%d batches at once with %d of its own and %d of the host's, want %d", len(l.calls), c.own, c.host, c.want)
			}
			close(release)
			newTally().until(t, p, 10)
		})
	}
}

// Each record has the verdict of its own, whatever the handler did to the list.
func TestBatchFail(t *testing.T) {
	var l batchLog
	y := gather(t, BatchConfig{}, func(_ context.Context, b *Batch) error {
		l.note(b)
		var each sync.WaitGroup
		for i := range b.Messages {
			each.Go(func() {
				switch b.Messages[i].Offset {
				case 1:
					b.Fail(i, Permanent(errors.New("one")))
				case 2:
					b.Fail(i, errors.New("replaced"))
					b.Fail(i, RetryAfter(errors.New("two"), time.Minute))
				case 3:
					b.Fail(i, &pgconn.PgError{Code: "23505"})
				case 4:
					b.Fail(i, Drop("four"))
				case 5:
					b.Fail(i, nil)
				case 6:
					b.Messages[i].Emit(Record{Topic: "out"})
				case 7:
					b.Messages[i].Emit(Record{Topic: "out"})
					b.Fail(i, Transient(errors.New("seven")))
				}
			})
		}
		each.Wait()
		slices.Reverse(b.Messages)
		b.Fail(1, Permanent(errors.New("the last but one")))
		b.Messages = b.Messages[:3]
		return nil
	}, some(10, time.Minute))
	if len(l.calls) != 1 || len(l.calls[0]) != 10 {
		t.Errorf("calls %v", l.calls)
	}
	if got := fmt.Sprint(sorted(y.acked)); got != "[0 5 9]" {
		t.Errorf("acknowledged %s", got)
	}
	for h, want := range map[uint64]Verdict{
		1: {Class: ClassPermanent, Reason: ReasonPermanent, Rule: "explicit", Message: "one"},
		2: {Class: ClassTransient, Reason: ReasonTransient, Rule: "explicit", Message: "two", RetryAfter: time.Minute},
		3: {Class: ClassPermanent, Reason: ReasonPermanent, Rule: "sqlstate", Code: "23505"},
		4: {Class: ClassDrop, Rule: "explicit", Message: "four"},
		6: {Class: ClassAck},
		7: {Class: ClassTransient, Reason: ReasonTransient, Rule: "explicit", Message: "seven"},
		8: {Class: ClassPermanent, Reason: ReasonPermanent, Rule: "explicit", Message: "the last but one"},
	} {
		v := y.verdicts[h].Verdict
		if v.Class != want.Class || v.Reason != want.Reason || v.Rule != want.Rule || v.Code != want.Code || v.RetryAfter != want.RetryAfter ||
			want.Message != "" && v.Message != want.Message || (len(v.Emitted) == 1) != (h == 6) {
			t.Errorf("handle %d: %+v", h, v)
		}
	}
}

func sorted(set map[uint64]bool) []uint64 {
	var list []uint64
	for h := range set {
		list = append(list, h)
	}
	slices.Sort(list)
	return list
}

// What a batch returns is for the rest; only where that would be dead letters,
// and nobody said so on purpose, does each record speak for itself.
func TestBatchReturns(t *testing.T) {
	guilty := func(o int64) bool { return o == 3 }
	for _, c := range []struct {
		name  string
		err   error
		calls int // 1: no record is handled again
		class Class
		rule  string
	}{
		{"explicit permanent", Permanent(errors.New("all")), 1, ClassPermanent, "explicit"},
		{"explicit drop", Drop("all"), 1, ClassDrop, "explicit"},
		{"explicit transient", Transient(errors.New("all")), 1, ClassTransient, "explicit"},
		{"transient by type", &pgconn.PgError{Code: "40001"}, 1, ClassTransient, "sqlstate"},
		{"permanent by type", &pgconn.PgError{Code: "23505"}, 10, ClassPermanent, "sqlstate"},
		{"poison", decodeError(new(int), "{"), 10, ClassPermanent, "json"},
		{"unknown", errors.New("?"), 10, ClassPermanent, RuleUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l batchLog
			y := gather(t, BatchConfig{}, func(_ context.Context, b *Batch) error {
				offsets := l.note(b)
				for i, o := range offsets {
					b.Messages[i].Emit(Record{Topic: "out"})
					if o == 7 {
						b.Fail(i, Drop("seven"))
					}
				}
				if slices.ContainsFunc(offsets, guilty) {
					return c.err
				}
				return nil
			}, some(10, time.Minute))
			// The whole, and, if at all, all but the one that was failed singly.
			if len(l.calls) != c.calls || len(l.calls[0]) != 10 || slices.ContainsFunc(l.calls[1:], func(o []int64) bool { return len(o) != 1 || o[0] == 7 }) {
				t.Errorf("calls %v, want %d, those behind the first alone", l.calls, c.calls)
			}
			for h := range uint64(10) {
				v := y.verdicts[h].Verdict
				switch {
				case h == 7:
					if v.Class != ClassDrop || v.Message != "seven" {
						t.Errorf("handle 7: %+v", v)
					}
				case c.calls == 1 || guilty(int64(h)):
					if v.Class != c.class || v.Rule != c.rule {
						t.Errorf("handle %d: %+v", h, v)
					}
				case v.Class != ClassAck || len(v.Emitted) != 1:
					t.Errorf("handle %d, innocent: %+v", h, v)
				}
			}
		})
	}
}

func TestBatchPanics(t *testing.T) {
	for name, blow := range map[string]func() error{
		"panic":                 func() error { panic("boom") },
		"end of the goroutine":  func() error { runtime.Goexit(); return nil },
		"an error that panics":  func() error { var e *brokenError; return e },
		"an index out of range": func() error { (&Batch{}).Fail(1, nil); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			var l batchLog
			y := gather(t, BatchConfig{}, func(_ context.Context, b *Batch) error {
				offsets := l.note(b)
				b.Fail(0, nil)
				b.Messages[0].Emit(Record{Topic: "out"})
				if slices.Contains(offsets, 3) {
					return blow()
				}
				return nil
			}, some(6, time.Minute))
			if len(l.calls) != 7 {
				t.Errorf("calls %v, want the whole and each alone", l.calls)
			}
			for h := range uint64(6) {
				v := y.verdicts[h].Verdict
				if h == 3 {
					if v.Class != ClassPermanent || v.Reason != ReasonPanic || !strings.Contains(v.Stack, "plugin.(*Pool).callBatch") {
						t.Errorf("the guilty one: %+v", v)
					}
				} else if v.Class != ClassAck || len(v.Emitted) != 1 {
					t.Errorf("handle %d, innocent: %+v", h, v)
				}
			}
		})
	}
}

// The last of several attempts is made alone, whatever waits beside it.
func TestBatchLastAttemptIsAlone(t *testing.T) {
	list := some(7, time.Minute)
	for i, a := range []struct{ n, most int }{{1, 1}, {1, 3}, {3, 3}, {2, 3}, {1, 3}, {4, 3}, {1, 0}} {
		list[i].Message.Attempt, list[i].Message.MaxAttempts = a.n, a.most
	}
	var l batchLog
	gather(t, BatchConfig{}, func(_ context.Context, b *Batch) error { l.note(b); return nil }, list)
	if got, want := fmt.Sprint(l.calls), "[[0 1] [2] [3 4] [5] [6]]"; got != want {
		t.Errorf("batches %s, want %s", got, want)
	}
}

// What a handler says of a record after it has returned is too late.
func TestBatchFailAfterTheEnd(t *testing.T) {
	b := &Batch{Messages: []*Message{{}, {}}}
	b.Fail(0, errBench)
	failed := b.end()
	b.Fail(0, errors.New("too late"))
	b.Fail(1, errors.New("too late"))
	if len(failed) != 1 || failed[b.Messages[0]] != errBench {
		t.Errorf("failed: %v", failed)
	}
}

// A wrapper hides what the pool looks for, and still works.
func TestBatchWrapped(t *testing.T) {
	h := Batches(BatchHandlerFunc(func(_ context.Context, b *Batch) error {
		if m := b.Messages[0]; len(b.Messages) == 1 && m.Offset == 0 {
			b.Fail(0, Drop("single"))
		}
		return Transient(errors.New("rest"))
	}), BatchConfig{})
	for offset, class := range map[int64]Class{0: ClassDrop, 1: ClassTransient} {
		if v := Classify(h.Handle(t.Context(), &Message{Offset: offset}), Circumstances{}); v.Class != class {
			t.Errorf("offset %d: %+v", offset, v)
		}
	}
}

func TestBatchOnTheWire(t *testing.T) {
	h := Batches(BatchHandlerFunc(func(_ context.Context, b *Batch) error {
		for i, m := range b.Messages {
			if m.Offset%2 == 1 {
				b.Fail(i, Permanent(fmt.Errorf("odd among %d", len(b.Messages))))
			}
		}
		return nil
	}), BatchConfig{Max: 50})
	p := dial(t, Config{Name: "bulk"}, h, 1)
	if !slices.Equal(p.hello.Capabilities, []string{"batch"}) {
		t.Errorf("capabilities %q", p.hello.Capabilities)
	}
	f := &wire.HostFrame{}
	for i := range 100 {
		f.Records = append(f.Records, wire.Record{Handle: uint64(i), Topic: "t", Offset: int64(i)})
	}
	p.send(t, f)
	for h, v := range p.verdicts(t, 50) {
		if h%2 != 1 || v.Message != "odd among 50" {
			t.Errorf("handle %d: %+v", h, v)
		}
	}
}
