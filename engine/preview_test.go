package engine_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/engine/record"
	"github.com/kconsume/kconsume/plugin"
	"github.com/twmb/franz-go/pkg/kgo"
)

// failing answers by a record's value.
func failing(_ context.Context, m *plugin.Message) error {
	err := errors.New("from " + string(m.Value))
	switch string(m.Value) {
	case "transient":
		return plugin.Transient(err)
	case "wish":
		return plugin.RetryAfter(err, 20*time.Second)
	case "once":
		if m.Attempt == 1 {
			return plugin.Transient(err)
		}
	case "permanent":
		return plugin.Permanent(err)
	case "unknown":
		return err
	case "drop":
		return plugin.Drop("nothing to do")
	case "emit":
		m.Emit(plugin.Record{Topic: "out"})
	case "forbidden":
		m.Emit(plugin.Record{Topic: "nowhere"})
	case "panic":
		panic("at the disco")
	}
	return nil
}

// step is what an engine did, or would do, with one delivery.
type step struct {
	id, stage  string // of the delivery
	attempt    int
	kind       engine.Fate
	to         string
	delay      time.Duration
	class      string
	code, text string
}

// A preview of records, answered by the same handler, says what a real engine
// did with them on a broker: each delivery, its stage, and where it went.
func TestPreviewIsWhatTheEngineDoes(t *testing.T) {
	values := []string{"fine", "transient", "wish", "once", "permanent", "unknown", "drop", "emit", "forbidden", "panic"}
	settings := map[string]engine.Config{
		"defaults":      {},
		"no retries":    {Retry: []time.Duration{}},
		"more attempts": {Retry: []time.Duration{time.Minute, time.Second}, MaxAttempts: 5, RetryTopic: "r.{group}.{topic}.{delay}", DLQTopic: "dead.{topic}"},
		"lenient":       {UnknownTransient: true, RetryAfterMax: 10 * time.Second},
	}
	for name, set := range settings {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, []string{"t", "out"}, func(w *world) {
				c := w.config(plugin.HandlerFunc(failing))
				c.Retry, c.MaxAttempts, c.RetryTopic, c.DLQTopic = set.Retry, set.MaxAttempts, set.RetryTopic, set.DLQTopic
				c.UnknownTransient, c.RetryAfterMax = set.UnknownTransient, set.RetryAfterMax
				c.Emit = map[string]engine.EmitPolicy{"out": engine.EmitOutbox}
				seen := watch(&c, len(values))
				var sent []*kgo.Record
				for _, v := range values {
					sent = append(sent, &kgo.Record{Topic: "t", Key: []byte(v), Value: []byte(v)})
				}
				w.produce(sent...)
				r := w.start(c)
				for range values {
					<-seen.ended
				}
				r.end()
				want := map[string][]step{}
				for i, v := range values {
					want[v] = previewed(t, c, sent[i])
				}
				if kind := want["unknown"][0].kind; (kind == engine.FateRetry) != set.UnknownTransient {
					t.Errorf("an unknown error: %s", kind)
				}
				for v := range want {
					if !reflect.DeepEqual(seen.steps[v], want[v]) {
						t.Errorf("%s:\n the engine: %+v\nthe preview: %+v", v, seen.steps[v], want[v])
					}
				}
			})
		})
	}
}

// watched is what an engine did with each record, by value.
type watched struct {
	mu    sync.Mutex
	sent  map[string]time.Time // when the delivery under way began
	steps map[string][]step
	ended chan struct{} // one for each record that is settled for good
}

func watch(c *engine.Config, records int) *watched {
	w := &watched{sent: map[string]time.Time{}, steps: map[string][]step{}, ended: make(chan struct{}, records)}
	c.Observer = func(e engine.Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		key := string(e.Key)
		s := step{id: e.ID, stage: e.Stage, attempt: e.Attempt, to: e.To, class: e.Class, code: e.Code, text: e.Message}
		switch e.Kind {
		case engine.EventDelivered:
			w.sent[key] = e.At
			return
		case engine.EventRetried:
			s.kind, s.delay = engine.FateRetry, e.Due.Sub(w.sent[key])
		case engine.EventDead:
			s.kind = engine.FateDead
		case engine.EventAcked:
			s.kind = engine.FateDone
		case engine.EventDropped:
			s.kind = engine.FateDropped
		}
		w.steps[key] = append(w.steps[key], s)
		if s.kind != engine.FateRetry {
			w.ended <- struct{}{}
		}
	}
	return w
}

