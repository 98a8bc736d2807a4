package engine

import "container/heap"

// gate holds the records of a retry tier that are read and not yet due, the
// earliest due first: a record behind one that waits is not delayed by it.
// The owner loop alone uses it. It upholds I6.
type gate struct{ h waitHeap }

type waiting struct {
	due  int64 // unix ms
	slot uint64
}

func (g *gate) add(due int64, slot uint64) { heap.Push(&g.h, waiting{due, slot}) }

// next is the earliest due time, in unix ms.
func (g *gate) next() (due int64, ok bool) {
	if len(g.h) == 0 {
		return 0, false
	}
	return g.h[0].due, true
}

// pop takes the earliest record if it is due at now.
func (g *gate) pop(now int64) (w waiting, ok bool) {
	if len(g.h) == 0 || g.h[0].due > now {
		return waiting{}, false
	}
	return heap.Pop(&g.h).(waiting), true
}

// takeBelow removes and returns the waiting slots below a limit that are due
// from a time on.
func (g *gate) takeBelow(limit uint64, from int64) []uint64 {
	var taken []uint64
	kept := g.h[:0]
	for _, w := range g.h {
		if w.slot < limit && w.due >= from {
			taken = append(taken, w.slot)
		} else {
			kept = append(kept, w)
		}
	}
	g.h = kept
	heap.Init(&g.h)
	return taken
}

func (g *gate) len() int { return len(g.h) }

// waitHeap orders by due time, then by slot: equal times keep the topic's order.
type waitHeap []waiting

func (h waitHeap) Len() int { return len(h) }
func (h waitHeap) Less(i, j int) bool {
	return h[i].due < h[j].due || h[i].due == h[j].due && h[i].slot < h[j].slot
}
func (h waitHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *waitHeap) Push(x any)   { *h = append(*h, x.(waiting)) }
func (h *waitHeap) Pop() any {
	old := *h
	w := old[len(old)-1]
	*h = old[:len(old)-1]
	return w
}
