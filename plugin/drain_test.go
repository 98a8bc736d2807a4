package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A drain tells calls under way, in contexts made from theirs too, and those that
// begin afterwards; a handler that stops early hands its record back.
func TestDraining(t *testing.T) {
	for name, make := range map[string]func(HandlerFunc) Handler{
		"single": func(f HandlerFunc) Handler { return f },
		"batch": func(f HandlerFunc) Handler {
			return Batches(BatchHandlerFunc(func(ctx context.Context, b *Batch) error { return f(ctx, b.Messages[0]) }), BatchConfig{Max: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := NewPool(make(func(ctx context.Context, m *Message) error {
					below, cancel := context.WithTimeout(ctx, time.Hour)
					defer cancel()
					select {
					case <-below.Done():
						t.Error("no drain seen")
					case <-Draining(below):
					}
					switch m.Offset {
					case 0:
						return fmt.Errorf("stopped: %w", context.Canceled)
					case 1:
						return Permanent(context.Canceled)
					case 2:
						return nil
					}
					return errors.New("x")
				}), PoolConfig{Concurrency: 3})
				defer p.Close()
				p.Deliver(some(4, time.Minute)) // one begins after the drain
				synctest.Wait()
				p.drain()
				y := newTally()
				for a := range p.Answers() {
					y.add(t, a)
				}
				if v := y.verdicts[0].Verdict; v.Class != ClassUnspecified || v.Rule != RuleCancelled {
					t.Errorf("handed back: %+v", v)
				}
				if v := y.verdicts[1].Verdict; v.Class != ClassPermanent {
					t.Errorf("explicit: %+v", v)
				}
				if v := y.verdicts[3].Verdict; v.Rule != RuleUnknown || !y.acked[2] {
					t.Errorf("others: %+v, acknowledged %v", v, y.acked)
				}
			})
		})
	}
	if Draining(t.Context()) != nil {
		t.Error("a channel out of nothing")
	}
}

func TestGoodbye(t *testing.T) {
	stderr := os.Stderr
	defer func() { os.Stderr = stderr }()
	for name, c := range map[string]struct {
		close  func(release chan struct{}) func()
		lasts  time.Duration
		stderr string
	}{
		"none":  {func(chan struct{}) func() { return nil }, 0, ""},
		"quick": {func(chan struct{}) func() { return func() { time.Sleep(time.Second) } }, time.Second, ""},
		"panic": {func(chan struct{}) func() { return func() { panic("boom") } }, 0, "panic: boom"},
		"stuck": {func(release chan struct{}) func() { return func() { <-release } }, 3 * time.Second, "not back after 3s"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Create(t.TempDir() + "/stderr")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			os.Stderr = f
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				defer close(release)
				start := time.Now()
				goodbye(Config{Name: "orders", Close: c.close(release)}, closeBound)
				if d := time.Since(start); d != c.lasts {
					t.Errorf("took %v, want %v", d, c.lasts)
				}
			})
			text, err := os.ReadFile(f.Name())
			if err != nil || !strings.Contains(string(text), c.stderr) || c.stderr == "" && len(text) > 0 {
				t.Errorf("stderr %q, %v, want %q", text, err, c.stderr)
			}
		})
	}
}