// previewed are the steps of one record to its end.
func previewed(t *testing.T, c engine.Config, sent *kgo.Record) []step {
	t.Helper()
	p := engine.NewPreview(c)
	rec := record.Record{Offset: sent.Offset, Timestamp: sent.Timestamp.UnixMilli(), Key: sent.Key, Value: sent.Value}
	pool := plugin.NewPool(c.Handler, plugin.PoolConfig{})
	defer pool.Close()
	var steps []step
	stage := "main"
	for attempt := 1; ; attempt++ {
		m, err := p.Message("t", 0, &rec, attempt)
		if err != nil {
			t.Fatal(err)
		}
		if m.Stage != stage && string(sent.Value) != "wish" {
			t.Errorf("%s is delivered from %s, and went to %s", sent.Value, m.Stage, stage)
		}
		m.Stage = stage
		pool.Deliver([]plugin.Delivery{{Handle: 1, Message: m}})
		v := plugin.Verdict{Class: plugin.ClassAck}
		if a := <-pool.Answers(); len(a.Verdicts) > 0 {
			v = a.Verdicts[0].Verdict
		}
		o, err := p.Forecast(&m, &v)
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step{m.ID, stage, attempt, o.Fate, o.Topic, o.Delay, string(o.Class), o.Code, o.Message})
		if o.Fate != engine.FateRetry {
			return steps
		}
		stage = o.Stage
	}
}

// A dead letter is shown to the handler as the record that it was. Such headers
// on a record without a group are not ours, and say nothing.
func TestPreviewOfADeadLetter(t *testing.T) {
	dead := record.Record{Offset: 3, Timestamp: 9, Key: []byte("k"), Headers: []plugin.Header{
		{Key: "own", Value: nil}, {Key: "X-Retry-Group", Value: []byte("g")}, {Key: "X-Retry-Attempts", Value: []byte("3")},
		{Key: "X-Original-Topic", Value: []byte("t")}, {Key: "X-Original-Partition", Value: []byte("2")},
		{Key: "X-Original-Offset", Value: []byte("17")}, {Key: "X-Original-Timestamp", Value: []byte("1000")},
		{Key: "X-Record-Id", Value: []byte("t/2/17@1000")}, {Key: "own", Value: []byte("2")},
	}}
	p := engine.NewPreview(engine.Config{})
	m, err := p.Message("t.dlq", 2, &dead, 2)
	want := plugin.Message{
		ID: "t/2/17@1000", Topic: "t", Partition: 2, Offset: 17, Time: time.UnixMilli(1000), Key: []byte("k"),
		Headers: []plugin.Header{{Key: "own"}, {Key: "own", Value: []byte("2")}}, Attempt: 2, MaxAttempts: 3, Stage: "retry.5s",
	}
	if err != nil || !reflect.DeepEqual(m, want) {
		t.Errorf("got %+v, %v\nwant %+v", m, err, want)
	}
	o, err := p.Forecast(&m, &plugin.Verdict{Class: plugin.ClassPermanent, Code: "422"})
	if err != nil || o.Topic != "t.dlq" || o.Fate != engine.FateDead {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestPreviewOfForgedHeaders(t *testing.T) {
	rec := record.Record{Offset: 3, Timestamp: 9, Headers: []plugin.Header{{Key: "X-Original-Topic", Value: []byte("x")}, {Key: "X-Record-Id", Value: []byte("x")}}}
	m, err := engine.NewPreview(engine.Config{}).Message("t", 2, &rec, 1)
	if err != nil || m.Topic != "t" || m.ID != "t/2/3@9" || m.Offset != 3 || m.Stage != "main" {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestPreviewRefusesWhatTheEngineRefuses(t *testing.T) {
	rec := record.Record{}
	for want, c := range map[string]engine.Config{
		"both 5s":               {Retry: []time.Duration{5 * time.Second, 5 * time.Second}},
		"{nope}":                {RetryTopic: "{nope}"},
		"of kconsume's own":     {Emit: map[string]engine.EmitPolicy{"t.dlq": engine.EmitDrop}},
		"one of outbox, buffer": {Emit: map[string]engine.EmitPolicy{"x": "hope"}},
	} {
		_, err := engine.NewPreview(c).Message("t", 0, &rec, 1)
		if err == nil || engine.ClassOf(err) != engine.ErrConfig || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
