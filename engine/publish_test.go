package engine_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
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

// noise is a value that no compression makes smaller, with a word in front.
func noise(word string, n int) string {
	rnd := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(33 + rnd.IntN(94))
	}
	return word + "\n" + string(b)
}

// setting changes a topic's setting.
func (w *world) setting(topic, name, value string) {
	w.t.Helper()
	_, err := kadm.NewClient(w.client).AlterTopicConfigs(w.t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, topic)
	if err != nil {
		w.t.Fatal(err)
	}
}

// topic makes a topic that takes records of at most so many bytes.
func (w *world) topic(name string, partitions int32, most int) {
	w.t.Helper()
	limit := fmt.Sprint(most)
	if err := w.cluster.CreateTopic(name, partitions, map[string]string{"max.message.bytes": limit}); err != nil {
		w.t.Fatal(err)
	}
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

// Of a batch only the record that is too large is held up, in its partition:
// others go on, and so does it when the topic takes it.
func TestOversizeStops(t *testing.T) {
	inWorld(t, 2, []string{"t"}, func(w *world) {
		w.topic("t.retry.5s", 2, 3000)
		var c calls
		for i := range 20 {
			v := "fail 1"
			if i == 7 {
				v = noise("fail 1", 5000)
			}
			w.produce(&kgo.Record{Topic: "t", Partition: 0, Value: []byte(v)})
			w.produce(&kgo.Record{Topic: "t", Partition: 1, Value: []byte("fail 1")})
		}
		cfg := w.config(probe(&c))
		cfg.Retry = []time.Duration{5 * time.Second}
		reg := prometheus.NewRegistry()
		cfg.Registerer = reg
		r := w.start(cfg)
		time.Sleep(20 * time.Second)
		if n := len(w.read("t.retry.5s")); n != 39 {
			t.Errorf("%d records in the tier, want all but one of 40", n)
		}
		if lag := w.lag("g", "t"); lag != 13 {
			t.Errorf("lag %d, want 13: the commit waits for the large one", lag)
		}
		s := statusOf(r)
		p := s.Stages[0].Partitions
		if !strings.Contains(p[0].Problem, "max.message.bytes of t.retry.5s") || p[1].Problem != "" || !strings.Contains(s.Problem, "max.message.bytes of t.retry.5s") {
			t.Errorf("status says %q, partitions %q and %q", s.Problem, p[0].Problem, p[1].Problem)
		}
		// Its partition waits, the other one does not.
		w.produce(&kgo.Record{Topic: "t", Partition: 0, Value: []byte("ok 0")}, &kgo.Record{Topic: "t", Partition: 1, Value: []byte("ok 1")})
		time.Sleep(5 * time.Second)
		if len(c.of("ok 0")) != 0 || len(c.of("ok 1")) != 1 {
			t.Errorf("handled behind the large record: %d, in another partition: %d", len(c.of("ok 0")), len(c.of("ok 1")))
		}
		w.setting("t.retry.5s", "max.message.bytes", "100000")
		time.Sleep(15 * time.Second)
		s = statusOf(r)
		if s.Problem != "" || s.Stages[0].Partitions[0].Problem != "" || len(s.Writes) != 0 {
			t.Errorf("status still says %q, %+v", s.Problem, s.Writes)
		}
		r.end()
		if n := len(c.of(noise("fail 1", 5000))); n != 2 {
			t.Errorf("the large record was delivered %d times, want 2", n)
		}
		if len(c.of("ok 0")) != 1 {
			t.Error("its partition did not go on")
		}
		if lag := w.lag("g", "t", "t.retry.5s"); lag != 0 {
			t.Errorf("lag %d at the end", lag)
		}
		if n := len(w.read("t.retry.5s")); n != 40 {
			t.Errorf("%d records in the tier, want 40", n)
		}
	})
}

// A stop does not wait for what is too large.
func TestOversizeDoesNotHoldUpAStop(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		w.topic("t.dlq", 1, 3000)
		w.produce(values("t", noise("perm", 5000))...)
		r := w.start(w.config(probe(&calls{})))
		time.Sleep(10 * time.Second)
		begin := time.Now()
		r.end()
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("the stop took %v", took)
		}
		if lag := w.lag("g", "t"); lag != 1 {
			t.Errorf("lag %d, want 1", lag)
		}
	})
}

