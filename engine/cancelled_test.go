package engine_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/plugin"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// sqlError is what a database driver makes of a cancelled query.
type sqlError struct{}

func (sqlError) Error() string    { return "canceling statement due to user request" }
func (sqlError) SQLState() string { return "57014" }

// uponCancel are what handlers return when their context ends, by the record's
// value.
var uponCancel = map[string]func(context.Context) error{
	"foreign":   func(context.Context) error { return errors.New("stopped") },
	"sql":       func(context.Context) error { return sqlError{} },
	"grpc":      func(context.Context) error { return status.Error(codes.Canceled, "stopped") },
	"closed":    func(context.Context) error { return net.ErrClosed },
	"unwrapped": func(ctx context.Context) error { return fmt.Errorf("query: %v", ctx.Err()) },
	"permanent": func(context.Context) error { return plugin.Permanent(errors.New("no such customer")) },
	"throw":     func(context.Context) error { panic("stopped") },
	"nil":       func(context.Context) error { return nil },
}

// waiting holds each call until its context ends.
func waiting(c *calls) plugin.Handler {
	return plugin.HandlerFunc(func(ctx context.Context, m *plugin.Message) error {
		i := c.add(m)
		defer c.end(i)
		<-ctx.Done()
		return uponCancel[string(m.Value)](ctx)
	})
}

// eachKind writes a record for each kind of answer, with keys of their own, one
// to each of n partitions in turn.
func (w *world) eachKind(n int) {
	w.t.Helper()
	for i, value := range sortedKeys(uponCancel) {
		w.produce(&kgo.Record{Topic: "t", Partition: int32(i % n), Key: []byte(value), Value: []byte(value)})
	}
}

func (w *world) nothingForwarded() {
	w.t.Helper()
	for _, topic := range []string{"t.retry.5s", "t.dlq"} {
		for _, r := range w.read(topic) {
			w.t.Errorf("%s has %q, class %s, which we cancelled", topic, r.Value, headersOf(r)["X-Error-Class"])
		}
	}
}

func cancelConfig(w *world, h plugin.Handler) engine.Config {
	cfg := w.config(h)
	cfg.Retry = []time.Duration{5 * time.Second}
	cfg.DrainTimeout = 2 * time.Second
	return cfg
}

// A stop cuts calls off: none of their answers is a verdict, and all come again
// with the same attempt.
func TestStopCutsCallsOff(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		var c, again calls
		w.eachKind(1)
		r := w.start(cancelConfig(w, waiting(&c)))
		time.Sleep(5 * time.Second)
		stopped := time.Now()
		r.end()
		if took := time.Since(stopped); took > 4*time.Second {
			t.Errorf("the stop took %v", took)
		}
		w.nothingForwarded()
		r = w.start(cancelConfig(w, probe(&again)))
		time.Sleep(10 * time.Second)
		r.end()
		w.nothingForwarded()
		for value := range uponCancel {
			got := again.of(value)
			if len(got) == 0 && value == "nil" {
				continue // it was acknowledged in time
			}
			if len(got) != 1 || got[0].msg.Attempt != 1 {
				t.Errorf("%q: %d deliveries after the restart, want one with attempt 1", value, len(got))
			}
		}
		if lag := w.lag("g", "t"); lag != 0 {
			t.Errorf("lag %d", lag)
		}
	})
}

