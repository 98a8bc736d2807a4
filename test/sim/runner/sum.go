package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kconsume/kconsume/test/sim"
)

// sum is what all seeds went through.
type sum struct {
	seeds  int
	failed []outcome
	sim.Stats
	drained time.Duration // the longest
	worst   float64       // duplicates in relation to deliveries, of the worst seed
}

func newSum() *sum {
	return &sum{Stats: sim.Stats{Faults: map[sim.Kind]int{}, Hits: map[sim.Kind]int{}}}
}

func (s *sum) add(o outcome) {
	s.seeds++
	if o.failed() {
		s.failed = append(s.failed, o)
		fmt.Printf("seed %d FAILED: %s\n  history: %s\n", o.Seed, o.why(), o.History)
	}
	st := &o.Stats
	s.Records += st.Records
	s.Sent += st.Sent
	s.Handled += st.Handled
	s.Dead += st.Dead
	s.Emitted += st.Emitted
	s.Commits += st.Commits
	s.Crashes += st.Crashes
	s.Stops += st.Stops
	s.Generations += st.Generations
	s.Duplicates += st.Duplicates
	s.Bound += st.Bound
	s.Virtual += st.Virtual
	s.drained = max(s.drained, st.Drained)
	s.SlowestStop = max(s.SlowestStop, st.SlowestStop)
	if st.Sent > 0 {
		s.worst = max(s.worst, float64(st.Duplicates)/float64(st.Sent))
	}
	for k, n := range st.Faults {
		s.Faults[k] += n
		s.Hits[k] += st.Hits[k]
	}
}

// fewSeeds is how many seeds it takes for each kind of fault to have acted.
const fewSeeds = 100

// idle are the kinds of faults that acted on nothing, where that says something:
// what is planned and does nothing tests nothing.
func (s *sum) idle() (kinds []sim.Kind) {
	for k := range s.Faults {
		if s.seeds >= fewSeeds && s.Hits[k] == 0 {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

func (s *sum) print(wall time.Duration, rss int64) {
	faults := 0
	for _, n := range s.Faults {
		faults += n
	}
	fmt.Printf("\n%d seeds, %d failed\n", s.seeds, len(s.failed))
	fmt.Printf("records     %d produced, %d deliveries, %d acknowledged, %d in the DLQ, %d emitted, %d commits\n", s.Records, s.Sent, s.Handled, s.Dead, s.Emitted, s.Commits)
	fmt.Printf("members     %d crashes, %d stops (slowest %v), %d rebalances\n", s.Crashes, s.Stops, s.SlowestStop.Round(time.Millisecond), s.Generations)
	fmt.Printf("duplicates  %d, bound %d; %.1f %% of deliveries, at worst %.1f %% in a seed\n", s.Duplicates, s.Bound, 100*float64(s.Duplicates)/float64(max(1, s.Sent)), 100*s.worst)
	fmt.Printf("faults      %d\n", faults)
	for _, k := range slices.Sorted(maps.Keys(s.Faults)) {
		fmt.Printf("  %-24s %6d, acted on %d\n", k, s.Faults[k], s.Hits[k])
	}
	fmt.Printf("time        %v virtual in %v, drained after at most %v; %d MiB in the largest process\n",
		s.Virtual.Round(time.Second), wall.Round(100*time.Millisecond), s.drained.Round(time.Millisecond), rss>>10)
}
