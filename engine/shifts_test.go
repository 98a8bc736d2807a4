package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Partitions change hands while records wait for their time, while forwards are
// tried again, and while a member drains: nothing comes early, nothing is lost,
// and only what was not forwarded yet, on partitions that moved, comes twice.
func TestHandsChangeMeanwhile(t *testing.T) {
	for _, one := range []struct {
		name  string
		twice int // deliveries, at most
		do    func(w *world, first *running, cfg engine.Config) (rest []*running)
	}{
		{"records wait", 0, func(w *world, first *running, cfg engine.Config) []*running {
			time.Sleep(8 * time.Second) // they wait in 20s
			second := w.start(cfg)
			time.Sleep(5 * time.Second)
			first.end()
			return []*running{second}
		}},
		{"forwards are tried again", 40, func(w *world, first *running, cfg engine.Config) []*running {
			time.Sleep(1500 * time.Millisecond)
			fault := w.refuse("t.retry.20s", kerr.NotEnoughReplicas, -1)
			time.Sleep(6 * time.Second)
			second := w.start(cfg)
			time.Sleep(5 * time.Second)
			fault.Remove()
			return []*running{first, second}
		}},
		{"a member drains", 0, func(w *world, first *running, cfg engine.Config) []*running {
			time.Sleep(1200 * time.Millisecond)
			first.stop()
			second := w.start(cfg)
			if err := <-first.done; err != nil {
				w.t.Error(err)
			}
			return []*running{second}
		}},
	} {
		t.Run(one.name, func(t *testing.T) {
			inWorld(t, 4, []string{"t"}, func(w *world) {
				var c calls
				for i := range 80 {
					w.produce(&kgo.Record{Topic: "t", Partition: int32(i % 4), Key: fmt.Append(nil, i), Value: fmt.Appendf(nil, "fail 2 %d", i)})
				}
				cfg := w.tiers(&c, 2*time.Second, 20*time.Second)
				second := cfg
				second.Registerer = prometheus.NewRegistry()
				rest := one.do(w, w.start(cfg), second)
				time.Sleep(90 * time.Second)
				for _, r := range rest {
					r.end()
				}
				w.notEarly(&c, "t.retry.2s", time.Minute)
				w.notEarly(&c, "t.retry.20s", time.Minute)
				seen := map[string]int{}
				for _, one := range c.all() {
					seen[fmt.Sprint(one.msg.ID, " attempt ", one.msg.Attempt)]++
				}
				if len(seen) != 240 {
					t.Errorf("%d deliveries that differ, want 80 × 3", len(seen))
				}
				if twice := len(c.all()) - len(seen); twice > one.twice {
					t.Errorf("%d deliveries were repeated, at most %d may be", twice, one.twice)
				}
				if lag := w.lag("g", "t", "t.retry.2s", "t.retry.20s"); lag != 0 {
					t.Errorf("lag %d", lag)
				}
			})
		})
	}
}

// A member more than there are partitions waits quietly, and takes over within
// seconds when another leaves.
func TestMoreMembersThanPartitions(t *testing.T) {
	inWorld(t, 2, []string{"t"}, func(w *world) {
		var c calls
		var log logbook
		var all []*running
		var cfgs []engine.Config
		for range 3 {
			cfg := w.tiers(&c, time.Second)
			cfg.Logger = log.logger()
			cfgs = append(cfgs, cfg)
			all = append(all, w.start(cfg))
			time.Sleep(10 * time.Second)
		}
		time.Sleep(time.Minute)
		owned := func(r *running) int { return len(statusOf(r).Stages[0].Partitions) }
		if a, b, z := owned(all[0]), owned(all[1]), owned(all[2]); a != 1 || b != 1 || z != 0 {
			t.Fatalf("partitions are owned %d, %d, %d, want 1, 1, 0", a, b, z)
		}
		if s := statusOf(all[2]); s.State != engine.StateRunning {
			t.Errorf("the one without partitions is %s", s.State)
		}
		if n := log.count("given no partition"); n != 1 {
			t.Errorf("%d lines say that a member was given none, want 1", n)
		}
		for _, cfg := range cfgs {
			w.storm(cfg, 4)
		}
		all[0].end()
		time.Sleep(5 * time.Second)
		if owned(all[2]) != 1 {
			t.Errorf("5 s after another left it owns %d partitions", owned(all[2]))
		}
		w.produce(&kgo.Record{Topic: "t", Value: []byte("ok")}, &kgo.Record{Topic: "t", Partition: 1, Value: []byte("ok")})
		time.Sleep(2 * time.Second)
		if n := len(c.all()); n != 2 {
			t.Errorf("%d deliveries, want 2", n)
		}
		all[1].end()
		all[2].end()
	})
}

// Records that members with other clocks wrote to a tier: each comes at its own
// due time, whatever stands before it, and none waits longer than the tier.
func TestDueTimesOfOtherClocks(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		var c calls
		r := w.start(w.tiers(&c, 30*time.Second))
		time.Sleep(5 * time.Second)
		begin := time.Now()
		due := map[string]time.Duration{"ok ahead": 20 * time.Second, "ok right": 5 * time.Second, "ok past": -time.Hour, "ok far": 200 * 365 * 24 * time.Hour}
		for _, value := range []string{"ok far", "ok ahead", "ok right", "ok past"} {
			w.produce(&kgo.Record{Topic: "t.retry.30s", Value: []byte(value), Headers: []kgo.RecordHeader{
				{Key: "X-Retry-Group", Value: []byte("g")}, {Key: "X-Retry-Attempts", Value: []byte("1")},
				{Key: "X-Retry-Due", Value: fmt.Append(nil, begin.Add(due[value]).UnixMilli())},
				{Key: "X-Original-Topic", Value: []byte("t")}, {Key: "X-Original-Partition", Value: []byte("0")}, {Key: "X-Original-Offset", Value: []byte("7")},
			}})
		}
		time.Sleep(40 * time.Second)
		r.end()
		for value, wait := range due {
			wait = max(0, min(wait, 30*time.Second))
			got := c.of(value)
			if len(got) != 1 {
				t.Fatalf("%q: %d deliveries, want 1", value, len(got))
			}
			if late := got[0].at.Sub(begin) - wait; late < 0 || late > time.Second {
				t.Errorf("%q came %v after its due time", value, late)
			}
		}
	})
}
