package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kconsume/kconsume/engine/backlog"
	"github.com/kconsume/kconsume/engine/topology"
)

// Topics and the group are inspected while the engine runs: now and then, and
// soon where something calls for it. The search for leftover tiers and for
// records of groups that are gone lists all topics, and is for a beginning of a
// generation and for every few minutes.
const (
	watchEvery  = 30 * time.Second
	watchPause  = 2 * time.Second // the least time between two inspections
	searchEvery = 3 * time.Minute
	// reownEvery is how often a partition without an owner makes the group
	// assign anew.
	reownEvery = time.Minute
)

// maxGroups bounds how many other groups' names are kept, and how long one is.
const (
	maxGroups    = 64
	maxGroupName = 255
)

// watch is what inspections have found. The owner loop alone uses it; the
// inspections themselves run beside the loop.
type watch struct {
	asking     bool
	askedAt    time.Time // the last inspection
	nextAsk    time.Time
	nextSearch time.Time
	nextReown  time.Time

	subs      *subscription
	leftovers []stageOf
	beyond    []string // leftover tiers with unread records that there was no room for
	problems  map[topicProblem]string
	compacted map[string]bool // topics that nothing is written to until they are mended
	unowned   map[string][]int
	groups    map[string]bool // other groups whose records we have met
	orphans   []OrphanStatus
}

type topicProblem struct {
	topic string
	kind  topology.ProblemKind
}

func newWatch() watch {
	return watch{problems: map[topicProblem]string{}, compacted: map[string]bool{}, unowned: map[string][]int{}, groups: map[string]bool{}}
}

// hurry asks for an inspection soon.
func (w *watch) hurry() { w.nextAsk = time.Time{} }

// search asks for one that looks for leftover tiers too.
func (w *watch) search() { w.nextAsk, w.nextSearch = time.Time{}, time.Time{} }

// met notes that a record of another group was passed over.
func (w *watch) met(group string) {
	if len(group) <= maxGroupName && len(w.groups) < maxGroups {
		w.groups[group] = true
	}
}

func (w *watch) leftoverTopics() []string {
	var topics []string
	for _, so := range w.leftovers {
		topics = append(topics, so.stage.Topic)
	}
	return topics
}

// addLeftover makes a leftover tier a stage of its line.
func (l *loop) addLeftover(line string, st topology.Stage) {
	so := stageOf{l.lines[line], st}
	l.stages[st.Topic] = so
	l.watch.leftovers = append(l.watch.leftovers, so)
	l.cluster.transport.know(st.Topic)
	l.log.Info("draining a tier of earlier settings, in which records of this group wait", "topic", st.Topic, "delay", topology.FormatDelay(st.Delay))
}

// planWatch starts an inspection when it is time, and returns when that is.
func (l *loop) planWatch(now time.Time) time.Time {
	w := &l.watch
	if w.asking || w.subs == nil || !l.running() {
		return time.Time{}
	}
	if w.subs.pending() {
		l.gen.rejoin("a leftover tier is to be drained")
		return time.Time{}
	}
	at := w.nextAsk
	if soonest := w.askedAt.Add(watchPause); at.Before(soonest) {
		at = soonest
	}
	if now.Before(at) {
		return at
	}
	w.asking, w.askedAt, w.nextAsk = true, now, now.Add(watchEvery)
	i := inspection{cfg: l.cfg, topo: l.topo, cluster: l.cluster, leftovers: append(w.leftoverTopics(), w.beyond...), strange: len(w.beyond) > 0}
	if !now.Before(w.nextSearch) {
		i.search, w.nextSearch = true, now.Add(searchEvery)
		i.groups = slices.Sorted(maps.Keys(w.groups))
	}
	l.task(i.do)
	return time.Time{}
}

func (i *inspected) apply(l *loop) {
	l.watch.asking = false
	if i.err != nil {
		l.problems.set("topics", i.err.Error())
	} else {
		l.problems.set("topics", "")
		l.setTopicProblems(i.problems)
	}
	for _, c := range i.grown {
		l.log.Info("added partitions", "topic", c.Topic, "partitions", c.Partitions, "before", c.Before)
		l.askLayout()
	}
	if i.groupErr != nil {
		l.problems.set("group's partitions", i.groupErr.Error())
	} else {
		l.problems.set("group's partitions", "")
		l.setUnowned(i.unowned)
	}
	for _, g := range i.groups {
		l.watch.met(g)
	}
	switch {
	case i.searchErr != nil:
		l.problems.set("leftover tiers", i.searchErr.Error())
	case i.searched:
		l.problems.set("leftover tiers", l.takeLeftovers(i.leftovers))
	}
	switch {
	case i.censusErr != nil:
		l.problems.set("records of other groups", i.censusErr.Error())
	case i.searched:
		l.problems.set("records of other groups", "")
		l.setOrphans(i.orphans)
	}
}

