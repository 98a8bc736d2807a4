package dedupe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/plugintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counting is a handler that counts its calls by record and does what the value
// says.
type counting struct{ calls atomic.Int64 }

func (c *counting) Handle(ctx context.Context, m *plugin.Message) error {
	n := c.calls.Add(1)
	word, _, _ := strings.Cut(string(m.Value), "#")
	switch word {
	case "fails once":
		if n == 1 {
			return plugin.Transient(errors.New("x"))
		}
	case "panics once":
		if n == 1 {
			panic("x")
		}
	case "drop":
		return plugin.Drop("x")
	case "emit":
		m.Emit(plugin.Record{Topic: "out"})
	case "slow":
		time.Sleep(time.Second)
	case "slow, fails once":
		time.Sleep(time.Second)
		if n == 1 {
			return plugin.Transient(errors.New("x"))
		}
	case "deaf":
		time.Sleep(time.Hour)
	}
	return nil
}

func TestHandlerTwice(t *testing.T) {
	for value, want := range map[string]struct {
		first, second plugin.Class
		calls         int64
	}{
		"":            {plugin.ClassAck, plugin.ClassAck, 1},
		"fails once":  {plugin.ClassTransient, plugin.ClassAck, 2},
		"panics once": {plugin.ClassPermanent, plugin.ClassAck, 2},
		"drop":        {plugin.ClassDrop, plugin.ClassDrop, 2},
		"emit":        {plugin.ClassAck, plugin.ClassAck, 2},
	} {
		t.Run(value, func(t *testing.T) {
			c := &counting{}
			h := plugintest.New(t, Handler(NewMemory(MemoryConfig{}), c))
			m := h.Record(value)
			first, second := h.Deliver(m), h.Deliver(m)
			if first.Class != want.first || second.Class != want.second || c.calls.Load() != want.calls {
				t.Errorf("%v, %v after %d calls, want %v", first, second, c.calls.Load(), want)
			}
			if value == "emit" {
				second.WantEmitted(plugin.Record{Topic: "out"})
			}
			before := c.calls.Load()
			h.Deliver(m)
			if again := c.calls.Load() - before; (again == 0) != (second.Class == plugin.ClassAck && value != "emit") {
				t.Errorf("the third delivery made %d calls", again)
			}
		})
	}
}

// Two deliveries of one id at once: one call at a time, the second as the first
// went.
func TestHandlerAtOnce(t *testing.T) {
	for value, want := range map[string]struct {
		lasts time.Duration
		calls int64
		acks  int
	}{
		"slow":             {time.Second, 1, 2},
		"slow, fails once": {2 * time.Second, 2, 1},
	} {
		t.Run(value, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &counting{}
				h := plugintest.New(t, Handler(NewMemory(MemoryConfig{}), c))
				m := h.Record(value)
				start, acks := time.Now(), 0
				for _, v := range h.DeliverAll(m, m) {
					if v.Class == plugin.ClassAck {
						acks++
					}
				}
				if d := time.Since(start); d != want.lasts || c.calls.Load() != want.calls || acks != want.acks {
					t.Errorf("%v, %d calls, %d acknowledged, want %v", d, c.calls.Load(), acks, want)
				}
			})
		})
	}
	t.Run("the first is deaf", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &counting{}
			h := plugintest.New(t, Handler(NewMemory(MemoryConfig{TTL: 2 * time.Hour}), c))
			m := h.Record("deaf")
			d := h.Send(m, m)
			d[0].Verdict().WantTimeout()
			d[1].Verdict().WantTimeout()
			d[0].WaitEnded()
			d[1].WaitEnded()
			h.Deliver(m).WantAck() // the late call was done after all
			if c.calls.Load() != 1 {
				t.Errorf("%d calls, want 1", c.calls.Load())
			}
		})
	})
}

// broken is a store whose database is away.
type broken struct{ begin, end error }

func (b broken) Begin(context.Context, string) (bool, error) { return false, b.begin }

func (b broken) End(ctx context.Context, _ string, done bool) error {
	if ctx.Err() != nil {
		return errors.New("ended with a context that is over")
	}
	return b.end
}

