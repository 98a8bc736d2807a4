package engine

import (
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/engine/record"
	"github.com/kconsume/kconsume/engine/topology"
	"github.com/kconsume/kconsume/plugin"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

func spanContext(traceID, spanID byte) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{traceID}, SpanID: trace.SpanID{spanID}, Remote: true})
}

func TestParentOf(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	soon, late := now.Add(-time.Hour).UnixMilli(), now.Add(-time.Hour-time.Millisecond).UnixMilli()
	none, own, same, other := trace.SpanContext{}, spanContext(1, 1), spanContext(1, 2), spanContext(2, 1)
	for _, c := range []struct {
		name            string
		own, last, want trace.SpanContext
		meta            *history.Meta
	}{
		{"first", own, none, own, nil},
		{"first without a context", none, none, none, nil},
		{"retry in the producer's trace", own, same, own, &history.Meta{Failed: 1, ErrorTime: soon}},
		{"retry in the trace that its first delivery began", none, other, other, &history.Meta{Failed: 1, ErrorTime: soon}},
		{"retry of a late retry", own, other, other, &history.Meta{Failed: 2, ErrorTime: soon}},
		{"retry of a delivery without a span", own, none, own, &history.Meta{Failed: 1, ErrorTime: soon}},
		{"late retry", own, same, none, &history.Meta{Failed: 1, ErrorTime: late}},
		{"late retry of a delivery without a span", own, none, none, &history.Meta{Failed: 1, ErrorTime: late}},
		{"no time of failure", own, same, own, &history.Meta{Failed: 1}},
		{"failed in the future", own, same, own, &history.Meta{Failed: 1, ErrorTime: 1 << 61}},
		{"replay", own, same, none, &history.Meta{ReplayID: "r"}},
		{"retry of a replay", own, other, other, &history.Meta{ReplayID: "r", Failed: 1, ErrorTime: soon}},
		{"retry of a replay without a span", own, none, none, &history.Meta{ReplayID: "r", Failed: 1, ErrorTime: soon}},
	} {
		if got := parentOf(c.own, c.last, c.meta, now); !got.Equal(c.want) {
			t.Errorf("%s: parent %v, want %v", c.name, got, c.want)
		}
	}
}

func TestTraceText(t *testing.T) {
	long := make([]byte, 0, 1000)
	for len(long) < 999 {
		long = append(long, "é"...)
	}
	for in, want := range map[string]int{"": 0, "orders": 6, "\xff": 3, string(long): 512, "a" + string(long): 511} {
		if got := traceText(in); len(got) != want {
			t.Errorf("%.20q of %d bytes became %d bytes, want %d", in, len(in), len(got), want)
		}
	}
}

// BenchmarkTracing is what a delivery costs more than without.
func BenchmarkTracing(b *testing.B) {
	for _, c := range []struct {
		name     string
		provider trace.TracerProvider
	}{
		{"off", nil},
		{"on", sdk.NewTracerProvider()},
		{"unsampled", sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample()))},
	} {
		b.Run(c.name, func(b *testing.B) {
			t := newTracing(Config{Group: "g", TracerProvider: c.provider})
			p := &partition{lane: &lane{line: &line{}, id: 3}, stage: topology.Stage{Name: stageMain, Topic: "orders"}}
			it := item{rec: record.Record{Offset: 42, Headers: []plugin.Header{{Key: "traceparent", Value: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")}}}}
			v, now := plugin.Verdict{Class: plugin.ClassAck}, time.Now()
			b.ReportAllocs()
			for b.Loop() {
				m := p.message(&it)
				t.begin(p, &it, &m, now)
				t.end(&it, decision{route: routeSettle}, &v, "orders@1")
			}
		})
	}
}
