package engine_test

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// refuse has writes to a topic answered with an error until it is removed.
func (w *world) refuse(topic string, err *kerr.Error, count int, partitions ...int32) *kfake.FaultHandle {
	return w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Partitions: partitions, Err: err, Count: count})
}

// counted is the sum of a metric's series that have the labels.
func counted(t *testing.T, r *prometheus.Registry, name string, labels map[string]string) (sum float64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			has := map[string]string{}
			for _, l := range m.GetLabel() {
				if _, asked := labels[l.GetName()]; asked {
					has[l.GetName()] = l.GetValue()
				}
			}
			if maps.Equal(has, labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func statusOf(r *running) engine.Status {
	r.w.t.Helper()
	s, err := r.engine.Status(r.w.t.Context())
	if err != nil {
		r.w.t.Fatal(err)
	}
	return s
}

// Each record that the broker acknowledged is written once, whatever happens to
// those beside it: the partitions of the DLQ fail each in its own way.
func TestOnlyFailedPositionsAreWrittenAgain(t *testing.T) {
	inWorld(t, 4, []string{"t"}, func(w *world) {
		const n = 400
		for i := range n {
			w.produce(&kgo.Record{Topic: "t", Partition: int32(i % 4), Key: fmt.Append(nil, i), Value: []byte("perm")})
		}
		w.refuse("t.dlq", kerr.NotEnoughReplicas, 3, 0)
		w.refuse("t.dlq", kerr.NotLeaderForPartition, 4, 1)
		denied := w.refuse("t.dlq", kerr.TopicAuthorizationFailed, -1, 2)
		c := w.config(probe(&calls{}))
		reg := prometheus.NewRegistry()
		c.Registerer, c.WriteAttempts = reg, 2
		r := w.start(c)
		time.Sleep(20 * time.Second)
		if got := len(w.read("t.dlq")); got != n*3/4 {
			t.Errorf("%d records in the DLQ while one partition is forbidden, want %d", got, n*3/4)
		}
		if lag := w.lag("g", "t"); lag != n/4 {
			t.Errorf("lag %d, want %d", lag, n/4)
		}
		s := statusOf(r)
		if len(s.Writes) != 1 || s.Writes[0] != (engine.WriteStatus{Topic: "t.dlq", Partition: 2, Waiting: n / 4, Kind: "configuration", Reason: "denied"}) {
			t.Errorf("status says %+v", s.Writes)
		}
		denied.Remove()
		time.Sleep(10 * time.Second)
		if s := statusOf(r); len(s.Writes) != 0 || s.Problem != "" {
			t.Errorf("status still says %+v, %q", s.Writes, s.Problem)
		}
		r.end()
		seen := map[string]int{}
		for _, rec := range w.read("t.dlq") {
			seen[headersOf(rec)["X-Record-Id"]]++
		}
		for id, k := range seen {
			if k != 1 {
				t.Errorf("%s was written %d times", id, k)
			}
		}
		if len(seen) != n {
			t.Errorf("%d records in the DLQ, want %d", len(seen), n)
		}
		for _, want := range []map[string]string{
			{"topic": "t.dlq", "kind": "cluster", "reason": "replicas"},
			{"topic": "t.dlq", "kind": "temporary", "reason": "leader"},
			{"topic": "t.dlq", "kind": "configuration", "reason": "denied"},
		} {
			if counted(t, reg, "kconsume_forward_failures_total", want) == 0 {
				t.Errorf("no failure is counted as %v", want)
			}
		}
	})
}

// The client's own policy: so many attempts, and waits between them that grow
// from the least to the longest. What it did is in the metrics.
func TestWritePolicy(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		w.produce(values("t", "perm")...)
		var mu sync.Mutex
		var at []time.Time
		w.cluster.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Topic: "t.dlq", Err: kerr.NotEnoughReplicas, Count: 6,
			When: func(kmsg.Request) bool {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Now())
				return true
			},
		})
		c := w.config(probe(&calls{}))
		reg := prometheus.NewRegistry()
		c.Registerer, c.WriteAttempts, c.WriteBackoffMin, c.WriteBackoffMax = reg, 4, 400*time.Millisecond, 3*time.Second
		r := w.start(c)
		time.Sleep(30 * time.Second)
		r.end()
		// 4 attempts, a wait of the engine's own, 2 more; the 7th is not refused.
		want := []time.Duration{400 * time.Millisecond, 1600 * time.Millisecond, 3 * time.Second, 250 * time.Millisecond, 400 * time.Millisecond}
		if len(at) != len(want)+1 {
			t.Fatalf("%d refused writes, want %d", len(at), len(want)+1)
		}
		for i, gap := range want {
			if late := at[i+1].Sub(at[i]) - gap; late < 0 || late > 50*time.Millisecond {
				t.Errorf("attempt %d came after %v, want %v", i+2, at[i+1].Sub(at[i]), gap)
			}
		}
		if n := counted(t, reg, "kconsume_writer_retries_total", map[string]string{"topic": "t.dlq"}); n != 5 {
			t.Errorf("%v retries counted, want 5", n)
		}
		if n := counted(t, reg, "kconsume_writer_errors_total", map[string]string{"topic": "t.dlq"}); n != 6 {
			t.Errorf("%v errors counted, want 6", n)
		}
		if n := len(w.read("t.dlq")); n != 1 {
			t.Errorf("%d records in the DLQ", n)
		}
	})
}