func TestHandlerWithABrokenStore(t *testing.T) {
	c := &counting{}
	h := plugintest.New(t, Handler(broken{begin: errors.New("away")}, c))
	h.Deliver(h.Record("")).WantTransient().WantRule("explicit").WantError("look up record test/0/0@1767225600000: away")
	if c.calls.Load() != 0 {
		t.Error("next was called")
	}
	h = plugintest.New(t, Handler(broken{end: errors.New("away")}, c))
	h.Deliver(h.Record("")).WantAck()
}

func TestMemory(t *testing.T) {
	began := func(t *testing.T, m *Memory, id string, want bool) {
		t.Helper()
		if done, err := m.Begin(t.Context(), id); done != want || err != nil {
			t.Errorf("begin %s: done %v, %v, want %v", id, done, err, want)
		}
	}
	mark := func(t *testing.T, m *Memory, ids ...string) {
		t.Helper()
		for _, id := range ids {
			began(t, m, id, false)
			if err := m.End(t.Context(), id, true); err != nil {
				t.Error(err)
			}
		}
	}
	t.Run("entries, the one not asked for longest goes", func(t *testing.T) {
		m := NewMemory(MemoryConfig{Entries: 3})
		mark(t, m, "a", "b", "c")
		began(t, m, "a", true)
		mark(t, m, "d")
		for id, want := range map[string]bool{"a": true, "c": true, "d": true, "b": false} {
			began(t, m, id, want)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		m := NewMemory(MemoryConfig{Bytes: 3 * (entryBytes + 10)})
		for i := range 100 {
			mark(t, m, fmt.Sprintf("%010d", i))
			if n := len(m.entries); n > 3 || n != m.done.Len() || m.bytes != n*(entryBytes+10) {
				t.Fatalf("after %d: %d entries, %d in the list, %d bytes", i, n, m.done.Len(), m.bytes)
			}
		}
		mark(t, m, strings.Repeat("x", 10_000)) // larger than all
		if len(m.entries) != 0 || m.bytes != 0 {
			t.Errorf("%d entries, %d bytes", len(m.entries), m.bytes)
		}
	})
	t.Run("time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := NewMemory(MemoryConfig{TTL: time.Minute})
			mark(t, m, "a")
			time.Sleep(time.Minute - 1)
			began(t, m, "a", true) // which does not prolong it
			time.Sleep(time.Nanosecond)
			began(t, m, "a", false)
		})
	})
	t.Run("what is under way is never forgotten", func(t *testing.T) {
		m := NewMemory(MemoryConfig{Entries: 1})
		began(t, m, "under way", false)
		mark(t, m, "a", "b", "c")
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("why")
		cancel(why)
		if _, err := m.Begin(ctx, "under way"); !errors.Is(err, why) {
			t.Errorf("begun twice: %v", err)
		}
	})
	t.Run("ends without a beginning", func(t *testing.T) {
		m := NewMemory(MemoryConfig{})
		_ = m.End(t.Context(), "a", true)
		began(t, m, "a", false)
		_ = m.End(t.Context(), "a", true)
		_ = m.End(t.Context(), "a", false)
		began(t, m, "a", true)
	})
}

// once is a database in memory, for what Tx does with one.
type once struct{ seen map[string]bool }

func (o once) Once(_ context.Context, id string, effect func(int) error) error {
	if o.seen[id] {
		return nil
	}
	if err := effect(7); err != nil {
		return fmt.Errorf("tx: %w", err)
	}
	o.seen[id] = true
	return nil
}

func TestTx(t *testing.T) {
	calls := 0
	h := plugintest.New(t, Tx(once{map[string]bool{}}, func(_ context.Context, tx int, m *plugin.Message) error {
		calls++
		switch string(m.Value) {
		case "emit":
			m.Emit(plugin.Record{Topic: "out"})
		case "drop":
			return plugin.Drop("x")
		}
		if tx != 7 {
			t.Errorf("transaction %d", tx)
		}
		return nil
	}), plugintest.WithConcurrency(1))
	m := h.Record("")
	h.Deliver(m).WantAck()
	h.Deliver(m).WantAck()
	h.Deliver(h.Record("drop")).WantDrop("tx: x")
	h.Deliver(h.Record("emit")).WantPermanent().WantError("emit behind it")
	if calls != 3 {
		t.Errorf("%d calls, want 3", calls)
	}
}
