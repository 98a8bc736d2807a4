package engine

import (
	"context"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/plugin"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// The names of a span's attributes are those of OpenTelemetry's conventions for
// messaging, of the version that tracingSchema names; what those have no name
// for begins with "kconsume.". A record's key, value, headers and an error's text are in
// none of them: they may be personal.
const (
	tracingScope  = "github.com/kconsume/kconsume/engine"
	tracingSchema = "https://opentelemetry.io/schemas/1.43.0"

	attrOffset      = attribute.Key("messaging.kafka.offset")
	attrPartition   = attribute.Key("messaging.destination.partition.id")
	attrTombstone   = attribute.Key("messaging.kafka.message.tombstone")
	attrErrorType   = attribute.Key("error.type")
	attrErrorCode   = attribute.Key("kconsume.error.code")
	attrRecord      = attribute.Key("kconsume.record.id")
	attrStage       = attribute.Key("kconsume.stage")
	attrAttempt     = attribute.Key("kconsume.attempt")
	attrMaxAttempts = attribute.Key("kconsume.max_attempts")
	attrReplay      = attribute.Key("kconsume.replay.id")
	attrOutcome     = attribute.Key("kconsume.outcome")
	attrHandler     = attribute.Key("kconsume.handler.name")
	attrVersion     = attribute.Key("kconsume.handler.version")
	attrLink        = attribute.Key("kconsume.link")
)

// What a link leads to: attrLink.
const (
	linkOriginal = "original"         // the span that the record's own headers name
	linkPrevious = "previous_attempt" // the delivery before this one
	linkReplayed = "replayed_attempt" // the last delivery before the replay
)

// Outcomes of a delivery beside those that are counted.
const (
	outcomeAcked   = "ack"
	outcomeDropped = "drop"
	outcomeRetried = "retry"
	outcomeDead    = "dead"
	outcomeCut     = "cut_off" // no verdict: cancelled, or the partition is another member's now
)

// maxTraceText bounds an attribute that holds what came from a record or a
// handler, in bytes.
const maxTraceText = 512

// traceGap is how long after the failure of a delivery the next one still
// belongs to the same trace. A later one begins a trace of its own, or a trace
// would last as long as the longest tier, many times.
const traceGap = time.Hour

// tracing makes a span of each delivery. It belongs to the loop; nil makes none.
type tracing struct {
	tracer trace.Tracer
	group  string
	stages map[string]stageTrace // by the stage's own topic
}

// stageTrace is what all spans of a stage share.
type stageTrace struct {
	name  string
	start []trace.SpanStartOption
}

func newTracing(c Config) *tracing {
	if c.TracerProvider == nil {
		return nil
	}
	return &tracing{
		tracer: c.TracerProvider.Tracer(tracingScope, trace.WithSchemaURL(tracingSchema)),
		group:  traceText(c.Group), stages: map[string]stageTrace{},
	}
}

func (t *tracing) stage(topic string) stageTrace {
	s, ok := t.stages[topic]
	if !ok {
		s.name = "process " + traceText(topic)
		s.start = []trace.SpanStartOption{
			trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithAttributes(
				attribute.String("messaging.system", "kafka"),
				attribute.String("messaging.operation.type", "process"),
				attribute.String("messaging.operation.name", "process"),
				attribute.String("messaging.destination.name", traceText(topic)),
				attribute.String("messaging.consumer.group.name", t.group),
			),
		}
		t.stages[topic] = s
	}
	return s
}

// begin starts the span of a delivery, which the handler is given to continue.
func (t *tracing) begin(p *partition, it *item, m *plugin.Message, now time.Time) {
	if t == nil {
		return
	}
	own, last := m.TraceContext().SpanContext(), trace.SpanContext{}
	if it.meta != nil {
		last = plugin.Trace{Parent: it.meta.Trace}.SpanContext()
	}
	ctx := context.Background()
	if parent := parentOf(own, last, it.meta, now); parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	s := t.stage(p.stage.Topic)
	_, it.span = t.tracer.Start(ctx, s.name, s.start...)
	m.Trace = plugin.TraceOf(it.span.SpanContext())
	it.trace = m.Trace.Parent
	if it.span.IsRecording() {
		describe(it.span, p, it, m, own, last)
	}
}

// parentOf is the span that a delivery's is a child of; an invalid one begins a
// trace of its own. own is what the record's headers name, last the span of the
// delivery before, m the record's history.
//
// One record has one trace: the producer's, else the one that its first delivery
// began. A replay begins another, and so does a retry after more than traceGap.
func parentOf(own, last trace.SpanContext, m *history.Meta, now time.Time) trace.SpanContext {
	switch {
	case m == nil: // the first delivery
		return own
	case m.Failed == 0: // of a replay
		return trace.SpanContext{}
	case m.ErrorTime > 0 && now.Sub(msTime(m.ErrorTime)) > traceGap:
		return trace.SpanContext{}
	case last.IsValid() && last.TraceID() != own.TraceID():
		return last
	case !last.IsValid() && m.ReplayID != "":
		return trace.SpanContext{} // own is not the replay's
	}
	return own
}

// describe tells what is known of a delivery before it is answered.
func describe(s trace.Span, p *partition, it *item, m *plugin.Message, own, last trace.SpanContext) {
	id := m.ID
	if id == "" {
		id = p.recordID(it)
	}
	kvs := append(make([]attribute.KeyValue, 0, 8),
		attrPartition.String(strconv.Itoa(int(p.lane.id))), attrOffset.Int64(it.rec.Offset), attrRecord.String(traceText(id)),
		attrStage.String(m.Stage), attrAttempt.Int(m.Attempt), attrMaxAttempts.Int(m.MaxAttempts))
	if it.rec.Value == nil {
		kvs = append(kvs, attrTombstone.Bool(true))
	}
	kind := linkPrevious
	if it.meta != nil && it.meta.ReplayID != "" {
		kvs = append(kvs, attrReplay.String(traceText(it.meta.ReplayID)))
		if it.meta.Failed == 0 {
			kind = linkReplayed
		}
	}
	s.SetAttributes(kvs...)
	addLink(s, own, linkOriginal)
	addLink(s, last, kind)
}

func addLink(s trace.Span, to trace.SpanContext, kind string) {
	if to.IsValid() {
		s.AddLink(trace.Link{SpanContext: to, Attributes: []attribute.KeyValue{attrLink.String(kind)}})
	}
}

// end ends the span of a delivery that was decided.
func (t *tracing) end(it *item, d decision, v *plugin.Verdict, handler string) {
	if t == nil || it.span == nil {
		return
	}
	if it.span.IsRecording() {
		kvs := append(make([]attribute.KeyValue, 0, 5), attrOutcome.String(outcomeOf(d)))
		if name, version := nameOf(handler); name != "" {
			kvs = append(kvs, attrHandler.String(traceText(name)), attrVersion.String(traceText(version)))
		}
		if d.route != routeSettle {
			class := string(d.reason)
			kvs = append(kvs, attrErrorType.String(class))
			if v.Code != "" {
				kvs = append(kvs, attrErrorCode.String(traceText(v.Code)))
			}
			it.span.SetStatus(codes.Error, class)
		}
		it.span.SetAttributes(kvs...)
	}
	it.finish()
}

// finish ends the span and lets go of it: a record may wait long to be written on.
func (it *item) finish() {
	it.span.End()
	it.span = nil
}

// cut ends the span of a delivery that has no verdict.
func (t *tracing) cut(it *item) {
	if t == nil || it.span == nil {
		return
	}
	it.span.SetAttributes(attrOutcome.String(outcomeCut))
	it.finish()
}

// cutAll ends the spans of what is with the handler at the end of all.
func (t *tracing) cutAll(parts []*partition) {
	if t == nil {
		return
	}
	for _, p := range parts {
		if p == nil {
			continue
		}
		for slot := p.track.head; slot < p.track.tail; slot++ {
			if p.track.open(slot) && p.track.at(slot).state == itemFlying {
				t.cut(p.track.at(slot))
			}
		}
	}
}

// nameOf parts a handler's name@version.
func nameOf(handler string) (name, version string) {
	if at := strings.LastIndexByte(handler, '@'); at >= 0 {
		return handler[:at], handler[at+1:]
	}
	return handler, ""
}

func outcomeOf(d decision) string {
	switch {
	case d.dropped:
		return outcomeDropped
	case d.route == routeSettle:
		return outcomeAcked
	case d.route == routeRetry:
		return outcomeRetried
	}
	return outcomeDead
}

// traceText makes of any bytes a text that a span may hold: one that is not UTF-8
// would spoil all spans that are sent with it.
func traceText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	n := min(len(s), maxTraceText)
	for n < len(s) && n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
