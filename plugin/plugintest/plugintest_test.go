package plugintest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kconsume/kconsume/plugin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a test that fails, run by try.
type recorder struct {
	failures []string
	fatal    bool
	cleanups []func()
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	r.fatal = true
	runtime.Goexit()
}

// try runs test as go test would.
func try(test func(TB)) *recorder {
	r := &recorder{}
	run := func(f func()) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			f()
		}()
		<-done
	}
	run(func() { test(r) })
	for _, f := range slices.Backward(r.cleanups) {
		run(f)
	}
	return r
}

// says is a handler that does what the value says.
var says = plugin.HandlerFunc(func(ctx context.Context, m *plugin.Message) error {
	switch string(m.Value) {
	case "ack":
		return nil
	case "emit":
		m.Emit(plugin.Record{Topic: "out", Key: []byte("k"), Headers: []plugin.Header{{Key: "h"}}})
		return nil
	case "transient":
		return plugin.RetryAfter(errors.New("busy"), 90*time.Second)
	case "permanent":
		return plugin.Permanent(fmt.Errorf("outer: %w", errors.New("inner\nof two lines")))
	case "drop":
		return plugin.Drop("old")
	case "panic":
		panic("boom")
	case "wait":
		<-ctx.Done()
		return ctx.Err()
	case "deaf":
		time.Sleep(time.Hour)
		return nil
	}
	return errors.New("?")
})

func TestVerdicts(t *testing.T) {
	h := New(t, says)
	h.Deliver(h.Record("ack")).WantAck().WantEmitted()
	h.Deliver(h.Record("emit")).WantAck().WantEmitted(plugin.Record{Topic: "out", Key: []byte("k"), Headers: []plugin.Header{{Key: "h"}}})
	h.Deliver(h.Record("transient")).WantTransient().WantRetryAfter(90 * time.Second).WantRule("explicit").WantError("busy")
	h.Deliver(h.Record("permanent")).WantPermanent().WantError("inner")
	h.Deliver(h.Record("drop")).WantDrop("old")
	h.Deliver(h.Record("panic")).WantPermanent().WantPanic().WantError("boom")
	h.Deliver(h.Record("x")).WantPermanent().WantRule(plugin.RuleUnknown).WantCode("")
}

// Each Want fails on every verdict but its own, and the failure tells all.
func TestWantsCanFail(t *testing.T) {
	wants := []struct {
		name string
		want func(Verdict) Verdict
		met  string // by these
	}{
		{"ack", Verdict.WantAck, "ack emit"},
		{"transient", Verdict.WantTransient, "transient"},
		{"permanent", Verdict.WantPermanent, "permanent panic x"},
		{"drop", func(v Verdict) Verdict { return v.WantDrop("old") }, "drop"},
		{"drop for another reason", func(v Verdict) Verdict { return v.WantDrop("new") }, ""},
		{"poison", Verdict.WantPoison, ""},
		{"panic", Verdict.WantPanic, "panic"},
		{"timeout", Verdict.WantTimeout, ""},
		{"cancelled", Verdict.WantCancelled, ""},
		{"retry after", func(v Verdict) Verdict { return v.WantRetryAfter(90 * time.Second) }, "transient"},
		{"retry after another time", func(v Verdict) Verdict { return v.WantRetryAfter(time.Second) }, ""},
		{"rule", func(v Verdict) Verdict { return v.WantRule("explicit") }, "transient permanent drop"},
		{"code", func(v Verdict) Verdict { return v.WantCode("x") }, ""},
		{"error", func(v Verdict) Verdict { return v.WantError("inner") }, "permanent"},
		{"nothing emitted", func(v Verdict) Verdict { return v.WantEmitted() }, "ack"},
		{"emitted, an empty header for null", func(v Verdict) Verdict {
			return v.WantEmitted(plugin.Record{Topic: "out", Key: []byte("k"), Headers: []plugin.Header{{Key: "h", Value: []byte{}}}})
		}, ""},
		{"emitted, without its header", func(v Verdict) Verdict { return v.WantEmitted(plugin.Record{Topic: "out", Key: []byte("k")}) }, ""},
	}
	for _, w := range wants {
		for _, value := range []string{"ack", "emit", "transient", "permanent", "drop", "panic", "x"} {
			r := try(func(t TB) {
				h := New(t, says)
				w.want(h.Deliver(h.Record(value)))
			})
			if met := slices.Contains(strings.Fields(w.met), value); met != (len(r.failures) == 0) || r.fatal {
				t.Errorf("want %s, got the verdict on %q: failures %q", w.name, value, r.failures)
			}
		}
	}
	r := try(func(t TB) {
		h := New(t, says)
		h.Deliver(h.Record("permanent")).WantAck()
		h.Deliver(h.Record("emit")).WantEmitted()
	})
	for i, want := range []string{
		"verdict on test/0@0\n  want ack\n  got  permanent by rule \"explicit\"\n  message: outer: inner\n    of two lines\n  cause: inner\n    of two lines",
		"verdict on test/0@1\n  want ack, emitted: none\n  got  ack\n  emitted: \n    to out, key \"k\", value null, header \"h\"=null",
	} {
		if i >= len(r.failures) || strings.ReplaceAll(r.failures[i], "emitted: \n        ", "emitted: \n    ") != want {
			t.Errorf("failures:\n%s\nwant:\n%s", strings.Join(r.failures, "\n"), want)
		}
	}
}

