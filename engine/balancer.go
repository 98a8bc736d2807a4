package engine

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"sort"
	"sync"

	"github.com/segmentio/kafka-go"
)

// balancerProtocol names our assignment in the group protocol. Members that do
// not know it cannot join, as kafka-go's and others' balancers would tear
// partitions of a lane apart.
const balancerProtocol = "kconsume-lanes"

// memberData is what a member tells the leader: how its topics form lines, and
// which lanes it owned at which generation, so that they stay with it.
type memberData struct {
	Lines map[string][]string `json:"lines"` // main topic → its stages' topics
	Owned map[string][]int    `json:"owned,omitempty"`
	Gen   int32               `json:"gen,omitempty"`
	// Fenced counts the generations whose last commit had no answer. It means
	// nothing to the leader, but has it end that generation.
	Fenced int `json:"fenced,omitempty"`
}

// balancer assigns lanes: partition p of every stage of a line goes to one
// member. It is sticky over generations, and a stage that a lane's owner does
// not know (a rolling deploy changes the tiers) goes to a member that does.
//
// kafka-go calls it from its own goroutine; mu guards own.
type balancer struct {
	counts func(topics []string) (map[string]int, error) // partitions of topics that exist
	failed func(error)

	mu  sync.Mutex
	own memberData
}

func (b *balancer) ProtocolName() string { return balancerProtocol }

// UserData tells what this member owns. It changes only when that does: a
// changed one turns a reconnect into a rebalance of the whole group.
func (b *balancer) UserData() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return json.Marshal(b.own)
}

// setOwned notes the lanes of a generation that this member has joined.
func (b *balancer) setOwned(gen int32, owned map[string][]int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !maps.EqualFunc(b.own.Owned, owned, slices.Equal) {
		b.own.Owned, b.own.Gen = owned, gen
	}
}

// fence has the next join end the generation for the whole group: what is still
// on its way of it is refused from then on. Without it a member that comes back
// may get the same generation again (I4).
func (b *balancer) fence() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.own.Fenced++
}

// setLines notes what this member's topics are from the next join on.
func (b *balancer) setLines(lines map[string][]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.own.Lines = lines
}

// AssignGroups is called on the group's leader. Its partitions argument is not
// used: one unknown topic in any member's list would empty it for all.
func (b *balancer) AssignGroups(members []kafka.GroupMember, _ []kafka.Partition) kafka.GroupMemberAssignments {
	seen := map[string]bool{}
	var topics []string
	for _, m := range members {
		for _, t := range m.Topics {
			if !seen[t] {
				seen[t] = true
				topics = append(topics, t)
			}
		}
	}
	counts, err := b.counts(topics)
	if err != nil {
		b.failed(err) // an empty assignment: the loop alarms and the group is joined again
		return kafka.GroupMemberAssignments{}
	}
	ms := make([]member, 0, len(members))
	for _, m := range members {
		d := memberData{}
		_ = json.Unmarshal(m.UserData, &d) // a member of another make owned nothing
		ms = append(ms, member{id: m.ID, topics: m.Topics, data: d})
	}
	return assign(ms, counts)
}

// member is one member as assign sees it.
type member struct {
	id     string
	topics []string
	data   memberData
}

// laneID is a line's partition number.
type laneID struct {
	line string
	p    int
}

// assign is the pure assignment: lanes evenly over the members that know the
// line, kept where they were, and each stage's partition with its lane or, if
// the lane's owner does not list that topic, with a member that does.
func assign(members []member, counts map[string]int) kafka.GroupMemberAssignments {
	slices.SortFunc(members, func(a, b member) int { return cmp.Compare(a.id, b.id) })
	lines := linesOf(members)
	out := kafka.GroupMemberAssignments{}
	load := map[string]int{}
	for _, main := range slices.Sorted(maps.Keys(lines)) {
		stages := lines[main]
		owners := assignLanes(main, lanesOf(stages, counts), members, load)
		for _, topic := range stages {
			for p := range counts[topic] {
				id := owners[p]
				if !lists(members, id, topic) {
					id = stand(members, topic, p)
				}
				if id == "" {
					continue // nobody lists it
				}
				if out[id] == nil {
					out[id] = map[string][]int{}
				}
				out[id][topic] = append(out[id][topic], p)
			}
		}
	}
	return out
}

// linesOf unites what the members say of their lines. A topic that no member
// puts in a line is a line of its own.
func linesOf(members []member) map[string][]string {
	lines := map[string][]string{}
	placed := map[string]bool{}
	for _, m := range members {
		for _, main := range slices.Sorted(maps.Keys(m.data.Lines)) {
			for _, topic := range m.data.Lines[main] {
				if !placed[topic] && slices.Contains(m.topics, topic) {
					placed[topic] = true
					lines[main] = append(lines[main], topic)
				}
			}
		}
	}
	for _, m := range members {
		for _, topic := range m.topics {
			if !placed[topic] {
				placed[topic] = true
				lines[topic] = append(lines[topic], topic)
			}
		}
	}
	return lines
}

// lanesOf is how many lanes a line has: the most partitions of any stage.
func lanesOf(stages []string, counts map[string]int) int {
	n := 0
	for _, t := range stages {
		n = max(n, counts[t])
	}
	return n
}

// assignLanes gives every lane of a line an owner among the members that list
// its main topic. load counts the lanes of all lines, so that lines even out.
func assignLanes(main string, lanes int, members []member, load map[string]int) []string {
	var able []member
	for _, m := range members {
		if slices.Contains(m.topics, main) {
			able = append(able, m)
		}
	}
	owners := make([]string, lanes)
	if len(able) == 0 {
		return owners
	}
	quota := lanes / len(able)
	extra := lanes % len(able) // this many members may have one more
	taken := map[string]int{}
	for p, candidates := range claims(main, lanes, able) {
		for _, id := range candidates {
			if taken[id] < quota || taken[id] == quota && extra > 0 {
				if taken[id] == quota {
					extra--
				}
				taken[id]++
				owners[p] = id
				break
			}
		}
	}
	for p := range owners {
		if owners[p] != "" {
			continue
		}
		best := slices.MinFunc(able, func(a, b member) int {
			return cmp.Or(cmp.Compare(taken[a.id], taken[b.id]), cmp.Compare(load[a.id], load[b.id]), cmp.Compare(a.id, b.id))
		})
		taken[best.id]++
		owners[p] = best.id
	}
	for id, n := range taken {
		load[id] += n
	}
	return owners
}

// claims are, for each lane, the members that owned it, the latest owner first:
// a member that was away may still believe in lanes that have moved since.
func claims(main string, lanes int, able []member) [][]string {
	byGen := slices.Clone(able)
	sort.SliceStable(byGen, func(i, j int) bool { return byGen[i].data.Gen > byGen[j].data.Gen })
	out := make([][]string, lanes)
	for _, m := range byGen {
		for _, p := range m.data.Owned[main] {
			if p >= 0 && p < lanes && !slices.Contains(out[p], m.id) {
				out[p] = append(out[p], m.id)
			}
		}
	}
	return out
}

func lists(members []member, id, topic string) bool {
	return slices.ContainsFunc(members, func(m member) bool { return m.id == id && slices.Contains(m.topics, topic) })
}

// stand finds a member that lists a topic, spread by partition.
func stand(members []member, topic string, p int) string {
	var able []string
	for _, m := range members {
		if slices.Contains(m.topics, topic) {
			able = append(able, m.id)
		}
	}
	if len(able) == 0 {
		return ""
	}
	return able[p%len(able)]
}
