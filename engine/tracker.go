package engine

// tracker holds what was read of one partition, in offset order, until a
// commit may pass it: the highest offset below which everything is settled.
//
// Entries are named by a slot, which counts up for ever and is not an offset:
// offsets have gaps (compaction, control batches), slots have none. Values are
// stored by value in a ring that grows to the most that was ever held at once
// and shrinks no further than that; the owner bounds it by bytes.
//
// The owner loop alone uses it. It upholds I3 and I4.
type tracker[T any] struct {
	ring       []entry[T] // length is a power of two, or zero
	head, tail uint64     // slots: the oldest held, the next to be given
	floor      int64      // every offset below it is settled
}

type entry[T any] struct {
	value   T
	next    int64 // the offset to commit once this and everything before it is settled
	settled bool
}

func newTracker[T any](position int64) tracker[T] { return tracker[T]{floor: position} }

// push adds a record that was read and returns its slot. Offsets must rise.
func (t *tracker[T]) push(offset int64, v T) uint64 {
	if t.tail-t.head == uint64(len(t.ring)) {
		t.grow()
	}
	slot := t.tail
	t.tail++
	*t.entry(slot) = entry[T]{value: v, next: offset + 1}
	return slot
}

// advance says that the partition was read up to next and that nothing more
// lies below it: gaps, control batches and aborted records count as settled.
func (t *tracker[T]) advance(next int64) {
	if t.head == t.tail {
		t.floor = max(t.floor, next)
		return
	}
	last := t.entry(t.tail - 1)
	last.next = max(last.next, next)
}

// settle marks a slot. Settling one twice, or one that is gone, is refused.
func (t *tracker[T]) settle(slot uint64) bool {
	if !t.holds(slot) || t.entry(slot).settled {
		return false
	}
	e := t.entry(slot)
	e.settled = true
	var zero T
	e.value = zero // its bytes are needed no more
	for t.head != t.tail && t.entry(t.head).settled {
		t.floor = t.entry(t.head).next
		t.head++
	}
	return true
}

func (t *tracker[T]) holds(slot uint64) bool { return slot >= t.head && slot < t.tail }

// at is the value of a slot that is held and not settled.
func (t *tracker[T]) at(slot uint64) *T { return &t.entry(slot).value }

// open reports whether a slot is held and not settled.
func (t *tracker[T]) open(slot uint64) bool { return t.holds(slot) && !t.entry(slot).settled }

// committable is the offset up to which everything is settled.
func (t *tracker[T]) committable() int64 { return t.floor }

// len is how many entries are held, settled ones behind an open one included.
func (t *tracker[T]) len() int { return int(t.tail - t.head) }

func (t *tracker[T]) entry(slot uint64) *entry[T] { return &t.ring[slot&uint64(len(t.ring)-1)] }

func (t *tracker[T]) grow() {
	bigger := make([]entry[T], max(64, 2*len(t.ring)))
	for s := t.head; s < t.tail; s++ {
		bigger[s&uint64(len(bigger)-1)] = *t.entry(s)
	}
	t.ring = bigger
}
