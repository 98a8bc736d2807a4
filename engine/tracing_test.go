package engine_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/plugin"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// The context that a producer put into its record.
const (
	producerTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	producerSpan  = "00f067aa0ba902b7"
	producer      = "00-" + producerTrace + "-" + producerSpan + "-01"
)

var producerHeaders = []kgo.RecordHeader{
	{Key: "traceparent", Value: []byte(producer)}, {Key: "tracestate", Value: []byte("shop=t61rcWkgMzE")},
	{Key: "baggage", Value: []byte("tenant=a%20b,x=\xff")}, {Key: "traceparent ", Value: nil},
}

// traced is an exporter of an engine's spans, and what its handler saw of them.
type traced struct {
	spans    *tracetest.InMemoryExporter
	provider *sdk.TracerProvider

	mu   sync.Mutex
	seen map[string]trace.SpanContext // by value and attempt
}

func newTraced(options ...sdk.TracerProviderOption) *traced {
	t := &traced{spans: tracetest.NewInMemoryExporter(), seen: map[string]trace.SpanContext{}}
	t.provider = sdk.NewTracerProvider(append(options, sdk.WithSyncer(t.spans))...)
	return t
}

// watch notes which span each call is given to continue.
func (t *traced) watch(h plugin.Handler) plugin.Handler {
	return plugin.HandlerFunc(func(ctx context.Context, m *plugin.Message) error {
		t.mu.Lock()
		t.seen[fmt.Sprintf("%s %d", m.Value, m.Attempt)] = trace.SpanContextFromContext(ctx)
		t.mu.Unlock()
		return h.Handle(ctx, m)
	})
}

