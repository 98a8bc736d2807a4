package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/plugin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// emitting emits one record to each of the topics, with the source's key and
// value, and then does what the source's value says.
func emitting(c *calls, topics ...string) plugin.Handler {
	act := probe(c)
	return plugin.HandlerFunc(func(ctx context.Context, m *plugin.Message) error {
		for _, topic := range topics {
			m.Emit(plugin.Record{Topic: topic, Key: m.Key, Value: m.Value, Headers: []plugin.Header{{Key: "of", Value: []byte(m.ID)}}})
		}
		return act.Handle(ctx, m)
	})
}

func (w *world) emitConfig(h plugin.Handler, emit map[string]engine.EmitPolicy) (engine.Config, *prometheus.Registry) {
	c := w.config(h)
	reg := prometheus.NewRegistry()
	c.Emit, c.Registerer = emit, reg
	return c, reg
}

func emitIDs(rs []*kgo.Record) (ids []string) {
	for _, r := range rs {
		ids = append(ids, headersOf(r)["X-Emit-Id"])
	}
	return ids
}

// Records are emitted by deliveries that are acknowledged, and by no others;
// each goes to its key's partition, once, with its own name.
func TestEmit(t *testing.T) {
	inWorld(t, 2, []string{"t"}, func(w *world) {
		for _, topic := range []string{"a", "b"} {
			w.topic(topic, 5, 100000)
		}
		var c calls
		cfg, reg := w.emitConfig(emitting(&c, "a", "b", "a"), map[string]engine.EmitPolicy{"a": engine.EmitOutbox, "b": engine.EmitBuffer})
		words := []string{"ok", "perm", "fail 1", "drop", "panic", "fail 9"}
		for i := range 60 {
			w.produce(&kgo.Record{Topic: "t", Partition: int32(i % 2), Key: fmt.Appendf(nil, "k%d", i), Value: []byte(words[i%len(words)])})
		}
		r := w.start(cfg)
		time.Sleep(50 * time.Second)
		r.end()
		if lag := w.lag("g", "t", "t.retry.5s", "t.retry.30s"); lag != 0 {
			t.Errorf("lag %d", lag)
		}
		a, b := w.read("a"), w.read("b")
		if len(a) != 40 || len(b) != 20 {
			t.Fatalf("%d and %d records, want 40 and 20: two and one for each that is done", len(a), len(b))
		}
		java := kgo.StickyKeyPartitioner(nil).ForTopic("")
		byID := map[string]bool{}
		for _, rec := range slices.Concat(a, b) {
			h := headersOf(rec)
			if word := string(rec.Value); word != "ok" && word != "fail 1" {
				t.Errorf("%q emitted a record", word)
			}
			if byID[h["X-Emit-Id"]] {
				t.Errorf("two records are named %s", h["X-Emit-Id"])
			}
			byID[h["X-Emit-Id"]] = true
			number := map[string][]string{"a": {"#0", "#2"}, "b": {"#1"}}[rec.Topic]
			if of, n, _ := strings.Cut(h["X-Emit-Id"], "#"); of != h["of"] || !slices.Contains(number, "#"+n) || len(h) != 2 {
				t.Errorf("a record of %s in %s has headers %v", h["of"], rec.Topic, h)
			}
			if want := java.Partition(rec, 5); int(rec.Partition) != want {
				t.Errorf("key %s is in partition %d, Java's producer has it in %d", rec.Key, rec.Partition, want)
			}
		}
		if n := counted(t, reg, "kconsume_emitted_total", map[string]string{"topic": "a"}); n != 40 {
			t.Errorf("%v counted", n)
		}
	})
}

func TestEmitWithoutAKeyFollowsTheSource(t *testing.T) {
	inWorld(t, 3, []string{"t"}, func(w *world) {
		w.topic("a", 2, 100000)
		cfg, _ := w.emitConfig(emitting(&calls{}, "a"), map[string]engine.EmitPolicy{"a": engine.EmitOutbox})
		for p := range int32(3) {
			w.produce(&kgo.Record{Topic: "t", Partition: p, Value: []byte("ok")})
		}
		r := w.start(cfg)
		time.Sleep(10 * time.Second)
		r.end()
		got := w.read("a")
		var parts []int32
		for _, rec := range got {
			parts = append(parts, rec.Partition)
			if rec.Key != nil {
				t.Errorf("the key is %q, not null", rec.Key)
			}
		}
		if !slices.Equal(parts, []int32{0, 0, 1}) {
			t.Errorf("in partitions %v", parts)
		}
	})
}

