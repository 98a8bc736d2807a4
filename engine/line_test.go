package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/plugin"
	"github.com/twmb/franz-go/pkg/kgo"
)

var errGateway = errors.New("gateway is down")

// probe does what a record's value says, and notes its calls.
func probe(c *calls) plugin.Handler {
	return plugin.HandlerFunc(func(_ context.Context, m *plugin.Message) error {
		i := c.add(m)
		defer c.end(i)
		var n int
		switch v, _, _ := strings.Cut(string(m.Value), "\n"); {
		case v == "perm":
			return plugin.Permanent(errors.New("no such customer"))
		case v == "drop":
			return plugin.Drop("not for us")
		case v == "panic":
			panic("boom")
		case scan(v, "fail %d", &n) && m.Attempt <= n:
			return plugin.Transient(errGateway)
		case scan(v, "sleep %d", &n):
			time.Sleep(time.Duration(n) * time.Millisecond)
		}
		return nil
	})
}

// probeSaying fails every record for good, with a text.
func probeSaying(text string) plugin.Handler {
	return plugin.HandlerFunc(func(context.Context, *plugin.Message) error { return plugin.Permanent(errors.New(text)) })
}

func scan(s, format string, n *int) bool {
	got, err := fmt.Sscanf(s, format, n)
	return err == nil && got == 1
}

func values(topic string, vs ...string) (out []*kgo.Record) {
	for _, v := range vs {
		out = append(out, &kgo.Record{Topic: topic, Value: []byte(v)})
	}
	return out
}

func TestWholeWay(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		var c calls
		w.produce(values("t", "ok", "fail 1", "fail 9", "perm", "drop", "panic")...)
		r := w.start(w.config(probe(&c)))
		time.Sleep(50 * time.Second)
		r.end()

		for value, gaps := range map[string][]time.Duration{
			"ok": nil, "perm": nil, "drop": nil, "panic": nil,
			"fail 1": {5 * time.Second},
			"fail 9": {5 * time.Second, 30 * time.Second},
		} {
			got := c.of(value)
			if len(got) != len(gaps)+1 {
				t.Errorf("%q was delivered %d times, want %d", value, len(got), len(gaps)+1)
				continue
			}
			for i, gap := range gaps {
				late := got[i+1].at.Sub(got[i].at) - gap
				if late < 0 || late > 100*time.Millisecond {
					t.Errorf("%q: delivery %d came %v after its due time", value, i+2, late)
				}
				if got[i+1].msg.Attempt != i+2 || got[i+1].msg.MaxAttempts != 3 {
					t.Errorf("%q: delivery %d says attempt %d of %d", value, i+2, got[i+1].msg.Attempt, got[i+1].msg.MaxAttempts)
				}
				if got[i+1].msg.ID != got[0].msg.ID || got[i+1].msg.Topic != "t" || got[i+1].msg.Offset != got[0].msg.Offset {
					t.Errorf("%q: delivery %d is of %s (%s/%d), the first of %s", value, i+2, got[i+1].msg.ID, got[i+1].msg.Topic, got[i+1].msg.Offset, got[0].msg.ID)
				}
			}
		}

		dead := map[string]map[string]string{}
		for _, r := range w.read("t.dlq") {
			dead[string(r.Value)] = headersOf(r)
		}
		for value, class := range map[string]string{"fail 9": "transient", "perm": "permanent", "panic": "panic"} {
			h := dead[value]
			if h == nil || h["X-Error-Class"] != class || h["X-Retry-Group"] != "g" || h["X-Original-Topic"] != "t" {
				t.Errorf("dead letter %q: headers %v, want class %s", value, h, class)
			}
		}
		if len(dead) != 3 {
			t.Errorf("the DLQ has %v, want 3 records", sortedKeys(dead))
		}
		if h := dead["fail 9"]; h["X-Retry-Attempts"] != "3" || h["X-Error-Message"] != errGateway.Error() || h["X-Retry-Due"] != "" {
			t.Errorf("dead letter's headers: %v", h)
		}
		if lag := w.lag("g", "t", "t.retry.5s", "t.retry.30s"); lag != 0 {
			t.Errorf("lag %d after a clean stop", lag)
		}
	})
}