// of are the spans of one origin, in order of their start.
func (t *traced) of(record string) []tracetest.SpanStub {
	var out []tracetest.SpanStub
	for _, s := range t.spans.GetSpans() {
		if strings.HasPrefix(attrOf(s, "kconsume.record.id"), record+"@") {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	return out
}

func attrOf(s tracetest.SpanStub, key attribute.Key) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

// linksOf are the spans that a span links to, by kind.
func linksOf(s tracetest.SpanStub) map[string]string {
	out := map[string]string{}
	for _, l := range s.Links {
		out[l.Attributes[0].Value.AsString()] = l.SpanContext.TraceID().String() + "/" + l.SpanContext.SpanID().String()
	}
	return out
}

func idOf(s tracetest.SpanStub) string {
	return s.SpanContext.TraceID().String() + "/" + s.SpanContext.SpanID().String()
}

// asReplay is a dead letter sent again, as the admin API does it.
func asReplay(dead *kgo.Record, id string) *kgo.Record {
	var hs []plugin.Header
	for _, h := range dead.Headers {
		hs = append(hs, plugin.Header{Key: h.Key, Value: h.Value})
	}
	m := history.Read(hs, history.Origin{Topic: dead.Topic, Partition: dead.Partition, Offset: dead.Offset}, 100).Replayed(id)
	r := &kgo.Record{Topic: "t.replay", Partition: dead.Partition, Key: dead.Key, Value: dead.Value}
	for _, h := range m.Headers(history.Own(hs), false) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return r
}

// One record over three attempts into the DLQ, and its replay, which fails once.
func TestSpansOfARecord(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		tr := newTraced()
		var replaying bool
		c := w.config(tr.watch(plugin.HandlerFunc(func(_ context.Context, m *plugin.Message) error {
			if replaying && m.Attempt == 2 {
				return nil
			}
			return plugin.Transient(fmt.Errorf("cannot charge card 4111-1111"))
		})))
		c.TracerProvider = tr.provider
		w.produce(&kgo.Record{Topic: "t", Key: []byte("anna@example.org"), Value: []byte("v"), Headers: producerHeaders})
		r := w.start(c)
		time.Sleep(time.Minute)
		dead := w.read("t.dlq")
		if len(dead) != 1 {
			t.Fatalf("%d dead letters", len(dead))
		}
		replaying = true
		first := maps.Clone(tr.seen)
		w.produce(asReplay(dead[0], "J/0/0/x"))
		w.until(func() bool { return len(tr.spans.GetSpans()) >= 5 })
		r.end()

		for i, h := range producerHeaders {
			if got := dead[0].Headers[i]; got.Key != h.Key || string(got.Value) != string(h.Value) || (got.Value == nil) != (h.Value == nil) {
				t.Errorf("header %d is %q=%q, was %q=%q", i, got.Key, got.Value, h.Key, h.Value)
			}
		}
		spans := tr.of("t/0/0")
		if len(spans) != 5 || len(tr.spans.GetSpans()) != 5 {
			t.Fatalf("%d spans of the record, %d in all", len(spans), len(tr.spans.GetSpans()))
		}
		original := producerTrace + "/" + producerSpan
		replay := spans[3].SpanContext.TraceID().String()
		for i, want := range []struct {
			name, outcome, stage, trace, parent string
			links                               map[string]string
		}{
			{"process t", "retry", "main", producerTrace, producerSpan, map[string]string{"original": original}},
			{"process t.retry.5s", "retry", "retry.5s", producerTrace, producerSpan, map[string]string{"original": original, "previous_attempt": idOf(spans[0])}},
			{"process t.retry.30s", "dead", "retry.30s", producerTrace, producerSpan, map[string]string{"original": original, "previous_attempt": idOf(spans[1])}},
			{"process t.replay", "retry", "replay", replay, "0000000000000000", map[string]string{"original": original, "replayed_attempt": idOf(spans[2])}},
			{"process t.retry.5s", "ack", "retry.5s", replay, spans[3].SpanContext.SpanID().String(), map[string]string{"original": original, "previous_attempt": idOf(spans[3])}},
		} {
			s := spans[i]
			if s.Name != want.name || attrOf(s, "kconsume.outcome") != want.outcome || attrOf(s, "kconsume.stage") != want.stage {
				t.Errorf("span %d is %q of stage %s: %s", i, s.Name, attrOf(s, "kconsume.stage"), attrOf(s, "kconsume.outcome"))
			}
			if got := s.SpanContext.TraceID().String(); got != want.trace || s.Parent.SpanID().String() != want.parent {
				t.Errorf("span %d is of trace %s below %s, want %s below %s", i, got, s.Parent.SpanID(), want.trace, want.parent)
			}
			if !maps.Equal(linksOf(s), want.links) {
				t.Errorf("span %d links to %v, want %v", i, linksOf(s), want.links)
			}
			if strings.Contains(fmt.Sprint(s.Attributes, s.Status, s.Events), "anna") || strings.Contains(fmt.Sprint(s.Attributes, s.Status, s.Events), "4111") {
				t.Errorf("span %d tells what may be personal: %v %v", i, s.Attributes, s.Status)
			}
		}
		if replay == producerTrace {
			t.Error("the replay is in the producer's trace")
		}
		for i := range 3 {
			if got := first[fmt.Sprintf("v %d", i+1)]; !got.IsRemote() || got.TraceID().String()+"/"+got.SpanID().String() != idOf(spans[i]) || got.TraceState().String() != "shop=t61rcWkgMzE" {
				t.Errorf("attempt %d was given %v, its span is %s", i+1, got, idOf(spans[i]))
			}
		}
		var own []string
		for _, h := range dead[0].Headers {
			if h.Key == history.HeaderTraceparent {
				own = append(own, string(h.Value))
			}
		}
		if len(own) != 1 || own[0] != plugin.TraceOf(spans[2].SpanContext).Parent {
			t.Errorf("the dead letter names %q as the span of its last delivery, which is %s", own, idOf(spans[2]))
		}
		checkAttributes(t, spans[2], map[attribute.Key]string{
			"messaging.system": "kafka", "messaging.operation.type": "process", "messaging.operation.name": "process",
			"messaging.destination.name": "t.retry.30s", "messaging.destination.partition.id": "0", "messaging.kafka.offset": "0",
			"messaging.consumer.group.name": "g", "kconsume.attempt": "3", "kconsume.max_attempts": "3",
			"error.type": "transient", "kconsume.replay.id": "",
		})
		checkAttributes(t, spans[3], map[attribute.Key]string{"kconsume.replay.id": "J/0/0/x", "kconsume.attempt": "1"})
		if s := spans[2]; s.Status.Code.String() != "Error" || s.Status.Description != "transient" || s.SpanKind != trace.SpanKindConsumer || spans[4].Status.Code.String() != "Unset" {
			t.Errorf("status %+v, kind %v; of the last %+v", s.Status, s.SpanKind, spans[4].Status)
		}
	})
}