// A topic that is not allowed is a permanent error that says what to do, and
// nothing of that delivery is sent.
func TestEmitToATopicThatIsNotAllowed(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		for _, topic := range []string{"a", "b"} {
			w.topic(topic, 1, 100000)
		}
		cfg, _ := w.emitConfig(emitting(&calls{}, "a", "b"), map[string]engine.EmitPolicy{"a": engine.EmitBuffer})
		cfg.UnknownTransient = true
		w.produce(values("t", "ok")...)
		r := w.start(cfg)
		time.Sleep(10 * time.Second)
		r.end()
		dead := w.read("t.dlq")
		if len(dead) != 1 {
			t.Fatalf("%d dead letters", len(dead))
		}
		if h := headersOf(dead[0]); h["X-Error-Class"] != "permanent" || h["X-Error-Code"] != "emit_not_allowed" || !strings.Contains(h["X-Error-Message"], "--emit b=outbox") {
			t.Errorf("headers %v", h)
		}
		if n := len(w.read("a")) + len(w.read("b")); n != 0 {
			t.Errorf("%d records were sent", n)
		}
	})
}

// With an outbox nothing is committed before the broker has what was emitted.
func TestEmitOutbox(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		w.topic("a", 3, 100000)
		cfg, _ := w.emitConfig(emitting(&calls{}, "a"), map[string]engine.EmitPolicy{"a": engine.EmitOutbox})
		refused := w.refuse("a", kerr.NotEnoughReplicas, -1)
		var acked int
		cfg.Observer = func(e engine.Event) {
			if e.Kind == engine.EventAcked {
				acked++
			}
		}
		cfg.WriteAttempts = 2
		for i := range 30 {
			w.produce(&kgo.Record{Topic: "t", Key: fmt.Append(nil, i), Value: []byte("ok")})
		}
		r := w.start(cfg)
		time.Sleep(20 * time.Second)
		if lag := w.lag("g", "t"); lag != 30 {
			t.Errorf("lag %d while nothing can be emitted, want 30", lag)
		}
		s := statusOf(r)
		if len(s.Writes) != 3 || s.Writes[0].Kind != "cluster" || !strings.Contains(s.Problem, "write to a") || s.Buffered == 0 {
			t.Errorf("status says %+v, %q, %d bytes", s.Writes, s.Problem, s.Buffered)
		}
		refused.Remove()
		time.Sleep(10 * time.Second)
		s = statusOf(r)
		r.end()
		if lag := w.lag("g", "t"); lag != 0 || acked != 30 || s.Buffered != 0 {
			t.Errorf("lag %d, %d acked, %d bytes held", lag, acked, s.Buffered)
		}
		ids := emitIDs(w.read("a"))
		if len(ids) != 30 || len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 30 {
			t.Errorf("%d records were emitted", len(ids))
		}
	})
}

// What was not acknowledged is emitted again by the next owner, under its name.
func TestEmitOutboxSurvivesAStopCutShort(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		w.topic("a", 2, 100000)
		cfg, _ := w.emitConfig(emitting(&calls{}, "a"), map[string]engine.EmitPolicy{"a": engine.EmitOutbox})
		cfg.DrainTimeout, cfg.HandlerTimeout = 2*time.Second, time.Second
		refused := w.refuse("a", kerr.NotEnoughReplicas, -1, 1)
		for i := range 20 {
			w.produce(&kgo.Record{Topic: "t", Key: fmt.Append(nil, i), Value: []byte("ok")})
		}
		r := w.start(cfg)
		time.Sleep(10 * time.Second)
		r.end()
		before := w.read("a")
		if len(before) == 0 || len(before) == 20 {
			t.Fatalf("%d of 20 were emitted before", len(before))
		}
		refused.Remove()
		cfg.Registerer = nil
		r = w.start(cfg)
		time.Sleep(10 * time.Second)
		r.end()
		ids := map[string]bool{}
		for _, id := range emitIDs(w.read("a")) {
			ids[id] = true
		}
		if lag := w.lag("g", "t"); len(ids) != 20 || lag != 0 {
			t.Errorf("%d names, lag %d", len(ids), lag)
		}
	})
}

