package record

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// Aborted is a transaction that was aborted, as the broker tells it beside the
// records: all of the producer's transactional batches from FirstOffset to its
// next abort marker are void.
type Aborted struct {
	ProducerID  int64
	FirstOffset int64
}

// aborts tells, batch by batch in offset order, which ones are void.
type aborts struct {
	next []Aborted // not reached yet, by FirstOffset
	open map[int64]struct{}
}

func newAborts(list []Aborted) aborts {
	if len(list) == 0 {
		return aborts{}
	}
	byOffset := func(a, b Aborted) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) }
	if !slices.IsSortedFunc(list, byOffset) {
		list = slices.Clone(list)
		slices.SortFunc(list, byOffset)
	}
	return aborts{next: list, open: make(map[int64]struct{})}
}

// reach opens the transactions that begin at or below the batch's last offset.
func (a *aborts) reach(last int64) {
	for len(a.next) > 0 && a.next[0].FirstOffset <= last {
		a.open[a.next[0].ProducerID] = struct{}{}
		a.next = a.next[1:]
	}
}

func (a *aborts) has(producer int64) bool {
	_, ok := a.open[producer]
	return ok
}

// abortMarker tells whether the records of a control batch begin with the
// marker that ends an aborted transaction. Its key is version and type, int16
// each. A body that cannot be read is no such marker.
func abortMarker(body []byte) bool {
	const abort = 0
	c := cursor{b: body}
	c.varint() // length
	c.at++     // attributes
	if c.at > len(body) {
		return false
	}
	c.varint() // timestamp
	c.varint() // offset
	key := c.bytes()
	return len(key) >= 4 && binary.BigEndian.Uint16(key[2:]) == abort
}
