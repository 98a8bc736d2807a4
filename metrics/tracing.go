package metrics

import "github.com/prometheus/client_golang/prometheus"

// Why a span was dropped: the reason of Tracing.Dropped.
const (
	SpanQueueFull = "queue_full" // the collector takes less than comes
	SpanNotTaken  = "not_taken"  // a batch was refused, or the collector did not answer in time
	SpanAtExit    = "exit"       // not sent when the process ended
)

// Tracing are the collectors of what sends spans to a collector of traces.
type Tracing struct {
	Sent    prometheus.Counter
	Dropped *prometheus.CounterVec // reason
}

// NewTracing makes the collectors and registers them with r, unless r is nil.
func NewTracing(r prometheus.Registerer) *Tracing {
	t := &Tracing{
		Sent: prometheus.NewCounter(prometheus.CounterOpts{Name: "kconsume_trace_spans_sent_total", Help: "Spans of deliveries that the trace collector took. Only while tracing is on."}),
		Dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kconsume_trace_spans_dropped_total", Help: "Spans of deliveries that were not sent: queue_full, not_taken by the trace collector, or exit. Only while tracing is on.",
		}, []string{"reason"}),
	}
	for _, reason := range []string{SpanQueueFull, SpanNotTaken, SpanAtExit} {
		t.Dropped.WithLabelValues(reason)
	}
	if r != nil {
		r.MustRegister(t.Sent, t.Dropped)
	}
	return t
}
