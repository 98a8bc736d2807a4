package engine

import (
	"math/rand/v2"
	"testing"
)

// naive is the tracker's rule, written as plainly as can be.
type naive struct {
	floor int64
	recs  []naiveRec
}

type naiveRec struct {
	next    int64
	settled bool
}

func (n *naive) push(offset int64) { n.recs = append(n.recs, naiveRec{next: offset + 1}) }
func (n *naive) advance(next int64) {
	if i := n.firstOpen(); i == len(n.recs) {
		n.floor = max(n.committable(), next)
		n.recs = nil
		return
	}
	last := &n.recs[len(n.recs)-1]
	last.next = max(last.next, next)
}
func (n *naive) firstOpen() int {
	for i, r := range n.recs {
		if !r.settled {
			return i
		}
	}
	return len(n.recs)
}
func (n *naive) committable() int64 {
	if i := n.firstOpen(); i > 0 {
		return n.recs[i-1].next
	}
	return n.floor
}

func FuzzTracker(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, 300)
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps int) {
		r := rand.New(rand.NewPCG(seed, 1))
		start := r.Int64N(1000)
		tr, model := newTracker[int64](start), naive{floor: start}
		offset, slots, last := start, []uint64(nil), start
		for range min(steps, 2000) {
			switch r.IntN(4) {
			case 0, 1:
				offset += r.Int64N(3) // gaps of compaction
				slots = append(slots, tr.push(offset, offset))
				model.push(offset)
				offset++
			case 2:
				if len(slots) > 0 {
					i := r.IntN(len(slots))
					was := tr.open(slots[i])
					if tr.settle(slots[i]) != was {
						t.Fatalf("settle of slot %d: open was %v", slots[i], was)
					}
					if j := i - (len(slots) - len(model.recs)); j >= 0 {
						model.recs[j].settled = true
					}
				}
			case 3:
				offset += r.Int64N(5) // a control batch
				tr.advance(offset)
				model.advance(offset)
			}
			if got, want := tr.committable(), model.committable(); got != want {
				t.Fatalf("committable %d, want %d", got, want)
			}
			if tr.committable() < last {
				t.Fatalf("committable went back from %d to %d", last, tr.committable())
			}
			last = tr.committable()
		}
	})
}

func TestTrackerKeepsValuesOverGrowth(t *testing.T) {
	tr := newTracker[int64](0)
	var slots []uint64
	for o := range int64(1000) {
		slots = append(slots, tr.push(o, o))
		if o%3 == 0 && o > 100 {
			tr.settle(slots[o-100])
		}
	}
	for o, s := range slots {
		if tr.open(s) && *tr.at(s) != int64(o) {
			t.Fatalf("slot %d holds %d, want %d", s, *tr.at(s), o)
		}
	}
	if tr.settle(slots[0]) != true || tr.settle(slots[0]) != false {
		t.Fatal("a slot was settled twice")
	}
}

func BenchmarkTracker(b *testing.B) {
	tr := newTracker[item](0)
	b.ReportAllocs()
	o := int64(0)
	for b.Loop() {
		for range 100 {
			tr.push(o, item{})
			o++
		}
		for s := tr.tail - 1; s+1 > tr.head; s-- {
			if !tr.settle(s) || s == 0 {
				break
			}
		}
	}
}