func checkAttributes(t *testing.T, s tracetest.SpanStub, want map[attribute.Key]string) {
	t.Helper()
	for k, v := range want {
		if got := attrOf(s, k); got != v {
			t.Errorf("%s: %s is %q, want %q", s.Name, k, got, v)
		}
	}
}

// A record without a context has one trace all the same, as long as its retries
// come soon; a late one begins another.
func TestSpansOfARecordWithoutAContext(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		tr := newTraced()
		c := w.config(tr.watch(probe(&calls{})))
		c.TracerProvider = tr.provider
		c.Retry = []time.Duration{5 * time.Second, 2 * time.Hour}
		w.produce(values("t", "fail 2")...)
		r := w.start(c)
		time.Sleep(3 * time.Hour)
		r.end()
		spans := tr.of("t/0/0")
		if len(spans) != 3 {
			t.Fatalf("%d spans", len(spans))
		}
		if s := spans[0]; s.Parent.IsValid() || len(s.Links) != 0 || attrOf(s, "kconsume.outcome") != "retry" {
			t.Errorf("the first delivery's span: parent %v, links %v", s.Parent, s.Links)
		}
		if s := spans[1]; s.Parent.SpanID() != spans[0].SpanContext.SpanID() || linksOf(s)["previous_attempt"] != idOf(spans[0]) {
			t.Errorf("the second delivery's span: parent %v, links %v", s.Parent, linksOf(s))
		}
		if s := spans[2]; s.Parent.IsValid() || linksOf(s)["previous_attempt"] != idOf(spans[1]) || attrOf(s, "kconsume.outcome") != "ack" {
			t.Errorf("the span two hours later: parent %v, links %v", s.Parent, linksOf(s))
		}
	})
}

// What anybody may have written into the headers: each record is delivered, and
// no span is made that cannot be sent.
func TestHostileTraceHeaders(t *testing.T) {
	forged := "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
	for name, c := range map[string]struct {
		value  string
		state  string
		parent bool
	}{
		"ordinary":           {producer, "a=1", true},
		"empty":              {"", "a=1", false},
		"no hex":             {"00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01", "", false},
		"upper case":         {strings.ToUpper(producer), "", false},
		"zero trace":         {"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "", false},
		"zero span":          {"00-" + producerTrace + "-0000000000000000-01", "", false},
		"version ff":         {"ff" + producer[2:], "", false},
		"later version":      {"cc" + producer[2:] + "-more", "", true},
		"too long":           {producer + "-more", "", false},
		"cut off":            {producer[:54], "", false},
		"100 KB":             {strings.Repeat("a", 100_000), "", false},
		"not UTF-8":          {"\xff\xfe\x00", "", false},
		"state of 10 KB":     {producer, "a=" + strings.Repeat("b", 10_000), true},
		"state of no sense":  {producer, "\xff,,,=", true},
		"state of 100 names": {producer, strings.Repeat("a=b,", 100), true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, []string{"t"}, func(w *world) {
				tr := newTraced()
				cfg := w.config(tr.watch(probe(&calls{})))
				cfg.TracerProvider = tr.provider
				cfg.Retry = []time.Duration{time.Second}
				w.produce(&kgo.Record{Topic: "t", Value: []byte("fail 1"), Headers: []kgo.RecordHeader{
					{Key: "traceparent", Value: []byte(forged)}, {Key: "traceparent", Value: []byte(c.value)},
					{Key: "tracestate", Value: []byte(c.state)}, {Key: history.HeaderTraceparent, Value: []byte(forged)},
				}})
				r := w.start(cfg)
				w.until(func() bool { return len(tr.spans.GetSpans()) == 2 })
				r.end()
				for i, s := range tr.of("t/0/0") {
					if want := c.parent || i == 1; s.Parent.IsValid() != want {
						t.Errorf("delivery %d: parent %v", i+1, s.Parent)
					}
					if linksOf(s)["previous_attempt"] == "0123456789abcdef0123456789abcdef/0123456789abcdef" {
						t.Errorf("delivery %d believes another's %s", i+1, history.HeaderTraceparent)
					}
					if got := tr.seen[fmt.Sprintf("fail 1 %d", i+1)]; got.SpanID() != s.SpanContext.SpanID() {
						t.Errorf("delivery %d: the handler was given %v", i+1, got)
					}
				}
			})
		})
	}
}

