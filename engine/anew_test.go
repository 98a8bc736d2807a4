package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// remake deletes a topic and creates it again, with records of its own.
func (w *world) remake(topic string, partitions int, pause time.Duration, values ...string) {
	w.t.Helper()
	if err := w.cluster.DeleteTopic(topic); err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(pause)
	if err := w.cluster.CreateTopic(topic, int32(partitions), nil); err != nil {
		w.t.Fatal(err)
	}
	w.client.PurgeTopicsFromClient(topic)
	for _, v := range values {
		w.produce(&kgo.Record{Topic: topic, Value: []byte(v)})
	}
}

func numbered(word string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(word, " ", i))
	}
	return out
}

// A main topic is deleted and created again under a running engine: its records
// are read from where --offset-lost says, also where there are more of them than
// were read of its earlier life.
func TestTopicMadeAnewWhileRunning(t *testing.T) {
	for _, made := range []struct {
		name   string
		pause  time.Duration
		fresh  int
		policy engine.OffsetPolicy
	}{
		{"shorter", 0, 5, engine.OffsetEarliest},
		{"longer", 0, 50, engine.OffsetEarliest},
		{"longer, after a while", 40 * time.Second, 50, engine.OffsetEarliest},
		{"longer, latest", 0, 50, engine.OffsetLatest},
		{"longer, fail", 0, 50, engine.OffsetFail},
		{"shorter, fail", 0, 5, engine.OffsetFail},
	} {
		t.Run(made.name, func(t *testing.T) {
			inWorld(t, 1, []string{"t"}, func(w *world) {
				var c calls
				cfg := w.tiers(&c, 5*time.Second)
				cfg.OffsetLost = made.policy
				reg := cfg.Registerer.(*prometheus.Registry)
				w.produce(values("t", numbered("old", 20)...)...)
				r := w.start(cfg)
				time.Sleep(15 * time.Second)
				w.remake("t", 1, made.pause, numbered("new", made.fresh)...)
				time.Sleep(time.Minute)
				if made.policy == engine.OffsetFail {
					if err := <-r.done; engine.ClassOf(err) != engine.ErrOffset || !strings.Contains(err.Error(), "--offset-lost") {
						t.Errorf("got %v, want an error of class offset", err)
					}
					r.stop()
					return
				}
				w.produce(values("t", "last")...)
				time.Sleep(5 * time.Second)
				if n := counted(t, reg, "kconsume_offsets_lost_total", map[string]string{"topic": "t"}); n != 1 {
					t.Errorf("%v offsets are counted as lost, want 1", n)
				}
				r.end()
				for i := range made.fresh {
					n := len(c.of(fmt.Sprint("new ", i)))
					if made.policy == engine.OffsetEarliest && n == 0 {
						t.Errorf("new %d was passed over", i)
					}
				}
				if n := len(c.of("last")); n != 1 {
					t.Errorf("the record after it was delivered %d times", n)
				}
				if lag := w.lag("g", "t"); lag != 0 {
					t.Errorf("lag %d", lag)
				}
			})
		})
	}
}

// A tier is made anew while records wait in it: what others wrote to the new one
// is delivered from its beginning.
func TestTierMadeAnewWhileRunning(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		var c calls
		cfg := w.tiers(&c, 30*time.Second)
		cfg.OffsetLost = engine.OffsetFail // for main topics alone
		w.failing("t", 20, 1)
		r := w.start(cfg)
		time.Sleep(15 * time.Second)
		w.remake("t.retry.30s", 2, 0)
		for i := range 40 {
			w.produce(&kgo.Record{Topic: "t.retry.30s", Partition: int32(i % 2), Value: fmt.Appendf(nil, "waits %d", i), Headers: []kgo.RecordHeader{
				{Key: "X-Retry-Group", Value: []byte("g")}, {Key: "X-Retry-Attempts", Value: []byte("1")},
			}})
		}
		time.Sleep(90 * time.Second)
		r.end()
		for i := range 40 {
			if n := len(c.of(fmt.Sprint("waits ", i))); i%2 == 0 && n != 1 {
				t.Errorf("waits %d was delivered %d times", i, n)
			}
		}
		if n := counted(t, cfg.Registerer.(*prometheus.Registry), "kconsume_offsets_lost_total", map[string]string{"topic": "t.retry.30s"}); n != 1 {
			t.Errorf("%v offsets are counted as lost, want 1", n)
		}
	})
}