// A delivery whose answer does not count emits nothing.
func TestEmitOfACancelledDelivery(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		w.topic("a", 1, 100000)
		h := plugin.HandlerFunc(func(ctx context.Context, m *plugin.Message) error {
			m.Emit(plugin.Record{Topic: "a"})
			<-ctx.Done()
			return errors.New("stopped")
		})
		cfg, _ := w.emitConfig(h, map[string]engine.EmitPolicy{"a": engine.EmitDrop})
		cfg.DrainTimeout, cfg.HandlerTimeout = time.Second, 20*time.Second
		w.produce(values("t", "x")...)
		r := w.start(cfg)
		time.Sleep(5 * time.Second)
		r.end()
		if n := len(w.read("a")); n != 0 {
			t.Errorf("%d records of a cancelled delivery", n)
		}
	})
}

// An outbox that cannot be emptied bounds what is handled, and holds up its own
// partition only.
func TestEmitOutboxIsBounded(t *testing.T) {
	inWorld(t, 2, []string{"t"}, func(w *world) {
		w.topic("a", 1, 100000)
		var c calls
		act := probe(&c)
		h := plugin.HandlerFunc(func(ctx context.Context, m *plugin.Message) error {
			if m.Partition == 0 {
				m.Emit(plugin.Record{Topic: "a", Value: make([]byte, 50_000)})
			}
			return act.Handle(ctx, m)
		})
		cfg, _ := w.emitConfig(h, map[string]engine.EmitPolicy{"a": engine.EmitOutbox})
		cfg.MaxBuffer, cfg.Concurrency = 4<<20, 4
		refused := w.refuse("a", kerr.NotEnoughReplicas, -1)
		for range 40 {
			var rs []*kgo.Record
			for i := range 50 {
				rs = append(rs, &kgo.Record{Topic: "t", Partition: int32(i % 2), Value: []byte("ok")})
			}
			w.produce(rs...)
		}
		r := w.start(cfg)
		time.Sleep(20 * time.Second)
		held := statusOf(r).Buffered
		if held > cfg.MaxBuffer {
			t.Errorf("%d bytes are held, at most %d are allowed", held, cfg.MaxBuffer)
		}
		handled := [2]int{}
		for _, one := range c.all() {
			handled[one.msg.Partition]++
		}
		if handled[1] != 1000 || handled[0] == 0 || handled[0] > 200 {
			t.Errorf("handled %v: partition 0 cannot send what it emits, partition 1 emits nothing", handled)
		}
		refused.Remove()
		time.Sleep(20 * time.Second)
		r.end()
		if n, lag := len(w.read("a")), w.lag("g", "t"); n != 1000 || lag != 0 {
			t.Errorf("%d emitted, lag %d", n, lag)
		}
	})
}

// Buffered records do not hold up their sources; they are sent when it is
// possible, and what does not fit or is left at the end is counted.
func TestEmitBuffer(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		w.topic("a", 1, 1<<20)
		h := plugin.HandlerFunc(func(_ context.Context, m *plugin.Message) error {
			m.Emit(plugin.Record{Topic: "a", Value: make([]byte, 100_000)})
			return nil
		})
		cfg, reg := w.emitConfig(h, map[string]engine.EmitPolicy{"a": engine.EmitBuffer})
		cfg.MaxBuffer, cfg.DrainTimeout, cfg.HandlerTimeout, cfg.WriteAttempts = 4<<20, 5*time.Second, 5*time.Second, 1
		lost := func(reason string) int {
			return int(counted(t, reg, "kconsume_emit_lost_total", map[string]string{"topic": "a", "reason": reason}))
		}
		refused := w.refuse("a", kerr.NotEnoughReplicas, -1)
		w.produce(values("t", make([]string, 30)...)...)
		r := w.start(cfg)
		time.Sleep(10 * time.Second)
		if lag := w.lag("g", "t"); lag != 0 {
			t.Errorf("lag %d: a source waits for what is only buffered", lag)
		}
		if n := lost("overflow"); n != 20 {
			t.Errorf("%d of 30 lost, 10 of 100 kB fit into a quarter of 4 MiB", n)
		}
		if s := statusOf(r); s.EmitBuffered < 1_000_000 || s.EmitBuffered > 1<<20 || !strings.Contains(s.Problem, "lost") {
			t.Errorf("%d bytes buffered, problem %q", s.EmitBuffered, s.Problem)
		}
		refused.Remove()
		time.Sleep(15 * time.Second)
		if n := len(w.read("a")); n != 10 {
			t.Errorf("%d records were emitted after all, want 10", n)
		}
		if s := statusOf(r); s.EmitBuffered != 0 || s.Problem != "" {
			t.Errorf("%d bytes buffered, problem %q", s.EmitBuffered, s.Problem)
		}
		w.refuse("a", kerr.NotEnoughReplicas, -1)
		w.produce(values("t", make([]string, 4)...)...)
		time.Sleep(5 * time.Second)
		r.end()
		if n := lost("exit"); n != 4 {
			t.Errorf("%d lost at the exit, want 4", n)
		}
	})
}

