package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kconsume/kconsume/engine/topics"
	"github.com/kconsume/kconsume/engine/topology"
)

// Metadata is asked for when a leader is not known or has moved, and now and
// then to see a topic grow, or made anew.
const (
	layoutEvery = 10 * time.Second
	layoutPause = 250 * time.Millisecond
)

func (l *loop) askLayout() { l.nextAsk = time.Time{} }

// planLayout asks for metadata when it is time, and returns when that is.
func (l *loop) planLayout(now time.Time) time.Time {
	if l.asking || l.gen == nil {
		return time.Time{}
	}
	at := l.nextAsk
	if soonest := l.layoutAt.Add(layoutPause); at.Before(soonest) {
		at = soonest
	}
	if now.Before(at) {
		return at
	}
	l.asking, l.layoutAt, l.nextAsk = true, now, now.Add(layoutEvery)
	names := slices.Concat(l.topo.Names(), l.watch.leftoverTopics(), l.cfg.emitTopics())
	l.task(func(ctx context.Context) event {
		lay, ids, err := l.cluster.layout(ctx, names)
		return &laidOut{lay, ids, err}
	})
	return time.Time{}
}

// laidOut is the answer to a request for metadata.
type laidOut struct {
	layout layout
	ids    map[string]topics.ID
	err    error
}

func (o *laidOut) apply(l *loop) {
	l.asking = false
	if o.err != nil {
		l.problems.set("metadata", o.err.Error())
		l.askLayout()
		return
	}
	l.problems.set("metadata", "")
	grown := l.layout != nil && l.grew(o.layout)
	l.layout = o.layout
	l.checkEmitted()
	l.lead()
	reshaped := l.identify(o.ids)
	l.afterLoss()
	for _, ln := range l.topo.Lines {
		if o.layout.covered(&ln) < len(o.layout[ln.Topic]) {
			l.watch.hurry() // ours have to grow first
		}
	}
	switch {
	case l.gen == nil:
	case grown:
		l.gen.rejoin("a topic has more partitions than before")
	case reshaped:
		l.reshaped = true
	}
}

// planReshape has the group assign anew where a topic was made anew with other
// partitions, once what is ours of it is committed: a commit of the old topic may
// stand in the new one, which another owner would begin at (I3).
func (l *loop) planReshape() {
	if !l.reshaped || !l.running() {
		return
	}
	for p := range l.owned {
		if p.anew || p.committed < 0 {
			return
		}
	}
	l.reshaped = false
	l.gen.rejoin("a topic was made anew with other partitions")
}

// covered is how many partitions of a main topic can be read: those that every
// topic beside it has too. A topic that is missing does not count: what is to
// be written to it waits.
func (o layout) covered(ln *topology.Line) int {
	n := len(o[ln.Topic])
	for _, topic := range ln.Beside() {
		if leaders, there := o[topic]; there {
			n = min(n, len(leaders))
		}
	}
	return n
}

// lead sets the leaders of the partitions that have none, or another than the
// metadata says.
func (l *loop) lead() {
	for p := range l.owned {
		if p.fetching {
			continue
		}
		p.leader = -1
		leaders := l.layout[p.stage.Topic]
		if p.stage.Name == stageMain && int(p.lane.id) < len(leaders) && int(p.lane.id) >= l.layout.covered(&p.lane.line.Line) {
			l.setPartProblem(p, fmt.Sprintf("%s/%d is not read yet: the topics beside %s have fewer partitions", p.stage.Topic, p.lane.id, p.stage.Topic))
			continue
		}
		if int(p.lane.id) < len(leaders) {
			p.leader = leaders[p.lane.id]
		}
		if p.leader < 0 {
			l.askLayout()
		}
	}
}

// grew reports whether a topic of ours has more partitions to read than it had.
func (l *loop) grew(after layout) bool {
	for topic, so := range l.stages {
		before, n := len(l.layout[topic]), len(after[topic])
		if so.stage.Name == stageMain {
			before, n = l.layout.covered(&so.line.Line), after.covered(&so.line.Line)
		}
		if _, known := l.layout[topic]; known && n > before {
			return true
		}
	}
	return false
}

// identity is which topic bears a name, and with how many partitions.
type identity struct {
	id         topics.ID
	partitions int
}

// identify notices that a topic was deleted and created again. Its offsets mean
// other records now, also where it is longer than our position by this time. It
// reports whether one has another number of partitions.
func (l *loop) identify(ids map[string]topics.ID) (reshaped bool) {
	for topic, id := range ids {
		before, known := l.ids[topic]
		now := identity{id, len(l.layout[topic])}
		l.ids[topic] = now
		if so, stage := l.stages[topic]; known && before.id != id && stage {
			l.madeAnew(so)
			reshaped = reshaped || now.partitions != before.partitions
		}
	}
	return reshaped
}

// madeAnew lets go of what was read of a topic's earlier life. Its partitions
// begin again, a main topic's where --offset-lost says and others' at their
// first record; until then nothing of them is fetched or committed.
func (l *loop) madeAnew(so stageOf) {
	topic := so.stage.Topic
	policy := OffsetEarliest
	if so.stage.Name == stageMain {
		policy = l.cfg.OffsetLost
	}
	text := fmt.Sprintf("topic %s was deleted and created again: its offsets mean other records", topic)
	if policy == OffsetFail {
		l.fail(&Error{ErrOffset, fmt.Errorf("%s: choose where to go on with --offset-lost earliest or latest", text)})
		return
	}
	l.log.Error(text, "going_on_from", string(policy))
	for p := range l.owned {
		if p.stage.Topic == topic {
			l.met.OffsetsLost.WithLabelValues(topic).Inc()
			p.anew = true
			l.relocate(p, policy)
		}
	}
}
