package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// generation is one of the group's, as the brokers know it.
type generation struct {
	id       int32
	assigned map[string]map[topicPartition]bool // by member id; nil until the leader has told
	base     map[string]map[int32]int64         // committed when it began
}

// synced is a generation that a member has asked to be in.
type synced struct {
	id      string // the member id
	gen     int32
	working bool // it was seen at work in it: it has sent a record, or committed
}

// tenureID names the time in which a member holds a partition without a break.
type tenureID struct {
	member string
	since  int // index of its first generation in the member's list
	tp     topicPartition
}

// tenure is such a time: see the package's comment.
type tenure struct {
	id   tenureID
	base int64 // committed at its begin, 0 = nothing was
}

// tenureOf is the tenure in which a member sends a record of a partition; nil =
// the partition is not the member's. The caller holds mu.
func (l *ledger) tenureOf(m *member, tp topicPartition) *tenure {
	i := len(m.syncs) - 1
	if i < 0 || !l.assigns(m.syncs[i], tp) {
		return nil
	}
	m.syncs[i].working = true
	for i > 0 && l.follows(m.syncs[i-1], m.syncs[i]) && l.assigns(m.syncs[i-1], tp) {
		i--
	}
	id := tenureID{m.name, i, tp}
	t := l.tenures[id]
	if t == nil {
		t = &tenure{id: id, base: max(0, l.gens[m.syncs[i].gen].base[tp.topic][tp.partition])}
		l.tenures[id] = t
		l.countBound(t)
	}
	return t
}

// follows reports whether a member may have gone on from one generation to the
// next. Where nothing shows that it was at work in the first, it may also have
// missed that one: it then has to begin anew, and nothing tells the two apart.
func (l *ledger) follows(before, after *synced) bool {
	return before.working && before.id == after.id && (after.gen == before.gen || after.gen == before.gen+1)
}

func (l *ledger) assigns(s *synced, tp topicPartition) bool {
	return l.gens[s.gen].assigned[s.id][tp]
}

// countBound adds what a new tenure may repeat: positions at or above its base
// that were sent before.
func (l *ledger) countBound(t *tenure) {
	g := l.log(t.id.tp)
	for _, p := range g.positions[min(t.base, int64(len(g.positions))):] {
		if p.rec != nil && slices.ContainsFunc(p.rec.sent, func(d *delivery) bool { return d.stage == p.tp && d.attempt == p.failed+1 }) {
			l.stats.Bound++
		}
	}
}

// sync notes a SyncGroup request that a broker takes.
func (l *ledger) sync(q *kmsg.SyncGroupRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.gens[q.Generation]
	if g == nil {
		g = &generation{id: q.Generation, base: l.committed()}
		delete(g.base, l.unsure)
		l.gens[q.Generation] = g
		l.latest = max(l.latest, g.id)
	}
	if g.assigned == nil && len(q.GroupAssignment) > 0 {
		g.assigned = assignments(q)
	}
	m := l.member(q.MemberID)
	if m == nil {
		return
	}
	l.history.add(event{what: "sync", member: m.name, n: int(q.Generation), note: q.MemberID})
	s := m.current()
	if s != nil && q.Generation < s.gen {
		return // it was held up, and the member has gone on since
	}
	m.thawed = time.Time{}
	if s != nil && s.id == q.MemberID && s.gen == q.Generation {
		return
	}
	m.syncs = append(m.syncs, &synced{id: q.MemberID, gen: q.Generation})
}

// stoodLong is how long a member has to stand still to know of itself that the
// group may have gone on without it.
const stoodLong = sessionTimeout/3 + 2*time.Second

// wentOn notes that a member goes on that stood still. What it had on its way
// then nobody can call back, but if that was for long it has to ask the group
// before it begins anything.
func (l *ledger) wentOn(m *member, stood time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history.fault(m.name, "it goes on")
	if stood > stoodLong {
		m.thawed = time.Now()
	}
}

// checkAsked is I7 of a member that begins something. The caller holds mu.
func (l *ledger) checkAsked(m *member, rec *record, what string) {
	if !m.thawed.IsZero() {
		l.violate("I7", "%s: %s is %s by a member that stood still and has not asked the group since", m.name, rec.id(), what)
	}
}

func assignments(q *kmsg.SyncGroupRequest) map[string]map[topicPartition]bool {
	all := map[string]map[topicPartition]bool{}
	for _, one := range q.GroupAssignment {
		parts := map[topicPartition]bool{}
		var a kmsg.ConsumerMemberAssignment
		if err := a.ReadFrom(one.MemberAssignment); err == nil {
			for _, t := range a.Topics {
				for _, p := range t.Partitions {
					parts[topicPartition{t.Topic, p}] = true
				}
			}
		}
		all[one.MemberID] = parts
	}
	return all
}

// member is the member that a member id belongs to: brokers put the client's id
// in front. The caller holds mu.
func (l *ledger) member(id string) *member {
	name, _, _ := strings.Cut(id, "-")
	return l.members[name]
}