// setTopicProblems tells what cannot work, once, and when it is over. It upholds
// I1: a compacted topic would lose records that wait under one key.
func (l *loop) setTopicProblems(found []*topology.Problem) {
	w := &l.watch
	now := map[topicProblem]string{}
	clear(w.compacted)
	for _, p := range found {
		now[topicProblem{p.Topic, p.Kind}] = p.Error()
		if p.Kind == topology.Compacted {
			w.compacted[p.Topic] = true
		}
	}
	for k := range w.problems {
		if _, still := now[k]; !still {
			l.problems.set(k.name(), "")
			l.met.TopicProblems.DeleteLabelValues(k.topic, string(k.kind))
		}
	}
	for k, text := range now {
		l.problems.fault(k.name(), text)
		l.met.TopicProblems.WithLabelValues(k.topic, string(k.kind)).Set(1)
	}
	w.problems = now
}

func (k topicProblem) name() string { return fmt.Sprintf("topic %s: %s", k.topic, k.kind) }

// setUnowned notes the partitions with unread records that no member has. Where
// this member knows the topic the group has to assign anew.
func (l *loop) setUnowned(unowned map[string][]int) {
	w := &l.watch
	for topic := range w.unowned {
		if len(unowned[topic]) == 0 {
			l.met.Unowned.DeleteLabelValues(topic)
			l.problems.set("unowned partitions of "+topic, "")
		}
	}
	mine := false
	for topic, parts := range unowned {
		l.met.Unowned.WithLabelValues(topic).Set(float64(len(parts)))
		l.problems.set("unowned partitions of "+topic, fmt.Sprintf("no member of the group reads partitions %v of %s, which have unread records", parts, topic))
		mine = mine || w.subs.has(topic)
	}
	w.unowned = unowned
	if now := time.Now(); mine && l.running() && !now.Before(w.nextReown) {
		w.nextReown = now.Add(reownEvery)
		l.gen.rejoin("partitions of known topics have no owner")
	}
}

// takeLeftovers subscribes to tiers that were found; the next generation has
// them. It returns what is wrong if there is no room for all.
func (l *loop) takeLeftovers(found [][]topology.Stage) (problem string) {
	l.watch.beyond = nil
	for i, stages := range found {
		line := l.topo.Lines[i].Topic
		for _, st := range stages {
			if _, known := l.stages[st.Topic]; known {
				continue
			}
			if !l.watch.subs.add(line, st.Topic) {
				l.watch.beyond = append(l.watch.beyond, st.Topic)
				problem = fmt.Sprintf("more than %d leftover tiers were found since the start: restart to read %v", spareTopics, l.watch.beyond)
				continue
			}
			l.addLeftover(line, st)
		}
	}
	return problem
}

func (l *loop) setOrphans(orphans []OrphanStatus) {
	total := 0
	for _, o := range orphans {
		total += o.Records
		l.problems.set("records of group "+o.Group, fmt.Sprintf("%d records wait for group %q, in which nobody is: take them over with kconsume retries adopt --from %q", o.Records, o.Group, o.Group))
	}
	for _, o := range l.watch.orphans {
		if !slices.ContainsFunc(orphans, func(n OrphanStatus) bool { return n.Group == o.Group }) {
			l.problems.set("records of group "+o.Group, "")
		}
	}
	l.met.Orphans.Set(float64(total))
	l.watch.orphans = orphans
}

// status adds what inspections have found to a snapshot.
func (w *watch) status(s *Status) {
	for k, text := range w.problems {
		s.TopicProblems = append(s.TopicProblems, TopicProblem{Topic: k.topic, Problem: string(k.kind), Text: text})
	}
	slices.SortFunc(s.TopicProblems, func(a, b TopicProblem) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Problem, b.Problem))
	})
	for _, topic := range slices.Sorted(maps.Keys(w.unowned)) {
		s.Unowned = append(s.Unowned, UnownedStatus{Topic: topic, Partitions: w.unowned[topic]})
	}
	s.Orphans = w.orphans
}

// placesOf are partitions by topic, in order.
func placesOf(places []backlog.Place) map[string][]int {
	out := map[string][]int{}
	for _, p := range places {
		out[p.Topic] = append(out[p.Topic], p.Partition)
	}
	for _, parts := range out {
		slices.Sort(parts)
	}
	return out
}