// A topic made anew while nobody runs has no committed offset any more. The
// stages beside it have, which tells it from a group's first start.
func TestTopicMadeAnewWhileStopped(t *testing.T) {
	for _, policy := range []engine.OffsetPolicy{engine.OffsetEarliest, engine.OffsetLatest, engine.OffsetFail} {
		t.Run(string(policy), func(t *testing.T) {
			inWorld(t, 1, []string{"t"}, func(w *world) {
				var c calls
				cfg := w.tiers(&c, 5*time.Second)
				cfg.Start = engine.OffsetLatest // for a first start alone
				r := w.start(cfg)
				time.Sleep(5 * time.Second)
				w.produce(values("t", numbered("old", 20)...)...)
				time.Sleep(5 * time.Second)
				r.end()
				w.remake("t", 1, 0, numbered("new", 50)...)
				cfg.OffsetLost = policy
				reg := prometheus.NewRegistry()
				cfg.Registerer = reg
				r = w.start(cfg)
				time.Sleep(10 * time.Second)
				if n := counted(t, reg, "kconsume_offsets_lost_total", map[string]string{"topic": "t"}); n == 0 {
					t.Error("it was not counted")
				}
				if policy == engine.OffsetFail {
					if err := <-r.done; engine.ClassOf(err) != engine.ErrOffset {
						t.Errorf("got %v, want an error of class offset", err)
					}
					r.stop()
					return
				}
				r.end()
				want := 0
				if policy == engine.OffsetEarliest {
					want = 1
				}
				for i := range 50 {
					if n := len(c.of(fmt.Sprint("new ", i))); n != want {
						t.Errorf("new %d was delivered %d times, want %d", i, n, want)
					}
				}
			})
		})
	}
}

// Retention passes a stopped group by: it goes on as --offset-lost says.
func TestRetentionPassesUsBy(t *testing.T) {
	for _, policy := range []engine.OffsetPolicy{engine.OffsetEarliest, engine.OffsetLatest, engine.OffsetFail} {
		t.Run(string(policy), func(t *testing.T) {
			inWorld(t, 1, []string{"t"}, func(w *world) {
				var c calls
				cfg := w.tiers(&c, 5*time.Second)
				cfg.OffsetLost = policy
				w.produce(values("t", numbered("first", 10)...)...)
				r := w.start(cfg)
				time.Sleep(5 * time.Second)
				r.end()
				w.produce(values("t", numbered("gone", 10)...)...)
				w.produce(values("t", numbered("left", 10)...)...)
				if err := w.cluster.DeleteRecords("t", 0, 20); err != nil {
					t.Fatal(err)
				}
				reg := prometheus.NewRegistry()
				cfg.Registerer = reg
				r = w.start(cfg)
				time.Sleep(10 * time.Second)
				if n := counted(t, reg, "kconsume_offsets_lost_total", map[string]string{"topic": "t"}); n != 1 {
					t.Errorf("%v offsets are counted as lost", n)
				}
				if policy == engine.OffsetFail {
					if err := <-r.done; engine.ClassOf(err) != engine.ErrOffset || !strings.Contains(err.Error(), "log start 20, end 30") {
						t.Errorf("got %v, want an error of class offset", err)
					}
					if lag := w.lag("g", "t"); lag != 20 {
						t.Errorf("lag %d, want 20: it committed past what it refused to pass", lag)
					}
					r.stop()
					return
				}
				r.end()
				want := 10
				if policy == engine.OffsetLatest {
					want = 0
				}
				if n := len(c.all()) - 10; n != want {
					t.Errorf("%d deliveries after it, want %d", n, want)
				}
				if lag := w.lag("g", "t"); lag != 0 {
					t.Errorf("lag %d", lag)
				}
			})
		})
	}
}

// The committed offset lies beyond the end, as after a leader that had less was
// elected: it goes on as --offset-lost says, and the commit follows backwards.
func TestCommittedBeyondTheEnd(t *testing.T) {
	for _, policy := range []engine.OffsetPolicy{engine.OffsetEarliest, engine.OffsetLatest, engine.OffsetFail} {
		t.Run(string(policy), func(t *testing.T) {
			inWorld(t, 1, []string{"t"}, func(w *world) {
				var c calls
				cfg := w.tiers(&c, 5*time.Second)
				cfg.OffsetLost = policy
				w.produce(values("t", numbered("there", 10)...)...)
				o := kadm.Offsets{}
				o.AddOffset("t", 0, 100, -1)
				if err := kadm.NewClient(w.client).CommitAllOffsets(w.t.Context(), "g", o); err != nil {
					t.Fatal(err)
				}
				r := w.start(cfg)
				time.Sleep(10 * time.Second)
				if n := counted(t, cfg.Registerer.(*prometheus.Registry), "kconsume_offsets_lost_total", map[string]string{"topic": "t"}); n != 1 {
					t.Errorf("%v offsets are counted as lost", n)
				}
				if policy == engine.OffsetFail {
					if err := <-r.done; engine.ClassOf(err) != engine.ErrOffset || !strings.Contains(err.Error(), "offset 100") {
						t.Errorf("got %v, want an error of class offset", err)
					}
					r.stop()
					return
				}
				w.produce(values("t", "last")...)
				time.Sleep(5 * time.Second)
				r.end()
				want := 11
				if policy == engine.OffsetLatest {
					want = 1
				}
				if n := len(c.all()); n != want {
					t.Errorf("%d deliveries, want %d", n, want)
				}
				if lag := w.lag("g", "t"); lag != 0 {
					t.Errorf("lag %d", lag)
				}
			})
		})
	}
}