func TestNullAndEmptySurviveTheWholeWay(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		var seen []plugin.Message
		h := plugin.HandlerFunc(func(_ context.Context, m *plugin.Message) error {
			seen = append(seen, *m)
			return plugin.Transient(errGateway)
		})
		own := []kgo.RecordHeader{{Key: "a", Value: nil}, {Key: "a", Value: []byte{}}, {Key: "x\xff\xfe", Value: []byte{0, 255}}}
		w.produce(
			&kgo.Record{Topic: "t", Key: nil, Value: nil, Headers: own},
			&kgo.Record{Topic: "t", Key: []byte{}, Value: []byte{}},
			&kgo.Record{Topic: "t", Key: []byte{0xff, 0xfe}, Value: []byte("v")},
		)
		c := w.config(h)
		c.Concurrency = 1
		c.Retry = []time.Duration{time.Second}
		r := w.start(c)
		time.Sleep(10 * time.Second)
		r.end()
		if len(seen) != 6 {
			t.Fatalf("%d deliveries, want 6", len(seen))
		}
		dead := w.read("t.dlq")
		for i, want := range [][2][]byte{{nil, nil}, {{}, {}}, {{0xff, 0xfe}, []byte("v")}} {
			for _, m := range []plugin.Message{seen[i], seen[i+3]} {
				if !same(m.Key, want[0]) || !same(m.Value, want[1]) {
					t.Errorf("record %d, attempt %d: key %v value %v, want %v", i, m.Attempt, m.Key, m.Value, want)
				}
			}
			if !same(dead[i].Key, want[0]) || !same(dead[i].Value, want[1]) {
				t.Errorf("dead letter %d: key %v value %v, want %v", i, dead[i].Key, dead[i].Value, want)
			}
		}
		for _, m := range []plugin.Message{seen[0], seen[3]} {
			if len(m.Headers) != 3 {
				t.Fatalf("attempt %d shows headers %v", m.Attempt, m.Headers)
			}
		}
		for i, h := range own {
			if got := dead[0].Headers[i]; got.Key != h.Key || !same(got.Value, h.Value) {
				t.Errorf("dead letter's header %d: %q=%v, want %q=%v", i, got.Key, got.Value, h.Key, h.Value)
			}
		}
	})
}

// same compares bytes and tells null from empty.
func same(a, b []byte) bool { return string(a) == string(b) && (a == nil) == (b == nil) }

func TestCleanStopRepeatsNothing(t *testing.T) {
	inWorld(t, 3, []string{"t"}, func(w *world) {
		var c calls
		const n = 600
		for i := range n {
			v := fmt.Sprintf("sleep %d", 10+i%40)
			if i%50 == 7 {
				v = "fail 1"
			}
			w.produce(&kgo.Record{Topic: "t", Partition: int32(i % 3), Key: fmt.Appendf(nil, "k%d", i%20), Value: []byte(v)})
		}
		for stops := 0; ; stops++ {
			r := w.start(w.config(probe(&c)))
			time.Sleep(700 * time.Millisecond)
			r.end()
			if w.lag("g", "t", "t.retry.5s", "t.retry.30s") == 0 {
				if stops < 2 {
					t.Fatalf("only %d stops were in the middle of work", stops)
				}
				break
			}
		}
		seen := map[string]int{}
		for _, one := range c.all() {
			seen[fmt.Sprint(one.msg.ID, " attempt ", one.msg.Attempt)]++
		}
		for id, k := range seen {
			if k != 1 {
				t.Errorf("%s was delivered %d times", id, k)
			}
		}
		if len(seen) != n+n/50 {
			t.Errorf("%d deliveries, want %d", len(seen), n+n/50)
		}
	})
}