// Our own header counts on our own topics for our own group only, and is
// checked there; ids and codes of any bytes are made fit for a span.
func TestHostileHistoryOfSpans(t *testing.T) {
	inWorld(t, 1, []string{"t", "t.retry.5s"}, func(w *world) {
		tr := newTraced()
		c := w.config(tr.watch(plugin.HandlerFunc(func(context.Context, *plugin.Message) error {
			return plugin.Permanent(&coded{strings.Repeat("\xff", 2000)})
		})))
		c.TracerProvider = tr.provider
		c.Retry = []time.Duration{5 * time.Second}
		send := func(value, last string) {
			w.produce(&kgo.Record{Topic: "t.retry.5s", Value: []byte(value), Headers: []kgo.RecordHeader{
				{Key: history.HeaderGroup, Value: []byte("g")}, {Key: history.HeaderAttempts, Value: []byte("1")},
				{Key: history.HeaderRecordID, Value: []byte("id\xff" + value)}, {Key: history.HeaderTraceparent, Value: []byte(last)},
			}})
		}
		send("good", producer)
		for i, bad := range []string{"", "x", "ff" + producer[2:], producer + "-more", strings.Repeat("0", 55), strings.Repeat("a", 50_000), "\xff"} {
			send(fmt.Sprint("bad ", i), bad)
		}
		r := w.start(c)
		w.until(func() bool { return len(tr.spans.GetSpans()) == 8 })
		r.end()
		good := 0
		for _, s := range tr.spans.GetSpans() {
			if s.Parent.IsValid() {
				good++
			}
			for _, a := range s.Attributes {
				if v := a.Value.String(); !utf8.ValidString(v) || len(v) > 600 {
					t.Errorf("%s is %d bytes, valid: %v", a.Key, len(v), utf8.ValidString(v))
				}
			}
		}
		if good != 1 {
			t.Errorf("%d spans continue another, want 1", good)
		}
		for _, d := range w.read("t.dlq") {
			if n := len(headersOf(d)[history.HeaderTraceparent]); n != 55 {
				t.Errorf("%s of a dead letter has %d bytes", history.HeaderTraceparent, n)
			}
		}
	})
}

type coded struct{ code string }

func (c *coded) Error() string    { return "failed" }
func (c *coded) SQLState() string { return c.code }

// Without a provider nothing is made, nothing is written, and the handler gets
// what the record says.
func TestNoSpansWithoutAProvider(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		tr := newTraced()
		c := w.config(tr.watch(probe(&calls{})))
		c.Retry = []time.Duration{time.Second}
		w.produce(&kgo.Record{Topic: "t", Value: []byte("fail 9"), Headers: producerHeaders})
		r := w.start(c)
		time.Sleep(10 * time.Second)
		r.end()
		for attempt := range 2 {
			if got := plugin.TraceOf(tr.seen[fmt.Sprintf("fail 9 %d", attempt+1)]); got.Parent != producer || got.State != "shop=t61rcWkgMzE" {
				t.Errorf("attempt %d was given %v", attempt+1, got)
			}
		}
		for _, d := range w.read("t.dlq") {
			if v, there := headersOf(d)[history.HeaderTraceparent]; there {
				t.Errorf("%s: %s", history.HeaderTraceparent, v)
			}
		}
	})
}

// What is not sampled is not exported, and whoever continues it knows.
func TestSpansThatAreNotSampled(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		tr := newTraced(sdk.WithSampler(sdk.ParentBased(sdk.NeverSample())))
		c := w.config(tr.watch(probe(&calls{})))
		c.TracerProvider = tr.provider
		w.produce(
			&kgo.Record{Topic: "t", Value: []byte("fail 1"), Headers: producerHeaders},
			&kgo.Record{Topic: "t", Value: []byte("fail 2")},
		)
		r := w.start(c)
		time.Sleep(time.Minute)
		r.end()
		if n := len(tr.spans.GetSpans()); n != 2 || len(tr.of("t/0/0")) != 2 {
			t.Errorf("%d spans, want the two below a sampled one", n)
		}
		one, two := tr.seen["fail 2 1"], tr.seen["fail 2 3"]
		if !one.IsValid() || one.IsSampled() || two.TraceID() != one.TraceID() || two.IsSampled() {
			t.Errorf("given to continue: %v and then %v, want one trace that is not sampled", one, two)
		}
	})
}

