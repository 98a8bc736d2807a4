package sim

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// commits checks a commit that a broker is about to apply, or to refuse: who is
// no longer in the group may not be ahead either.
func (l *ledger) commits(q *kmsg.OffsetCommitRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seeCommits()
	for tp, g := range l.logs {
		if g.applied < len(g.positions) {
			l.settleLog(tp)
		}
	}
	m := l.member(q.MemberID)
	if m != nil && m.crashed {
		m = nil // it was on its way
	}
	for _, t := range q.Topics {
		for _, p := range t.Partitions {
			tp := topicPartition{t.Topic, p.Partition}
			if m != nil {
				l.history.add(event{what: "commit", member: m.name, note: tp.String(), n: int(p.Offset)})
				if s := m.current(); s != nil && s.id == q.MemberID && s.gen == q.Generation && l.log(tp).committed >= 0 {
					s.working = true
					if s.gen == l.latest {
						m.thawed = time.Time{}
					}
				}
			}
			l.checkCommit(q.MemberID, tp, p.Offset)
		}
	}
	l.stats.Commits++
}

// checkCommit is I3: everything below a commit is accounted for. What was below
// an earlier one stays so.
func (l *ledger) checkCommit(who string, tp topicPartition, offset int64) {
	if tp.topic == l.unsure {
		return // an offset of the old topic, for what its sender knew
	}
	g := l.settleLog(tp)
	if offset > int64(len(g.positions)) {
		l.violate("I3", "%s commits %v up to %d, which ends at %d", who, tp, offset, len(g.positions))
		return
	}
	for ; g.passed < offset; g.passed++ {
		p := g.positions[g.passed]
		if p.accounted() {
			continue
		}
		l.violate("I3", "%s commits %v up to %d, but offset %d (%s, %d failed) is not accounted for: handled at attempt %d, forwarded with %d failed",
			who, tp, offset, p.offset, p.rec.id(), p.failed, p.rec.handled, p.rec.forwarded)
	}
}

// seeCommits is I4: what is committed never falls. The caller holds mu.
func (l *ledger) seeCommits() {
	for topic, parts := range l.committed() {
		for p, at := range parts {
			tp := topicPartition{topic, p}
			g := l.log(tp)
			if at < g.committed && topic != l.unsure {
				l.violate("I4", "what is committed of %v fell from %d to %d", tp, g.committed, at)
			}
			g.committed = at
		}
	}
}