// A second member takes partitions over while calls run: what they return upon
// it is no verdict, and the new owner begins with the same attempt.
func TestJoinCutsCallsOff(t *testing.T) {
	inWorld(t, 8, []string{"t"}, func(w *world) {
		var old, young calls
		w.eachKind(8)
		a := w.start(cancelConfig(w, waiting(&old)))
		time.Sleep(5 * time.Second)
		b := w.start(cancelConfig(w, probe(&young)))
		time.Sleep(10 * time.Second)
		moved := young.all()
		if len(moved) < 3 {
			t.Errorf("%d records were taken over, want about half of 8", len(moved))
		}
		for _, one := range old.all() {
			over := len(young.of(string(one.msg.Value))) > 0
			if ended := !one.release.IsZero(); ended != over {
				t.Errorf("%q: its call at the old owner has ended: %v, the new owner has it: %v", one.msg.Value, ended, over)
			}
		}
		w.nothingForwarded()
		a.end()
		time.Sleep(10 * time.Second)
		b.end()
		w.nothingForwarded()
		for value := range uponCancel {
			for _, one := range young.of(value) {
				if one.msg.Attempt != 1 {
					t.Errorf("%q: attempt %d at the new owner", value, one.msg.Attempt)
				}
			}
			if len(young.of(value)) != 1 && value != "nil" {
				t.Errorf("%q: %d deliveries at the new owner, want 1", value, len(young.of(value)))
			}
		}
		if lag := w.lag("g", "t"); lag != 0 {
			t.Errorf("lag %d", lag)
		}
	})
}

// Past the deadline every error but an explicit one is a timeout.
func TestDeadlineIsATimeout(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		var c calls
		h := waiting(&c)
		w.eachKind(1)
		cfg := cancelConfig(w, plugin.HandlerFunc(func(ctx context.Context, m *plugin.Message) error {
			if m.Attempt > 1 {
				return nil
			}
			return h.Handle(ctx, m)
		}))
		cfg.HandlerTimeout = 2 * time.Second
		r := w.start(cfg)
		time.Sleep(20 * time.Second)
		r.end()
		class := map[string]string{}
		for _, r := range append(w.read("t.retry.5s"), w.read("t.dlq")...) {
			h := headersOf(r)
			class[string(r.Value)] = r.Topic + " " + h["X-Error-Class"] + " " + h["X-Retry-Attempts"]
		}
		for value := range uponCancel {
			got := class[value]
			switch {
			case got == "t.retry.5s timeout 1":
			case value == "nil" && got == "": // done, though late
			case value == "permanent" && got == "t.dlq permanent 1":
			case value == "throw" && got == "t.dlq panic 1":
			default:
				t.Errorf("%q: %q, want a timeout in the tier", value, got)
			}
		}
		if lag := w.lag("g", "t", "t.retry.5s"); lag != 0 {
			t.Errorf("lag %d", lag)
		}
	})
}

// A call that does not heed its context does not hold up a stop, nor the group:
// its record is another member's within seconds.
func TestDeafCallHoldsUpNoStop(t *testing.T) {
	inWorld(t, 2, []string{"t"}, func(w *world) {
		var deaf, next calls
		a := w.start(cancelConfig(w, plugin.HandlerFunc(func(_ context.Context, m *plugin.Message) error {
			deaf.add(m)
			time.Sleep(5 * time.Minute)
			return nil
		})))
		time.Sleep(5 * time.Second)
		b := w.start(cancelConfig(w, probe(&next)))
		time.Sleep(10 * time.Second)
		w.produce(&kgo.Record{Topic: "t", Value: []byte("v")}, &kgo.Record{Topic: "t", Partition: 1, Value: []byte("v")})
		time.Sleep(5 * time.Second)
		if len(deaf.all()) != 1 || len(next.all()) != 1 {
			t.Fatalf("%d and %d deliveries, want one at each member", len(deaf.all()), len(next.all()))
		}
		stopped := time.Now()
		a.end()
		const poolWait = 5 * time.Second // for calls in this process
		if took := time.Since(stopped); took > 4*time.Second+poolWait {
			t.Errorf("the stop took %v, with a drain timeout of 2 s", took)
		}
		time.Sleep(time.Second)
		got := next.all()
		if len(got) != 2 || got[1].msg.Attempt != 1 || got[1].at.Sub(stopped) > 6*time.Second {
			t.Errorf("%d deliveries at the other member, want the second, with attempt 1, within seconds", len(got))
		}
		b.end()
		w.nothingForwarded()
		if lag := w.lag("g", "t"); lag != 0 {
			t.Errorf("lag %d", lag)
		}
		time.Sleep(5 * time.Minute) // the deaf call ends
	})
}
