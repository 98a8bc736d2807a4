package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/segmentio/kafka-go"
)

func lineOf(main string, tiers ...string) map[string][]string {
	l := []string{main}
	for _, t := range tiers {
		l = append(l, main+".retry."+t)
	}
	return map[string][]string{main: l}
}

func topicsOf(lines map[string][]string) (out []string) {
	for _, l := range lines {
		out = append(out, l...)
	}
	return out
}

func TestAssignKeepsLanesTogether(t *testing.T) {
	l := lineOf("t", "5s", "30s")
	counts := map[string]int{"t": 12, "t.retry.5s": 12, "t.retry.30s": 12}
	var ms []member
	for i := range 3 {
		ms = append(ms, member{id: fmt.Sprint("m", i), topics: topicsOf(l), data: memberData{Lines: l}})
	}
	out := assign(ms, counts)
	checkOnce(t, out, counts)
	for id, topics := range out {
		if len(topics["t"]) != 4 {
			t.Errorf("%s has %d of 12 lanes", id, len(topics["t"]))
		}
		for topic, parts := range topics {
			if !slices.Equal(parts, topics["t"]) {
				t.Errorf("%s: %s has %v, the main topic %v", id, topic, parts, topics["t"])
			}
		}
	}
}

// checkOnce fails unless every partition of every topic has one owner.
func checkOnce(t *testing.T, out kafka.GroupMemberAssignments, counts map[string]int) {
	t.Helper()
	seen := map[topicPartition]string{}
	for id, topics := range out {
		for topic, parts := range topics {
			for _, p := range parts {
				tp := topicPartition{topic, int32(p)}
				if other := seen[tp]; other != "" {
					t.Fatalf("%v belongs to %s and %s", tp, other, id)
				}
				seen[tp] = id
			}
		}
	}
	for topic, n := range counts {
		for p := range n {
			if seen[topicPartition{topic, int32(p)}] == "" {
				t.Fatalf("%s/%d belongs to nobody", topic, p)
			}
		}
	}
}

func TestAssignIsSticky(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		l := lineOf("t", "5s")
		n := 1 + r.IntN(30)
		counts := map[string]int{"t": n, "t.retry.5s": n}
		var ms []member
		gen := int32(1)
		for i := range 1 + r.IntN(5) {
			ms = append(ms, member{id: fmt.Sprint("m", i), topics: topicsOf(l), data: memberData{Lines: l}})
		}
		remember := func(out kafka.GroupMemberAssignments) {
			for i := range ms {
				ms[i].data.Owned, ms[i].data.Gen = map[string][]int{"t": out[ms[i].id]["t"]}, gen
			}
			gen++
		}
		before := assign(slices.Clone(ms), counts)
		remember(before)
		same := assign(slices.Clone(ms), counts)
		for _, m := range ms {
			if !slices.Equal(sorted(same[m.id]["t"]), sorted(before[m.id]["t"])) {
				t.Fatalf("seed %d: nothing changed, yet %s had %v and has %v", seed, m.id, before[m.id]["t"], same[m.id]["t"])
			}
		}
		joined := append(slices.Clone(ms), member{id: "new", topics: topicsOf(l), data: memberData{Lines: l}})
		after := assign(joined, counts)
		checkOnce(t, after, counts)
		moved := 0
		for _, m := range ms {
			for _, p := range before[m.id]["t"] {
				if !slices.Contains(after[m.id]["t"], p) {
					moved++
				}
			}
		}
		if moved != len(after["new"]["t"]) {
			t.Fatalf("seed %d: %d lanes moved, the new member has %d", seed, moved, len(after["new"]["t"]))
		}
	}
}

func sorted(s []int) []int { s = slices.Clone(s); slices.Sort(s); return s }

// A member that was away still claims lanes that others own since.
func TestAssignBelievesTheLatestOwner(t *testing.T) {
	l := lineOf("t")
	old := member{id: "a", topics: topicsOf(l), data: memberData{Lines: l, Owned: map[string][]int{"t": {0, 1}}, Gen: 3}}
	now := member{id: "b", topics: topicsOf(l), data: memberData{Lines: l, Owned: map[string][]int{"t": {0, 1}}, Gen: 9}}
	out := assign([]member{old, now}, map[string]int{"t": 4})
	if got := sorted(out["b"]["t"]); !slices.Equal(got, []int{0, 1}) {
		t.Fatalf("the latest owner has %v, want [0 1]", got)
	}
}

// A rolling deploy changes the tiers: a stage goes only to members that list it.
func TestAssignMixedTiers(t *testing.T) {
	a, b := lineOf("t", "5s", "30s"), lineOf("t", "5s", "2m")
	counts := map[string]int{"t": 4, "t.retry.5s": 4, "t.retry.30s": 4, "t.retry.2m": 4}
	out := assign([]member{
		{id: "a", topics: topicsOf(a), data: memberData{Lines: a}},
		{id: "b", topics: topicsOf(b), data: memberData{Lines: b}},
	}, counts)
	checkOnce(t, out, counts)
	if len(out["b"]["t.retry.30s"]) > 0 || len(out["a"]["t.retry.2m"]) > 0 {
		t.Fatalf("a member was given a stage that it does not know: %v", out)
	}
	for id, topics := range out {
		if !slices.Equal(topics["t"], topics["t.retry.5s"]) {
			t.Errorf("%s: the shared tier is apart from its lane: %v", id, topics)
		}
	}
}

func TestAssignMissingTopicsAndForeignMembers(t *testing.T) {
	l := lineOf("t", "5s")
	out := assign([]member{
		{id: "a", topics: append(topicsOf(l), "nope"), data: memberData{Lines: l}},
		{id: "b", topics: []string{"other"}}, // told nothing of its lines
	}, map[string]int{"t": 2, "t.retry.5s": 2, "other": 1})
	if len(out["a"]["t"]) != 2 || len(out["b"]["other"]) != 1 || out["a"]["nope"] != nil {
		t.Fatalf("got %v", out)
	}
}

func TestUserDataChangesOnlyWithOwnership(t *testing.T) {
	b := &balancer{own: memberData{Lines: lineOf("t")}}
	b.setOwned(1, map[string][]int{"t": {0, 1}})
	first, _ := b.UserData()
	b.setOwned(2, map[string][]int{"t": {0, 1}})
	if second, _ := b.UserData(); string(second) != string(first) {
		t.Fatalf("the same ownership was told as %s, then %s: every reconnect would rebalance the group", first, second)
	}
}