// A stop sends what is buffered first, if it can within the drain timeout.
func TestEmitBufferIsSentBeforeAStop(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		w.topic("a", 1, 1<<20)
		cfg, reg := w.emitConfig(emitting(&calls{}, "a"), map[string]engine.EmitPolicy{"a": engine.EmitBuffer})
		cfg.WriteAttempts = 1
		refused := w.refuse("a", kerr.NotEnoughReplicas, 5)
		w.produce(values("t", "ok", "ok", "ok")...)
		r := w.start(cfg)
		if err := refused.Wait(w.t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		r.end()
		if n := len(w.read("a")); n != 3 {
			t.Errorf("%d records were emitted, want 3", n)
		}
		if n := counted(t, reg, "kconsume_emit_lost_total", nil); n != 0 {
			t.Errorf("%v counted as lost", n)
		}
	})
}

// A dropped topic has one try: no retry of ours or of the client's.
func TestEmitDrop(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		w.topic("a", 1, 1<<20)
		cfg, reg := w.emitConfig(emitting(&calls{}, "a"), map[string]engine.EmitPolicy{"a": engine.EmitDrop})
		refused := w.refuse("a", kerr.LeaderNotAvailable, -1)
		w.produce(values("t", "ok", "ok", "ok")...)
		r := w.start(cfg)
		time.Sleep(10 * time.Second)
		if n := counted(t, reg, "kconsume_emit_lost_total", map[string]string{"topic": "a", "reason": "leader"}); n != 3 || refused.Hits() > 3 {
			t.Errorf("%v lost, %d tries", n, refused.Hits())
		}
		refused.Remove()
		w.produce(values("t", "ok")...)
		time.Sleep(10 * time.Second)
		s := statusOf(r)
		r.end()
		if n, lag := len(w.read("a")), w.lag("g", "t"); n != 1 || lag != 0 || s.EmitBuffered != 0 {
			t.Errorf("%d emitted, lag %d, %d bytes buffered", n, lag, s.EmitBuffered)
		}
	})
}

// A topic that is not there yet: it is named, nothing is lost, and when it comes
// each record goes to its key's partition, once, though a partition of it fails
// at first and all of them were written in one call.
func TestEmitToATopicThatComesLater(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		cfg, reg := w.emitConfig(emitting(&calls{}, "a"), map[string]engine.EmitPolicy{"a": engine.EmitOutbox})
		cfg.WriteAttempts = 1
		for i := range 100 {
			w.produce(&kgo.Record{Topic: "t", Key: fmt.Append(nil, i), Value: []byte("ok")})
		}
		writes := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "a", Observe: true, Count: -1})
		w.refuse("a", kerr.NotEnoughReplicas, 3, 2)
		r := w.start(cfg)
		time.Sleep(10 * time.Second)
		s := statusOf(r)
		if !strings.Contains(s.Problem, "topic a") || len(s.Writes) != 1 || s.Writes[0].Reason != "unknown_topic" || s.Writes[0].Kind != "configuration" {
			t.Errorf("status says %q, %+v", s.Problem, s.Writes)
		}
		w.topic("a", 4, 1<<20)
		time.Sleep(60 * time.Second)
		if s := statusOf(r); s.Problem != "" {
			t.Errorf("status still says %q", s.Problem)
		}
		r.end()
		got := w.read("a")
		java := kgo.StickyKeyPartitioner(nil).ForTopic("")
		for _, rec := range got {
			if want := java.Partition(rec, 4); int(rec.Partition) != want {
				t.Errorf("key %s is in partition %d, not %d", rec.Key, rec.Partition, want)
			}
		}
		ids := emitIDs(got)
		if len(ids) != 100 || len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 100 {
			t.Errorf("%d records were emitted, want 100", len(ids))
		}
		if writes.Hits() != 4+3 {
			t.Errorf("%d writes for 4 partitions, one of which fails 3 times", writes.Hits())
		}
		if n := counted(t, reg, "kconsume_forward_failures_total", map[string]string{"topic": "a", "kind": "cluster"}); n == 0 {
			t.Error("the partition's failures are not counted")
		}
	})
}
