package engine

import (
	"slices"

	"github.com/kconsume/kconsume/metrics"
	"github.com/prometheus/client_golang/prometheus"
)

// addPartition makes a partition that this member has come to own.
func (l *loop) addPartition(so stageOf, id int32, committed, position int64) {
	lid := laneID{so.line.Topic, int(id)}
	ln := l.lanes[lid]
	if ln == nil {
		ln = &lane{line: so.line, id: id, keys: newKeys(), running: running{}}
		l.lanes[lid] = ln
	}
	p := &partition{
		lane: ln, stage: so.stage, track: newTracker[item](position), position: position,
		committed: committed, high: -1, leader: -1, inflation: 1,
		handled: map[metrics.Outcome]prometheus.Counter{},
	}
	for _, o := range []metrics.Outcome{metrics.OutcomeAck, metrics.OutcomeDrop, metrics.OutcomeRetry, metrics.OutcomeDead, metrics.OutcomeSkipped} {
		p.handled[o] = l.met.Messages.WithLabelValues(so.line.Topic, so.stage.Name, string(o))
	}
	if so.stage.Delay > 0 {
		p.lateness = l.met.Lateness.WithLabelValues(so.line.Topic, so.stage.Name)
	}
	i := slices.Index(l.parts, nil)
	if i < 0 {
		i = len(l.parts)
		l.parts = append(l.parts, nil)
	}
	if l.journal.unclean {
		p.careful = l.cfg.Concurrency
		l.carefulLeft += p.careful
	}
	p.idx = uint32(i)
	l.parts[i] = p
	l.byTopic[topicPartition{so.stage.Topic, id}] = p
}

// dropPartition gives up a partition that is no longer ours: its calls are
// cancelled, their answers dropped, and nothing of it is committed.
func (l *loop) dropPartition(p *partition) {
	p.gone = true
	delete(l.byTopic, topicPartition{p.stage.Topic, p.lane.id})
	l.held -= p.held
	p.held = 0
	l.carefulLeft -= p.careful
	p.careful = 0
	p.outbox = nil
	l.dropUnwanted()
	p.lane.keys.forget()
	var cancel []uint64
	for s := p.track.head; s < p.track.tail; s++ {
		if !p.track.open(s) {
			continue
		}
		switch it := p.track.at(s); it.state {
		case itemFlying:
			cancel = append(cancel, p.handle(s))
			p.lane.running.add(p.placeOf(s))
		case itemReady:
			l.leaveKey(p.lane, it.key, it.keyed)
		}
	}
	if len(cancel) > 0 {
		l.deliver.Cancel(cancel)
	}
	l.met.Lag.DeleteLabelValues(p.stage.Topic, itoa(p.lane.id))
	l.free(p)
}

// free takes a lost partition's index back once no call can name it any more.
func (l *loop) free(p *partition) {
	if !p.gone || p.flying > 0 || p.late > 0 {
		return
	}
	l.parts[p.idx] = nil
	lid := laneID{p.lane.line.Topic, int(p.lane.id)}
	if p.lane.keys.idle() && len(p.lane.running) == 0 && l.lanes[lid] == p.lane && !l.ownsLane(p.lane) {
		delete(l.lanes, lid)
	}
}

func (l *loop) ownsLane(ln *lane) bool {
	for _, p := range l.parts {
		if p != nil && p.lane == ln {
			return true
		}
	}
	return false
}

// idleShare is what a partition in which nothing waits may hold: enough for a
// first fetch, which makes it busy.
const idleShare = 64 << 10

// shares divides the buffer: half for the main topics, half for all stages
// beside them, so that what waits never takes room from what runs. Within a
// half the busy partitions have equal shares.
func (l *loop) shares() {
	var mains, others int
	for p := range l.owned {
		switch {
		case !p.busy:
		case p.stage.Name == stageMain:
			mains++
		default:
			others++
		}
	}
	for p := range l.owned {
		n := others
		if p.stage.Name == stageMain {
			n = mains
		}
		p.share = idleShare
		if p.busy {
			p.share = max(idleShare, l.cfg.MaxBuffer/2/n)
		}
	}
}

// settleBusy lets partitions that have run dry give up their shares.
func (l *loop) settleBusy() {
	for p := range l.owned {
		p.busy = p.track.len() > 0 || p.high > p.position
	}
	l.shares()
}