func TestOneKeyAtATime(t *testing.T) {
	for _, order := range []engine.Order{engine.OrderKey, engine.OrderPartition, engine.OrderNone} {
		t.Run(string(order), func(t *testing.T) {
			inWorld(t, 1, []string{"t"}, func(w *world) {
				var c calls
				for i := range 240 {
					key := []byte(nil)
					switch i % 12 {
					case 3:
						key = []byte{}
					case 7:
						key = []byte("a")
					}
					w.produce(&kgo.Record{Topic: "t", Key: key, Value: []byte("sleep 100")})
				}
				cfg := w.config(probe(&c))
				cfg.Order = order
				begin := time.Now()
				r := w.start(cfg)
				for len(c.all()) < 240 {
					time.Sleep(100 * time.Millisecond)
				}
				time.Sleep(200 * time.Millisecond)
				took := time.Since(begin)
				r.end()
				last := map[string]call{}
				most := 0
				all := c.all()
				for _, one := range all {
					k := "partition"
					if order != engine.OrderPartition {
						k = fmt.Sprintf("%#v", one.msg.Key)
					}
					if before, ok := last[k]; ok && order != engine.OrderNone && (order == engine.OrderPartition || one.msg.Key != nil) {
						if one.at.Before(before.release) || one.msg.Offset < before.msg.Offset {
							t.Fatalf("key %s: offset %d began before offset %d had ended", k, one.msg.Offset, before.msg.Offset)
						}
					}
					last[k] = one
					n := 0
					for _, other := range all {
						if !other.at.After(one.at) && other.release.After(one.at) {
							n++
						}
					}
					most = max(most, n)
				}
				switch order {
				case engine.OrderPartition:
					if most != 1 {
						t.Errorf("%d calls at once in one partition", most)
					}
				default:
					if took > 6*time.Second || most < 10 {
						t.Errorf("took %v with at most %d calls at once: null keys went one after another", took, most)
					}
				}
			})
		})
	}
}

func TestTwoGroupsShareTheTiers(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		var a, b calls
		w.produce(values("t", "fail 1", "fail 9")...)
		ca, cb := w.config(probe(&a)), w.config(plugin.HandlerFunc(func(_ context.Context, m *plugin.Message) error {
			b.add(m)
			return nil
		}))
		cb.Group = "h"
		ra, rb := w.start(ca), w.start(cb)
		time.Sleep(50 * time.Second)
		ra.end()
		rb.end()
		if n := len(a.all()); n != 5 {
			t.Errorf("the group that failed had %d deliveries, want 5", n)
		}
		if n := len(b.all()); n != 2 {
			t.Errorf("the other group had %d deliveries, want 2: it handled a retry that is not its own", n)
		}
		if lag := w.lag("h", "t.retry.5s", "t.retry.30s"); lag != 0 {
			t.Errorf("the other group has a lag of %d on the tiers", lag)
		}
	})
}

func TestRetryAfterInDueOrder(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		var c calls
		h := plugin.HandlerFunc(func(_ context.Context, m *plugin.Message) error {
			c.add(m)
			if m.Attempt > 1 {
				return nil
			}
			wait := map[string]time.Duration{"A": 25 * time.Second, "B": 8 * time.Second}[string(m.Value)]
			return plugin.RetryAfter(errGateway, wait)
		})
		w.produce(values("t", "A", "B")...)
		cfg := w.config(h)
		cfg.Concurrency = 1
		r := w.start(cfg)
		time.Sleep(12 * time.Second)
		r.end() // B is settled behind A, which still waits: A is written again
		if len(c.of("B")) != 2 {
			t.Fatalf("B came %d times within 12 s: it waited behind A", len(c.of("B")))
		}
		r = w.start(cfg)
		time.Sleep(30 * time.Second)
		r.end()
		for v, wait := range map[string]time.Duration{"A": 25 * time.Second, "B": 8 * time.Second} {
			got := c.of(v)
			if len(got) != 2 || got[1].at.Sub(got[0].at) < wait {
				t.Errorf("%s: %d deliveries, the second after %v, want 2 and %v", v, len(got), got[len(got)-1].at.Sub(got[0].at), wait)
			}
		}
		if n := len(w.read("t.retry.30s")); n != 3 {
			t.Errorf("the tier has %d records, want A, B, and A again", n)
		}
	})
}