// A write of unknown outcome is written again under the same id: one duplicate,
// which says that it is one. So is one whose answer never comes.
func TestUnknownOutcomeKeepsItsID(t *testing.T) {
	for name, lose := range map[string]func(*world) func() bool{
		"written, and refused": func(w *world) func() bool {
			h := w.refuse("t.dlq", kerr.NotEnoughReplicasAfterAppend, 1)
			return func() bool { return h.Hits() == 1 }
		},
		"no answer": func(w *world) func() bool {
			var lost atomic.Bool
			w.cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
				p := req.(*kmsg.ProduceRequest)
				if lost.Load() || len(p.Topics) == 0 || p.Topics[0].Topic != "t.dlq" {
					w.cluster.KeepControl()
					return nil, nil, false
				}
				lost.Store(true)
				return nil, nil, true
			})
			return lost.Load
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, []string{"t"}, func(w *world) {
				w.produce(values("t", "perm")...)
				happened := lose(w)
				c := w.config(probe(&calls{}))
				c.WriteAttempts, c.WriteTimeout = 1, 2*time.Second
				r := w.start(c)
				time.Sleep(20 * time.Second)
				r.end()
				if !happened() {
					t.Fatal("no outcome was unknown")
				}
				ids := map[string]bool{}
				got := w.read("t.dlq")
				for _, rec := range got {
					ids[headersOf(rec)["X-Record-Id"]] = true
				}
				if len(got) < 1 || len(got) > 2 || len(ids) != 1 {
					t.Errorf("%d records with %d ids", len(got), len(ids))
				}
				if lag := w.lag("g", "t"); lag != 0 {
					t.Errorf("lag %d", lag)
				}
			})
		})
	}
}

// At a stop a write under way is waited for and committed, and the producers are
// closed after it; where it never ends the stop is bounded all the same.
func TestStopClosesTheProducersLast(t *testing.T) {
	for name, answers := range map[string]bool{"it ends": true, "it never ends": false} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, []string{"t"}, func(w *world) {
				w.produce(values("t", "ok", "perm")...)
				var block atomic.Bool
				block.Store(true)
				w.cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
					w.cluster.KeepControl()
					p := req.(*kmsg.ProduceRequest)
					return nil, nil, block.Load() && len(p.Topics) > 0 && p.Topics[0].Topic == "t.dlq"
				})
				c := w.config(probe(&calls{}))
				reg := prometheus.NewRegistry()
				c.Registerer = reg
				c.DrainTimeout, c.HandlerTimeout, c.WriteTimeout = 10*time.Second, 5*time.Second, 3*time.Second
				r := w.start(c)
				time.Sleep(5 * time.Second)
				begin := time.Now()
				r.stop()
				time.Sleep(time.Second)
				block.Store(!answers)
				if err := <-r.done; err != nil {
					t.Fatal(err)
				}
				took := time.Since(begin)
				want := int64(0)
				if !answers {
					want = 1
				}
				if lag := w.lag("g", "t"); lag != want {
					t.Errorf("lag %d after the stop, want %d", lag, want)
				}
				if got := len(w.read("t.dlq")); int64(got) != 1-want {
					t.Errorf("%d records in the DLQ", got)
				}
				if most := c.DrainTimeout + 10*time.Second; took > most {
					t.Errorf("the stop took %v, at most %v was allowed", took, most)
				}
				if n := counted(t, reg, "kconsume_forward_failures_total", map[string]string{"reason": "closed"}); n != 0 {
					t.Errorf("%v writes came after the close", n)
				}
				block.Store(false)
				time.Sleep(time.Minute) // the client tries on by itself
			})
		})
	}
}
