package engine

import (
	"slices"

	"github.com/kconsume/kconsume/metrics"
	"github.com/kconsume/kconsume/plugin"
	"github.com/prometheus/client_golang/prometheus"
)

// maxHandlers bounds the versions of handlers whose deliveries are told apart:
// a handler that calls itself something else at every start adds no series
// without end.
const maxHandlers = 8

// otherReason stands for a reason that is none of the known ones.
const otherReason = "other"

// reasons are the words by which failures are counted.
func reasons() []string {
	return []string{
		string(plugin.ReasonTransient), string(plugin.ReasonPermanent), string(plugin.ReasonPoison), string(plugin.ReasonPanic),
		string(plugin.ReasonHandlerCrash), string(plugin.ReasonTimeout), string(plugin.ReasonOversize), otherReason,
	}
}

// tally counts what one version of the handler answers for one stage.
type tally struct {
	handler  string
	answered prometheus.Counter
	failed   map[string]prometheus.Counter // by reason
}

func (t *tally) fail(r plugin.Reason) {
	c := t.failed[string(r)]
	if c == nil {
		c = t.failed[otherReason]
	}
	c.Inc()
}

// tallyOf is the tally of a partition's stage for a handler, name@version. Its
// counters stand at 0 from the version's first answer on.
func (l *loop) tallyOf(p *partition, handler string) *tally {
	if p.tally != nil && p.tally.handler == handler {
		return p.tally
	}
	shown := metrics.Label(handler)
	l.remember(shown)
	topic, stage := p.lane.line.Topic, p.stage.Name
	t := &tally{handler: handler, answered: l.met.Deliveries.WithLabelValues(topic, stage, shown), failed: map[string]prometheus.Counter{}}
	for _, r := range reasons() {
		t.failed[r] = l.met.Failures.WithLabelValues(topic, stage, r, shown)
	}
	p.tally = t
	return t
}

// remember forgets the version that was met first where there are too many.
func (l *loop) remember(handler string) {
	if slices.Contains(l.handlers, handler) {
		return
	}
	if len(l.handlers) == maxHandlers {
		oldest := prometheus.Labels{"handler": l.handlers[0]}
		l.met.Deliveries.DeletePartialMatch(oldest)
		l.met.Failures.DeletePartialMatch(oldest)
		l.handlers = l.handlers[1:]
	}
	l.handlers = append(l.handlers, handler)
}
