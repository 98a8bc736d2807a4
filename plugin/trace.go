package plugin

import (
	"encoding/hex"

	oteltrace "go.opentelemetry.io/otel/trace"
)

// Names of the headers that carry a W3C trace context. They are the record's
// own, and stay as they are.
const (
	headerTraceparent = "traceparent"
	headerTracestate  = "tracestate"
)

// maxTracestate is the most of a tracestate that is passed on, in bytes; a
// longer one is left out as a whole.
const maxTracestate = 512

// Trace is a W3C trace context as text: what the headers traceparent and
// tracestate hold. An empty Parent is none.
type Trace struct{ Parent, State string }

// TraceOf is a span's context as text; it is empty where the context is not valid.
func TraceOf(sc oteltrace.SpanContext) Trace {
	if !sc.IsValid() {
		return Trace{}
	}
	var room [55]byte
	trace, span := sc.TraceID(), sc.SpanID()
	b := append(room[:0], "00-"...)
	b = append(hex.AppendEncode(b, trace[:]), '-')
	b = append(hex.AppendEncode(b, span[:]), '-')
	b = hex.AppendEncode(b, []byte{byte(sc.TraceFlags() & knownFlags)})
	return Trace{Parent: string(b), State: sc.TraceState().String()}
}

const knownFlags = oteltrace.FlagsSampled | oteltrace.FlagsRandom

// SpanContext is the context of the span that it names, as a remote one. What is
// malformed is no context: then IsValid is false. A malformed State alone is left out.
func (t Trace) SpanContext() oteltrace.SpanContext {
	const size = len("00-") + 32 + len("-") + 16 + len("-01")
	p, none := t.Parent, oteltrace.SpanContext{}
	if len(p) < size || p[2] != '-' || p[35] != '-' || p[52] != '-' {
		return none
	}
	version, known := hexByte(p[:2])
	flags, set := hexByte(p[53:55])
	if !known || !set || version == 0xff || version == 0 && flags > byte(knownFlags) {
		return none
	}
	if more := p[size:]; more != "" && (version == 0 || more[0] != '-') {
		return none // a later version may have more fields
	}
	trace, badTrace := oteltrace.TraceIDFromHex(p[3:35])
	span, badSpan := oteltrace.SpanIDFromHex(p[36:52])
	if badTrace != nil || badSpan != nil {
		return none
	}
	c := oteltrace.SpanContextConfig{TraceID: trace, SpanID: span, TraceFlags: oteltrace.TraceFlags(flags) & knownFlags, Remote: true}
	if t.State != "" && len(t.State) <= maxTracestate {
		c.TraceState, _ = oteltrace.ParseTraceState(t.State) // empty where it fails
	}
	return oteltrace.NewSpanContext(c)
}

func hexByte(s string) (n byte, ok bool) {
	for _, c := range []byte(s) {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | (c - '0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | (c - 'a' + 10)
		default:
			return 0, false
		}
	}
	return n, true
}

// TraceContext is what a handler's own spans continue: the span of this delivery
// where kconsume makes one, else what the record's headers say, unchecked. A
// handler's context carries it already, so this is for batches, which have one
// context for many records, and for what does not know OpenTelemetry.
func (m *Message) TraceContext() Trace {
	if m.Trace.Parent != "" {
		return m.Trace
	}
	var t Trace
	for i := range m.Headers { // of repeated ones the last counts
		switch h := &m.Headers[i]; h.Key {
		case headerTraceparent:
			t.Parent = string(h.Value)
		case headerTracestate:
			t.State = string(h.Value)
		}
	}
	if t.Parent == "" {
		return Trace{}
	}
	return t
}
