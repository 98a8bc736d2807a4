package main

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/kconsume/kconsume/test/chaos/journal"
)

// commits checks I3 and I4: whenever the group's offsets were read, everything
// below them was settled, and none had gone back.
func (x *index) commits(f *findings) {
	ahead := f.promise("committed before it was settled")
	back := f.promise("committed offsets that went back")
	last := map[place]int64{}
	for _, s := range x.snapshots {
		for at, offset := range s.committed {
			if offset < last[at] {
				back.add("%s/%d: %d after %d", at.topic, at.partition, offset, last[at])
			}
			last[at] = offset
			if t := x.settlements[at].before(offset); t > s.at {
				late := "never"
				if t < math.MaxInt64 {
					late = time.Duration(t-s.at).String() + " later"
				}
				ahead.add("%s/%d: %d was committed; what lies below was settled %s", at.topic, at.partition, offset, late)
			}
		}
	}
}

// settlings are, for one partition of a stage, the offsets and until when all
// up to each was settled, in unix ns.
type settlings struct {
	offsets []int64
	until   []int64
}

func (s *settlings) add(offset, at int64) {
	if n := len(s.until); n > 0 {
		at = max(at, s.until[n-1])
	}
	s.offsets, s.until = append(s.offsets, offset), append(s.until, at)
}

// before is when everything below an offset was settled.
func (s *settlings) before(offset int64) int64 {
	if s == nil {
		return 0
	}
	n := sort.Search(len(s.offsets), func(i int) bool { return s.offsets[i] >= offset })
	if n == 0 {
		return 0
	}
	return s.until[n-1]
}

// settled is when each record of each stage was, at the earliest.
func (x *index) settled() map[place]*settlings {
	out := map[place]*settlings{}
	for p := range x.sources {
		s := &settlings{}
		out[place{x.stages[0], int32(p)}] = s
		for o := range x.sources[p] {
			s.add(int64(o), x.settledAt(call{record{int32(p), int64(o)}, 1}))
		}
	}
	for i := range x.forwarded {
		w := &x.forwarded[i]
		if w.topic == topicDLQ || w.foreign != "" {
			continue
		}
		s := out[w.place]
		if s == nil {
			s = &settlings{}
			out[w.place] = s
		}
		c := call{w.origin, int16(w.failed + 1)}
		at := x.settledAt(c)
		for _, copy := range x.copies[c] {
			if copy.place == w.place && copy.offset > w.offset {
				at = min(at, copy.at*1e6) // written again to the end of its tier
			}
		}
		s.add(w.offset, at)
	}
	return out
}

// settledAt is when an attempt at a record was settled: done, or forwarded.
func (x *index) settledAt(c call) int64 {
	at := int64(math.MaxInt64)
	for _, i := range x.groups[c] {
		if d := &x.deliveries[i]; d.outcome == journal.Done {
			at = min(at, d.end)
		}
	}
	for _, w := range x.copies[call{c.record, c.attempt + 1}] {
		at = min(at, w.at*1e6)
	}
	for _, w := range x.dead[c.record] {
		if w.failed == int(c.attempt) {
			at = min(at, w.at*1e6)
		}
	}
	return at
}

// latest is the last snapshot taken before a moment, nil if there is none.
func (x *index) latest(before int64) map[place]int64 {
	n, _ := slices.BinarySearchFunc(x.snapshots, before, func(s snapshot, t int64) int {
		if s.at < t {
			return -1
		}
		return 1
	})
	if n == 0 {
		return nil
	}
	return x.snapshots[n-1].committed
}