// A delivery that is emitted from is done, one that may not emit is dead, and one
// that a stop cuts off has no verdict: each has a span that ended.
func TestSpansOfOtherEnds(t *testing.T) {
	inWorld(t, 1, []string{"t", "out"}, func(w *world) {
		tr := newTraced()
		c := w.config(plugin.HandlerFunc(func(ctx context.Context, m *plugin.Message) error {
			switch string(m.Value) {
			case "emit":
				m.Emit(plugin.Record{Topic: "out", Value: []byte("v")})
			case "denied":
				m.Emit(plugin.Record{Topic: "elsewhere"})
			case "drop":
				return plugin.Drop("a test")
			case "hang":
				time.Sleep(time.Hour)
			}
			return nil
		}))
		c.TracerProvider = tr.provider
		c.Emit = map[string]engine.EmitPolicy{"out": engine.EmitOutbox}
		c.HandlerTimeout, c.DrainTimeout = time.Minute, time.Second
		w.produce(values("t", "emit", "denied", "drop", "hang")...)
		r := w.start(c)
		w.until(func() bool { return len(tr.spans.GetSpans()) == 3 })
		r.end()
		for i, want := range []string{"ack", "dead", "drop", "cut_off"} {
			spans := tr.of(fmt.Sprint("t/0/", i))
			if len(spans) != 1 || attrOf(spans[0], "kconsume.outcome") != want {
				t.Errorf("record %d: spans %v, want one that ended with %s", i, spans, want)
			}
		}
		if s := tr.of("t/0/1"); len(s) == 1 && (attrOf(s[0], "error.type") != "permanent" || attrOf(s[0], "kconsume.error.code") != "emit_not_allowed") {
			t.Errorf("attributes %v", s[0].Attributes)
		}
		time.Sleep(2 * time.Hour) // the call that hangs ends
	})
}

// The answer to a call that was cancelled is no verdict: its span says so.
func TestSpansOfCancelledDeliveries(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		tr := newTraced()
		c := cancelConfig(w, waiting(&calls{}))
		c.TracerProvider = tr.provider
		w.eachKind(1)
		r := w.start(c)
		time.Sleep(5 * time.Second)
		r.end()
		spans := tr.spans.GetSpans()
		if len(spans) != len(uponCancel) {
			t.Errorf("%d spans of %d deliveries", len(spans), len(uponCancel))
		}
		for _, s := range spans {
			if got := attrOf(s, "kconsume.outcome"); got != "cut_off" && got != "ack" || s.Status.Code.String() != "Unset" {
				t.Errorf("%s ended with %s, %v", attrOf(s, "kconsume.record.id"), got, s.Status)
			}
		}
	})
}

// A record becomes a dead letter after its delivery was acknowledged, because what
// it emitted is too large: the dead letter names that delivery's span.
func TestSpanOfARecordThatEmitsTooMuch(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		w.topic("a", 1, 3000)
		tr := newTraced()
		c := w.config(plugin.HandlerFunc(func(_ context.Context, m *plugin.Message) error {
			m.Emit(plugin.Record{Topic: "a", Value: m.Value})
			return nil
		}))
		c.TracerProvider = tr.provider
		c.Emit, c.Oversize = map[string]engine.EmitPolicy{"a": engine.EmitOutbox}, engine.OversizePointer
		w.produce(values("t", noise("v", 5000))...)
		r := w.start(c)
		w.until(func() bool { return len(w.read("t.dlq")) == 1 })
		r.end()
		spans, got := tr.of("t/0/0"), headersOf(w.read("t.dlq")[0])[history.HeaderTraceparent]
		if len(spans) != 1 || got != plugin.TraceOf(spans[0].SpanContext).Parent {
			t.Errorf("the dead letter names %q, of spans %v", got, spans)
		}
	})
}