// What arrives is what was sent, and a record delivered twice has one id.
func TestRecordsArrive(t *testing.T) {
	var got []plugin.Message
	h := New(t, plugin.HandlerFunc(func(_ context.Context, m *plugin.Message) error {
		got = append(got, *m)
		return nil
	}), WithConfig(plugin.Config{Topics: []string{"orders.confirmed"}}), WithConcurrency(1))
	first, second := h.JSON(map[string]int{"id": 7}), h.Tombstone("k")
	second.Attempt, second.Stage, second.Partition = 2, "retry.5s", 3
	second.Headers = []plugin.Header{{Key: "a", Value: nil}, {Key: "a", Value: []byte{}}}
	for _, v := range h.DeliverAll(first, second, first, plugin.Message{Topic: "bare"}) {
		v.WantAck()
	}
	if m := got[0]; m.Topic != "orders.confirmed" || string(m.Value) != `{"id":7}` || m.Key != nil || m.Attempt != 1 || m.MaxAttempts != 3 || m.Stage != "main" || m.ID != "orders.confirmed/0/0@1767225600000" {
		t.Errorf("first: %+v", m)
	}
	if m := got[1]; m.Value != nil || string(m.Key) != "k" || m.Attempt != 2 || m.Stage != "retry.5s" || m.Offset != 1 || m.Partition != 3 ||
		m.Headers[0].Value != nil || m.Headers[1].Value == nil {
		t.Errorf("second: %+v", m)
	}
	if got[2].ID != got[0].ID {
		t.Errorf("repeated: id %s, want %s", got[2].ID, got[0].ID)
	}
	if m := got[3]; m.Attempt != 1 || m.MaxAttempts != 1 || m.Stage != "main" || m.Time.UnixMilli() != -1 {
		t.Errorf("bare: %+v", m)
	}
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(t, says, WithTimeout(20*time.Minute))
		start := time.Now()
		if v := h.Deliver(h.Record("wait")).WantTimeout(); v.Late || time.Since(start) != 20*time.Minute {
			t.Errorf("%v after %v", v, time.Since(start))
		}
		d := h.Send(h.Record("deaf"))[0]
		if v := d.Verdict().WantTimeout(); !v.Late {
			t.Errorf("deaf: %v", v)
		}
		d.WaitEnded()
		if at := time.Since(start); at != 80*time.Minute {
			t.Errorf("the deaf call ended after %v", at)
		}
	})
}

func TestCancel(t *testing.T) {
	h := New(t, says)
	both := h.Send(h.Record("wait"), h.Record("wait"))
	both[1].Cancel()
	both[1].Verdict().WantCancelled()
	both[0].Cancel()
	both[0].Verdict().WantCancelled()
}

func TestConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		h := New(t, plugin.HandlerFunc(func(context.Context, *plugin.Message) error {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			time.Sleep(time.Second)
			return nil
		}), WithConcurrency(2))
		h.DeliverAll(h.Record(""), h.Record(""), h.Record(""), h.Record(""), h.Record(""))
		if most.Load() != 2 {
			t.Errorf("%d calls at once", most.Load())
		}
	})
}

func TestBatches(t *testing.T) {
	h := New(t, plugin.Batches(plugin.BatchHandlerFunc(func(_ context.Context, b *plugin.Batch) error {
		for i, m := range b.Messages {
			if string(m.Value) == "bad" {
				b.Fail(i, plugin.Drop(fmt.Sprintf("one of %d", len(b.Messages))))
			}
		}
		return nil
	}), plugin.BatchConfig{}))
	v := h.DeliverAll(h.Record("good"), h.Record("bad"), h.Record("good"))
	v[0].WantAck()
	v[1].WantDrop("one of 3")
	v[2].WantAck()
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := 0
		h := New(t, plugin.HandlerFunc(func(ctx context.Context, m *plugin.Message) error {
			select {
			case <-plugin.Draining(ctx):
			case <-time.After(time.Hour):
				t.Error("no drain seen")
			}
			if m.Offset == 1 {
				return context.Canceled
			}
			time.Sleep(time.Second) // finishing
			return nil
		}), WithConfig(plugin.Config{Close: func() { closed++ }}), WithTimeout(2*time.Hour))
		d := h.Send(h.Record(""), h.Record(""))
		synctest.Wait()
		h.Drain()
		d[0].Verdict().WantAck()
		d[1].Verdict().WantCancelled()
		h.Drain() // again is nothing
		if closed != 1 {
			t.Errorf("Close was called %d times", closed)
		}
	})
	r := try(func(t TB) {
		h := New(t, says)
		h.Drain()
		h.Deliver(h.Record("ack"))
	})
	if !r.fatal || len(r.failures) != 1 || !strings.Contains(r.failures[0], "drained") {
		t.Errorf("a delivery after the drain: %q", r.failures)
	}
}

// The end of a test drains what is answered and cuts off what is not.
func TestEnd(t *testing.T) {
	closed := 0
	c := WithConfig(plugin.Config{Close: func() { closed++ }})
	if r := try(func(t TB) {
		h := New(t, says, c)
		h.Deliver(h.Record("ack"))
	}); len(r.failures) != 0 || closed != 1 {
		t.Errorf("answered: closed %d times, failures %q", closed, r.failures)
	}
	if r := try(func(t TB) {
		h := New(t, says, c)
		h.Send(h.Record("wait"))
	}); len(r.failures) != 0 || closed != 1 {
		t.Errorf("unanswered: closed %d times, failures %q", closed, r.failures)
	}
}
