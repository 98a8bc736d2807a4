package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/plugin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// replayed is a dead letter sent again: its value says what the handler does.
func replayed(topic, id, value, group string) *kgo.Record {
	m := history.Meta{Group: group, Origin: history.Origin{Topic: "t", Partition: 1, Offset: 7, Timestamp: 1}, FirstFailure: 5}.Replayed(id)
	r := &kgo.Record{Topic: topic, Partition: 1, Key: []byte(id), Value: []byte(value)}
	for _, h := range m.Headers(nil, false) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return r
}

// outcomes are the entries of outcomes in the state topic, by replay id.
func (w *world) outcomes() map[string][]history.Outcome {
	w.t.Helper()
	out := map[string][]history.Outcome{}
	for _, r := range w.read("t.dlq.state") {
		id, ok := strings.CutPrefix(string(r.Key), history.OutcomeKey)
		var o history.Outcome
		if err := json.Unmarshal(r.Value, &o); err != nil || !ok || o.ReplayID != id || r.Partition != 0 || o.Version != 1 {
			w.t.Fatalf("entry %q in partition %d: %s (%v)", r.Key, r.Partition, r.Value, err)
		}
		out[id] = append(out[id], o)
	}
	return out
}

// until waits, in virtual time, for something to be so.
func (w *world) until(so func() bool) {
	w.t.Helper()
	for end := time.Now().Add(10 * time.Minute); !so(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatal("it does not come")
		}
	}
}

// How a replayed record ended is written, and nothing is written about others.
func TestOutcomesOfReplays(t *testing.T) {
	inWorld(t, 2, []string{"t"}, func(w *world) {
		var seen calls
		c := w.config(plugin.HandlerFunc(func(_ context.Context, m *plugin.Message) error {
			seen.add(m)
			switch {
			case string(m.Value) == "bad":
				return plugin.Permanent(errors.New("no"))
			case string(m.Value) == "drop":
				return plugin.Drop("of no use")
			case string(m.Value) == "twice" && m.Attempt == 1:
				return plugin.Transient(errors.New("busy"))
			}
			return nil
		}))
		c.Retry = []time.Duration{5 * time.Second}
		r := w.start(c)
		time.Sleep(10 * time.Second) // it has joined
		w.produce(
			replayed("t.replay", "J/1/1/good", "good", "g"),
			replayed("t.replay", "J/1/2/bad", "bad", "g"),
			replayed("t.replay", "J/1/3/twice", "twice", "g"),
			replayed("t.replay", "J/1/4/drop", "drop", "g"),
			replayed("t", "J/1/5/source", "good", "g"),
			replayed("t.replay", "J/1/6/others", "good", "h"),
			replayed("t.replay", "forged", "good", "g"),
			replayed("t", "J/1/8/foreign", "good", "h"),
			&kgo.Record{Topic: "t", Partition: 1, Value: []byte("bad")},
		)
		w.until(func() bool { return len(w.outcomes()) == 5 && w.lag("g", "t", "t.replay", "t.retry.5s") == 0 })
		r.end()

		got := w.outcomes()
		for id, want := range map[string]history.Outcome{
			"J/1/1/good":   {Status: history.OutcomeSucceeded, Attempts: 1},
			"J/1/3/twice":  {Status: history.OutcomeSucceeded, Attempts: 2},
			"J/1/4/drop":   {Status: history.OutcomeSucceeded, Attempts: 1},
			"J/1/5/source": {Status: history.OutcomeSucceeded, Attempts: 1},
			"J/1/2/bad":    {Status: history.OutcomeFailedAgain, Attempts: 1, Class: "permanent"},
		} {
			if len(got[id]) != 1 {
				t.Errorf("%s: %+v", id, got[id])
				continue
			}
			o := got[id][0]
			if o.Status != want.Status || o.Attempts != want.Attempts || o.Class != want.Class || o.At == 0 {
				t.Errorf("%s: %+v", id, o)
			}
			if (o.Again != nil) != (want.Status == history.OutcomeFailedAgain) {
				t.Errorf("%s: again %+v", id, o.Again)
			}
		}
		again := got["J/1/2/bad"][0].Again
		for _, d := range w.read("t.dlq") {
			if headersOf(d)[history.HeaderReplayID] == "J/1/2/bad" && (d.Partition != again.Partition || d.Offset != again.Offset) {
				t.Errorf("it lies at %d:%d, its outcome says %+v", d.Partition, d.Offset, again)
			}
		}
		if n := len(seen.of("good")); n != 4 {
			t.Errorf("%d deliveries of good ones, want 4: one is another group's", n)
		}
	})
}

// A replayed record is not settled before its outcome is written.
func TestOutcomeComesBeforeTheCommit(t *testing.T) {
	inWorld(t, 2, []string{"t"}, func(w *world) {
		r := w.start(w.config(plugin.HandlerFunc(func(_ context.Context, _ *plugin.Message) error { return nil })))
		time.Sleep(10 * time.Second) // it has joined
		fault := w.refuse("t.dlq.state", kerr.NotEnoughReplicas, -1)
		w.produce(replayed("t.replay", "J/1/1/good", "good", "g"))
		time.Sleep(30 * time.Second)
		if w.lag("g", "t.replay") != 1 {
			t.Error("it was committed without its outcome")
		}
		fault.Remove()
		w.until(func() bool { return w.lag("g", "t.replay") == 0 })
		r.end()
		if got := w.outcomes()["J/1/1/good"]; len(got) != 1 {
			t.Errorf("outcomes %+v", got)
		}
	})
}

// Dead letters, and they alone, have the headers of other tools where asked.
func TestDeadLettersSpeakDialects(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		c := w.config(plugin.HandlerFunc(func(context.Context, *plugin.Message) error { return plugin.Transient(errors.New("busy")) }))
		c.Retry, c.Headers = []time.Duration{time.Second}, []history.Dialect{history.DialectSpring, history.DialectKIP1191}
		r := w.start(c)
		w.produce(&kgo.Record{Topic: "t", Value: []byte("x")})
		w.until(func() bool { return len(w.read("t.dlq")) == 1 })
		r.end()
		waited, dead := headersOf(w.read("t.retry.1s")[0]), headersOf(w.read("t.dlq")[0])
		for _, name := range []string{"kafka_dlt-original-topic", "__dlq.errors.topic"} {
			if dead[name] != "t" {
				t.Errorf("dead letter: %s is %q", name, dead[name])
			}
			if _, there := waited[name]; there {
				t.Errorf("%s is on a record that waits", name)
			}
		}
	})
}
