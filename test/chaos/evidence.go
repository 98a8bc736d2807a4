package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// evidence is everything that is known of a run once it is over.
type evidence struct {
	keys        int // of a partition
	maxAttempts int
	stages      []string        // topics: main first, then the tiers
	delays      []time.Duration // by stage, 0 for main

	acked      []int64    // by partition: this many tasks were acknowledged
	sources    [][]source // the main topic, by partition and offset
	forwarded  []forwarded
	deliveries []delivery
	procs      []handlerProc
	events     []event
	snapshots  []snapshot // taken one after another
	committed  map[place]int64
	ends       map[place]int64
	strict     bool // a duplicate that no loss explains breaks a promise
}

// source is the record in the main topic, nil where there is none.
func (e *evidence) source(r record) *source {
	if int(r.partition) >= len(e.sources) || r.partition < 0 || r.offset < 0 || r.offset >= int64(len(e.sources[r.partition])) {
		return nil
	}
	return &e.sources[r.partition][r.offset]
}

// broken are the broken promises of one kind.
type broken struct {
	promise  string
	count    int
	examples []string
	lenient  bool // told, but not held against the run
}

const maxExamples = 5

func (b *broken) add(format string, args ...any) {
	b.count++
	if len(b.examples) < maxExamples {
		b.examples = append(b.examples, fmt.Sprintf(format, args...))
	}
}

// findings are what the evidence shows.
type findings struct {
	promises   []*broken
	duplicates duplicates
	apart      int // out of order, by a member that was frozen
	acked      int64
	sources    int // records of the main topic
	again      int // of them, tasks that are there more than once
	deliveries int
	handled    int
	dead       int
	parked     int // records of the tiers
}

// promise makes the list of a promise's violations, in the table's order.
func (f *findings) promise(text string) *broken {
	b := &broken{promise: text}
	f.promises = append(f.promises, b)
	return b
}

// bad reports whether any promise was broken.
func (f *findings) bad() bool {
	return slices.ContainsFunc(f.promises, func(b *broken) bool { return b.count > 0 && !b.lenient })
}

// index is the evidence put in order.
type index struct {
	*evidence
	groups map[call][]int32      // deliveries of a record's attempt, by their begin
	copies map[call][]*forwarded // records of the tiers that ask for an attempt
	dead   map[record][]*forwarded
	// settlements are when what lies below an offset was settled.
	settlements map[place]*settlings
	begins      map[tenure][]int64 // of first deliveries, in rising order
}

// call names an attempt at a record.
type call struct {
	record
	attempt int16
}

func newIndex(e *evidence) *index {
	x := &index{evidence: e, groups: map[call][]int32{}, copies: map[call][]*forwarded{}, dead: map[record][]*forwarded{}, begins: map[tenure][]int64{}}
	order := make([]int32, len(e.deliveries))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(e.deliveries[a].begin, e.deliveries[b].begin) })
	for _, i := range order {
		d := &e.deliveries[i]
		c := call{d.record(), d.attempt}
		x.groups[c] = append(x.groups[c], i)
		if len(x.groups[c]) == 1 {
			t := tenure{e.procs[d.proc].life, d.partition}
			x.begins[t] = append(x.begins[t], d.begin)
		}
	}
	for i := range e.forwarded {
		f := &e.forwarded[i]
		switch {
		case f.foreign != "":
		case f.topic == topicDLQ:
			x.dead[f.origin] = append(x.dead[f.origin], f)
		default:
			c := call{f.origin, int16(f.failed + 1)}
			x.copies[c] = append(x.copies[c], f)
		}
	}
	x.settlements = x.settled()
	return x
}
