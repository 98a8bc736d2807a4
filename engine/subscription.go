package engine

import (
	"slices"
	"sync"

	"github.com/kconsume/kconsume/engine/topology"
)

// spareTopics is how many leftover tiers a running member can subscribe to
// beyond those that it found at its start. What is found beyond that is named
// as unowned, and read after the next start.
const spareTopics = 16

// subscription is the topics that this member asks the group for. The loop adds
// to it; membership takes what was added up between two generations.
//
// kafka-go (v0.4.51) keeps the list of topics that it was given, without a
// copy, and reads it only while it joins: from the end of one generation's
// functions to the beginning of the next one's. Its length is fixed. The list
// therefore has spare entries, which repeat a main topic (a group knows topics,
// not entries), and membership fills them in while no join is under way.
type subscription struct {
	topics []string // membership's
	taken  int      // membership's: the entries that are not spare
	lines  map[string][]string

	mu    sync.Mutex
	left  int             // spare entries that nothing was added for
	added []addedTopic    // not yet taken up
	all   map[string]bool // topics that are or will be asked for
}

type addedTopic struct{ line, topic string }

func newSubscription(topo *topology.Topology, leftovers [][]topology.Stage) *subscription {
	s := &subscription{lines: map[string][]string{}, left: spareTopics, all: map[string]bool{}}
	for i, ln := range topo.Lines {
		for _, st := range slices.Concat(ln.Stages, leftovers[i]) {
			s.lines[ln.Topic] = append(s.lines[ln.Topic], st.Topic)
			s.topics = append(s.topics, st.Topic)
			s.all[st.Topic] = true
		}
	}
	s.taken = len(s.topics)
	for range spareTopics {
		s.topics = append(s.topics, s.topics[0])
	}
	return s
}

// add asks for a topic from the next generation on, and reports whether there
// was room for it.
func (s *subscription) add(line, topic string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.all[topic]:
		return true
	case s.left == 0:
		return false
	}
	s.left--
	s.all[topic] = true
	s.added = append(s.added, addedTopic{line, topic})
	return true
}

// has reports whether a topic is asked for, now or from the next generation on.
func (s *subscription) has(topic string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[topic]
}

// pending reports whether something was added that no generation has yet.
func (s *subscription) pending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.added) > 0
}

// takeUp makes what was added part of the next join, and returns the lines as
// they then are, nil if nothing was added.
func (s *subscription) takeUp() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.added) == 0 {
		return nil
	}
	lines := map[string][]string{} // anew: the balancer may be reading the last ones
	for line, topics := range s.lines {
		lines[line] = slices.Clone(topics)
	}
	for _, a := range s.added {
		lines[a.line] = append(lines[a.line], a.topic)
		s.topics[s.taken] = a.topic
		s.taken++
	}
	s.lines, s.added = lines, nil
	return lines
}
