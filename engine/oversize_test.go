package engine_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

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

// What is too large for its topic: with an outbox its source waits, or becomes a
// dead letter; without one it is lost, and counted.
func TestEmitOversize(t *testing.T) {
	for name, c := range map[string]struct {
		emit     engine.EmitPolicy
		oversize engine.OversizePolicy
		emitted  int // of 3
		dead     int
		lag      int64
		lost     int
	}{
		"outbox, stop":    {engine.EmitOutbox, engine.OversizeStop, 2, 0, 2, 0},
		"outbox, pointer": {engine.EmitOutbox, engine.OversizePointer, 2, 1, 0, 0},
		"buffer":          {engine.EmitBuffer, engine.OversizeStop, 2, 0, 0, 1},
		"drop":            {engine.EmitDrop, engine.OversizePointer, 2, 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, []string{"t"}, func(w *world) {
				w.topic("a", 1, 3000)
				cfg, reg := w.emitConfig(emitting(&calls{}, "a"), map[string]engine.EmitPolicy{"a": c.emit})
				cfg.Oversize = c.oversize
				w.produce(values("t", "ok", noise("ok", 5000), "ok")...)
				r := w.start(cfg)
				time.Sleep(20 * time.Second)
				if n, lag := len(w.read("a")), w.lag("g", "t"); n != c.emitted || lag != c.lag {
					t.Errorf("%d emitted, lag %d; want %d, %d", n, lag, c.emitted, c.lag)
				}
				if n := counted(t, reg, "kconsume_emit_lost_total", map[string]string{"reason": "too_large"}); int(n) != c.lost {
					t.Errorf("%v lost, want %d", n, c.lost)
				}
				dead := w.read("t.dlq")
				if len(dead) != c.dead {
					t.Errorf("%d dead letters, want %d", len(dead), c.dead)
				}
				for _, rec := range dead {
					h := headersOf(rec)
					if string(rec.Value) != noise("ok", 5000) || h["X-Error-Class"] != "oversize" || h["X-Error-Code"] != "emit_too_large" || !strings.Contains(h["X-Error-Message"], "max.message.bytes of a") {
						t.Errorf("the dead letter has headers %v", h)
					}
				}
				w.setting("a", "max.message.bytes", "100000")
				time.Sleep(20 * time.Second)
				r.end()
				if lag := w.lag("g", "t"); lag != 0 {
					t.Errorf("lag %d at the end", lag)
				}
			})
		})
	}
}
