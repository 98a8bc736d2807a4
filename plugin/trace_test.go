package plugin_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/plugintest"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const (
	own      = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	delivery = "00-4bf92f3577b34da6a3ce929d0e0e4736-1111111111111111-01"
)

// longState is a tracestate that is right but for its length.
var longState = func() string {
	var members []string
	for i := range 20 {
		members = append(members, fmt.Sprintf("k%d=%s", i, strings.Repeat("v", 30)))
	}
	return strings.Join(members, ",")
}()

func traceHeaders(values ...string) (hs []plugin.Header) {
	for i := 0; i < len(values); i += 2 {
		hs = append(hs, plugin.Header{Key: values[i], Value: []byte(values[i+1])})
	}
	return hs
}

// What a handler is given to continue, over a real connection: in its context,
// and as text.
func TestTraceOfADelivery(t *testing.T) {
	var inContext trace.SpanContext
	var asText plugin.Trace
	h := plugintest.New(t, plugin.HandlerFunc(func(ctx context.Context, m *plugin.Message) error {
		derived, stop := context.WithCancel(context.WithValue(ctx, new(int), 1))
		defer stop()
		inContext, asText = trace.SpanContextFromContext(derived), m.TraceContext()
		if ctx.Value("anything else") != nil {
			t.Error("the context knows what it should not")
		}
		return nil
	}))
	for name, c := range map[string]struct {
		headers []plugin.Header
		given   plugin.Trace
		parent  string // in the context, "" = none
		state   string
		text    plugin.Trace
	}{
		"nothing":                        {nil, plugin.Trace{}, "", "", plugin.Trace{}},
		"the record's own":               {traceHeaders("traceparent", own, "tracestate", "a=1"), plugin.Trace{}, own, "a=1", plugin.Trace{Parent: own, State: "a=1"}},
		"the last of the record's own":   {traceHeaders("traceparent", "x", "traceparent", own), plugin.Trace{}, own, "", plugin.Trace{Parent: own}},
		"a state alone":                  {traceHeaders("tracestate", "a=1"), plugin.Trace{}, "", "", plugin.Trace{}},
		"malformed":                      {traceHeaders("traceparent", "\xff"), plugin.Trace{}, "", "", plugin.Trace{Parent: "\xff"}},
		"a state that is too long":       {traceHeaders("traceparent", own, "tracestate", longState), plugin.Trace{}, own, "", plugin.Trace{Parent: own, State: longState}},
		"the delivery's":                 {traceHeaders("traceparent", own, "tracestate", "a=1"), plugin.Trace{Parent: delivery}, delivery, "", plugin.Trace{Parent: delivery}},
		"the delivery's, with its state": {nil, plugin.Trace{Parent: delivery, State: "b=2"}, delivery, "b=2", plugin.Trace{Parent: delivery, State: "b=2"}},
	} {
		m := h.Record("v")
		m.Headers, m.Trace = c.headers, c.given
		h.Deliver(m).WantAck()
		if got := plugin.TraceOf(inContext); got.Parent != c.parent || got.State != c.state || inContext.IsValid() && !inContext.IsRemote() {
			t.Errorf("%s: the context has %+v, want %q and %q", name, got, c.parent, c.state)
		}
		if asText != c.text {
			t.Errorf("%s: as text %+v, want %+v", name, asText, c.text)
		}
	}
}

// The records of a batch have a trace each, and its context none.
func TestTracesOfABatch(t *testing.T) {
	h := plugintest.New(t, plugin.Batches(plugin.BatchHandlerFunc(func(ctx context.Context, b *plugin.Batch) error {
		if trace.SpanContextFromContext(ctx).IsValid() {
			t.Error("the batch's context has one record's trace")
		}
		for _, m := range b.Messages {
			if got := m.TraceContext().Parent; got != string(m.Value) {
				t.Errorf("trace %q, want %q", got, m.Value)
			}
		}
		return nil
	}), plugin.BatchConfig{}))
	one, two := h.Record(own), h.Record(delivery)
	one.Headers, two.Trace.Parent = traceHeaders("traceparent", own), delivery
	for _, d := range h.Send(one, two) {
		d.Verdict().WantAck()
	}
}

// Whatever the text is: what is read of it is written in one way.
func FuzzTrace(f *testing.F) {
	for _, s := range []string{own, delivery, "", "ff" + own[2:], "fe" + own[2:], own + "-x", "cc" + own[2:] + "-x", "cc" + own[2:] + "x", own[:53] + "03", own[:53] + "04", own[:53] + "f0", own + "-", strings.ToUpper(own)} {
		f.Add(s, "a=1,b=2")
	}
	f.Fuzz(func(t *testing.T, parent, state string) {
		sc := plugin.Trace{Parent: parent, State: state}.SpanContext()
		text := plugin.TraceOf(sc)
		carrier := propagation.MapCarrier{"traceparent": parent, "tracestate": state}
		if len(state) > 512 {
			delete(carrier, "tracestate")
		}
		want := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(t.Context(), carrier))
		if strings.HasPrefix(parent, "00-") && len(parent) == 56 {
			want = trace.SpanContext{} // one "-" too many, which it passes over
		}
		if !sc.Equal(want) {
			t.Fatalf("%q and %q are %v, OpenTelemetry's own reading is %v", parent, state, sc, want)
		}
		if !sc.IsValid() {
			if text != (plugin.Trace{}) {
				t.Fatalf("no context became %+v", text)
			}
			return
		}
		again := text.SpanContext()
		if len(text.Parent) != 55 || !again.Equal(sc) || plugin.TraceOf(again) != text {
			t.Fatalf("%q and %q became %+v and then %+v", parent, state, text, plugin.TraceOf(again))
		}
	})
}

// BenchmarkTrace is what a handler pays that asks for the trace in its context.
func BenchmarkTrace(b *testing.B) {
	m := plugin.Message{Headers: traceHeaders("a", "b", "traceparent", own)}
	b.ReportAllocs()
	for b.Loop() {
		if !m.TraceContext().SpanContext().IsValid() {
			b.Fatal("no context")
		}
	}
}
