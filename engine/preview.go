package engine

import (
	"time"

	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/engine/record"
	"github.com/kconsume/kconsume/engine/topology"
	"github.com/kconsume/kconsume/plugin"
)

// Preview tells without Kafka what an engine does: what a handler is shown of a
// record, and what becomes of the answer. It is not safe for concurrent use.
type Preview struct {
	cfg   Config
	lines map[string]*previewLine // by main topic
}

type previewLine struct {
	topology.Line
	policy policy
}

// Fate is what becomes of a delivery.
type Fate string

const (
	FateDone    Fate = "done"
	FateDropped Fate = "dropped" // done on purpose without doing anything
	FateRetry   Fate = "retry"   // delivered again later
	FateDead    Fate = "dlq"
)

// Forecast is what becomes of one delivery, and why.
type Forecast struct {
	Fate Fate
	// Topic is where the record is written to, Stage what that topic is, such as
	// "retry.5s" or "dlq"; empty where it is done. Delay is what it waits there.
	Topic, Stage string
	Delay        time.Duration
	Class        plugin.Reason // of a failure
	// Code and Message are the handler's; the latter of a drop too.
	Code, Message string
	Emitted       []plugin.Record // what is sent
}

// NewPreview needs of a configuration what decides over records: retries, names
// of topics, what may be emitted. Brokers, topics and a handler are not needed.
func NewPreview(c Config) *Preview {
	return &Preview{cfg: c.withDefaults(), lines: map[string]*previewLine{}}
}

// line is the line of a main topic. The error is of class "config".
func (p *Preview) line(topic string) (*previewLine, error) {
	if l := p.lines[topic]; l != nil {
		return l, nil
	}
	c := p.cfg
	c.Topics = []string{topic}
	t, err := c.Topology()
	if err != nil {
		return nil, err
	}
	if err := c.checkEmit(t); err != nil {
		return nil, err
	}
	p.lines[topic] = &previewLine{t.Lines[0], c.policy(&t.Lines[0])}
	return p.lines[topic], nil
}

// policy is what decides over the records of a line.
func (c *Config) policy(l *topology.Line) policy {
	return policy{tiers: l.Tiers(), maxAttempts: c.MaxAttempts, retryAfterMax: c.RetryAfterMax, unknownTransient: c.UnknownTransient}
}

// Message is what a handler is shown of a record on its nth delivery, counted
// from 1. A record that was forwarded once, such as a dead letter, is shown as
// its origin. Its stage is the one that an attempt of this number has where no
// handler wished for another delay.
func (p *Preview) Message(topic string, partition int32, rec *record.Record, attempt int) (plugin.Message, error) {
	at := history.Origin{Topic: topic, Partition: partition, Offset: rec.Offset, Timestamp: rec.Timestamp}
	m := history.Read(rec.Headers, at, 1)
	if m.Group == "" { // what else there is, is not ours
		m = history.Meta{Origin: at}
	}
	o := &m.Origin
	l, err := p.line(o.Topic)
	if err != nil {
		return plugin.Message{}, err
	}
	stage := stageMain
	if n := min(attempt-1, len(l.policy.tiers)); n > 0 {
		stage = l.policy.tiers[n-1].Name
	}
	return plugin.Message{
		ID: m.ID(), Topic: o.Topic, Partition: o.Partition, Offset: o.Offset, Time: msTime(o.Timestamp),
		Key: rec.Key, Value: rec.Value, Headers: history.Own(rec.Headers),
		Attempt: attempt, MaxAttempts: l.policy.maxAttempts, Stage: stage,
	}, nil
}

// Forecast is what becomes of a message answered with v.
func (p *Preview) Forecast(m *plugin.Message, v *plugin.Verdict) (Forecast, error) {
	l, err := p.line(m.Topic)
	if err != nil {
		return Forecast{}, err
	}
	if v.Class == plugin.ClassAck {
		v = p.cfg.allow(v)
	}
	now := time.Time{}
	d := l.policy.decide(m.Attempt-1, v, now)
	f := Forecast{Fate: FateDone, Class: d.reason, Code: v.Code, Message: v.Message}
	switch {
	case d.dropped:
		f.Fate = FateDropped
	case d.route == routeSettle:
		f.Emitted = v.Emitted
	case d.route == routeRetry:
		tier := l.policy.tiers[d.tier]
		f.Fate, f.Topic, f.Stage, f.Delay = FateRetry, tier.Topic, tier.Name, d.due.Sub(now)
	case d.route == routeDead:
		f.Fate, f.Topic, f.Stage = FateDead, l.DLQ, stageDead
	}
	return f, nil
}

// stageDead is how the dead letter topic is named among the stages.
const stageDead = "dlq"
