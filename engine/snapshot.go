package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/kconsume/kconsume/engine/topology"
)

// query asks the loop for a snapshot.
type query struct{ reply chan Status }

func (q *query) apply(l *loop) { q.reply <- l.snapshot() }

func (l *loop) snapshot() Status {
	s := Status{State: l.state, Since: l.since, Group: l.cfg.Group, InFlight: l.inFlight, Buffered: l.held, EmitBuffered: l.loose, Problem: l.problems.any()}
	if l.gen != nil {
		s.Member, s.Generation = l.gen.member, l.gen.id
	}
	for _, ln := range l.topo.Lines {
		for _, st := range l.stagesOf(ln) {
			one := StageStatus{Topic: st.Topic, Stage: st.Name, Of: ln.Topic, Leftover: st.Leftover, Partitions: []PartitionStatus{}}
			for id := range int32(len(l.layout[st.Topic])) {
				if p := l.byTopic[topicPartition{st.Topic, id}]; p != nil {
					one.add(p.status())
				}
			}
			s.Stages = append(s.Stages, one)
		}
	}
	for _, k := range l.sinks {
		if k.failure.kind != "" {
			s.Writes = append(s.Writes, k.status())
		}
	}
	slices.SortFunc(s.Writes, func(a, b WriteStatus) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Reason, b.Reason))
	})
	l.watch.status(&s)
	return s
}

// stagesOf are a line's stages, leftover tiers included.
func (l *loop) stagesOf(ln topology.Line) []topology.Stage {
	stages := ln.Stages
	for _, so := range l.watch.leftovers {
		if so.line.Topic == ln.Topic {
			stages = append(slices.Clip(stages), so.stage)
		}
	}
	return stages
}

func (s *sink) status() WriteStatus {
	return WriteStatus{
		Topic: s.topic, Partition: s.partition, Waiting: len(s.queue) + len(s.batch),
		Kind: string(s.failure.kind), Reason: s.failure.reason,
	}
}

func (s *StageStatus) add(p PartitionStatus) {
	s.Partitions = append(s.Partitions, p)
	s.Waiting += p.Waiting
	s.InFlight += p.InFlight
	s.Lag += p.lag()
}

// lag is never negative, and 0 while the high watermark is not known.
func (p *PartitionStatus) lag() int64 { return max(0, p.HighWatermark-max(0, p.Committed)) }

func (p *partition) status() PartitionStatus {
	s := PartitionStatus{
		Partition: p.lane.id, Committed: p.committed, Position: p.position, HighWatermark: p.high,
		Waiting: p.gate.len(), InFlight: p.flying, Problem: orText(p.stuck, p.problem), OpenSince: p.openSince,
	}
	if due, ok := p.gate.next(); ok {
		s.NextDue = msTime(due)
	}
	return s
}

// setGauges brings the gauges up to date: once a second, not per record.
func (l *loop) setGauges() {
	l.met.InFlight.Set(float64(l.inFlight))
	l.met.Buffered.Set(float64(l.held))
	l.met.EmitBuffer.Set(float64(l.loose))
	l.writers.count(l.met)
	l.endLosses(time.Now())
	for _, s := range l.snapshot().Stages {
		if s.Stage != stageMain && s.Stage != stageReplay {
			l.met.Waiting.WithLabelValues(s.Of, s.Stage).Set(float64(s.Waiting))
		}
		for _, p := range s.Partitions {
			l.met.Lag.WithLabelValues(s.Topic, itoa(p.Partition)).Set(float64(p.lag()))
		}
	}
}