func TestOversizePointer(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		w.topic("t.retry.5s", 1, 3000)
		w.topic("t.dlq", 1, 3000)
		large, dead := noise("fail 1", 5000), noise("perm", 5000)
		w.produce(values("t", "fail 1", "ok")...)
		w.produce(&kgo.Record{Topic: "t", Key: []byte("k"), Value: []byte(large), Headers: []kgo.RecordHeader{{Key: "own", Value: []byte("1")}}})
		w.produce(values("t", dead, "perm", "fail 1")...)
		var c calls
		cfg := w.config(probe(&c))
		cfg.Oversize = engine.OversizePointer
		reg := prometheus.NewRegistry()
		cfg.Registerer = reg
		r := w.start(cfg)
		time.Sleep(20 * time.Second)
		r.end()
		got := w.read("t.dlq")
		byOffset := map[string]*kgo.Record{}
		for _, rec := range got {
			byOffset[headersOf(rec)["X-Original-Offset"]] = rec
		}
		if len(got) != 3 || len(byOffset) != 3 {
			t.Fatalf("%d dead letters, want 3", len(got))
		}
		for offset, key := range map[string][]byte{"2": []byte("k"), "3": nil} {
			rec := byOffset[offset]
			h := headersOf(rec)
			if h["X-Error-Class"] != "oversize" || h["X-Original-Topic"] != "t" || h["X-Original-Partition"] != "0" || h["X-Retry-Group"] != "g" || h["X-Retry-Attempts"] != "1" {
				t.Errorf("the pointer to offset %s has headers %v", offset, h)
			}
			if !same(rec.Key, key) || !same(rec.Value, []byte{}) || h["own"] != "" {
				t.Errorf("the pointer to offset %s: key %q, value %v, headers %v", offset, rec.Key, rec.Value, h)
			}
			if m := h["X-Error-Message"]; !strings.Contains(m, "t/0 at offset "+offset) || !strings.Contains(m, "too large for t.") {
				t.Errorf("the pointer to offset %s says %q", offset, m)
			}
		}
		if h := headersOf(byOffset["4"]); h["X-Error-Class"] != "permanent" || string(byOffset["4"].Value) != "perm" {
			t.Errorf("its neighbour in the DLQ: %v", h)
		}
		if n := len(c.of("fail 1")); n != 4 {
			t.Errorf("its neighbours in the tier were delivered %d times, want 4", n)
		}
		if lag := w.lag("g", "t", "t.retry.5s"); lag != 0 {
			t.Errorf("lag %d", lag)
		}
		if n := counted(t, reg, "kafka_dlq_messages_total", map[string]string{"topic": "t.dlq"}); n != 3 {
			t.Errorf("%v dead letters counted", n)
		}
	})
}

// Where only our diagnostics make a record too large it goes without them.
func TestOversizeByOurOwnHeaders(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		w.topic("t.dlq", 1, 3400)
		word := "perm"
		w.produce(values("t", noise(word, 2400))...)
		h := probeSaying(noise("", 1000))
		r := w.start(w.config(h))
		time.Sleep(10 * time.Second)
		r.end()
		got := w.read("t.dlq")
		if len(got) != 1 || string(got[0].Value) != noise(word, 2400) {
			t.Fatalf("%d dead letters", len(got))
		}
		if h := headersOf(got[0]); h["X-Error-Message"] != "" || h["X-Error-Class"] != "permanent" || h["X-Original-Offset"] != "0" {
			t.Errorf("headers %v", h)
		}
	})
}
