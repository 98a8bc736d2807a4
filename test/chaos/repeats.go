package main

import (
	"fmt"
	"slices"

	"github.com/kconsume/kconsume/test/chaos/journal"
)

// duplicates are the deliveries of an attempt beyond the first, by what explains
// them, next to how many there may be (I7).
type duplicates struct {
	total  int
	struck int // the first call was with a member that was killed or frozen, uncommitted
	frozen int // the later call was with a member that had been frozen
	copies int // the tier holds the record more than once
	held   int // a partition moved while a forward below the record was not acknowledged: no commit could pass it
	moved  int // another member took the partition over, uncommitted
	same   int // the same member delivered it again
	dead   int // records that are in the DLQ more than once

	inHand  int // bound: deliveries uncommitted by whoever was struck, when it was
	resent  int // bound: forwards written more often than they were decided: of unknown outcome
	cascade int // bound: forwards of failures that were themselves repeated
	example []string
}

// bound is how many duplicates there may be.
func (d *duplicates) bound() int { return d.inHand + d.resent + d.cascade + d.held }

// beyond is how many there are too many, each cause by its own bound; what no
// cause explains must fit what the bounds leave.
func (d *duplicates) beyond() int {
	causes := max(0, d.struck+d.frozen-d.inHand) + max(0, d.copies-d.resent-d.cascade)
	return max(causes, d.total-d.bound())
}

func (x *index) repeats(f *findings) duplicates {
	var n duplicates
	late := f.promise("delivered again after it was committed")
	for c, group := range x.groups {
		for i := 1; i < len(group); i++ {
			d := &x.deliveries[group[i]]
			n.total++
			if !x.thawed(d) && x.committedBefore(c, d.begin) {
				late.add("delivery %d of %d/%d, by %s", c.attempt, c.partition, c.offset, x.procs[d.proc].life)
			}
			x.explain(&n, c, group, i)
		}
	}
	x.bound(&n)
	f.promise("duplicates beyond the bound").count = n.beyond()
	nobody := f.promise("duplicates though nobody was struck")
	nobody.count, nobody.examples, nobody.lenient = n.moved+n.same, n.example, !x.strict
	return n
}

// explain counts one duplicate under its cause.
func (x *index) explain(n *duplicates, c call, group []int32, i int) {
	d := &x.deliveries[group[i]]
	switch {
	case x.thawed(d):
		n.frozen++
		return
	case i < len(x.copies[c]):
		n.copies++
		return
	}
	for _, j := range group[:i] {
		if x.struck(c, &x.deliveries[j], d.begin) {
			n.struck++
			return
		}
	}
	before := &x.deliveries[group[i-1]]
	if x.heldUp(c, before, d) {
		n.held++
		return
	}
	if len(n.example) < maxExamples {
		n.example = append(n.example, fmt.Sprintf("delivery %d of %d/%d: by %s from %d to %d (%c), by %s from %d", c.attempt, c.partition, c.offset,
			x.procs[before.proc].life, before.begin, before.end, max(before.outcome, '-'), x.procs[d.proc].life, d.begin))
	}
	if x.procs[before.proc].life == x.procs[d.proc].life {
		n.same++
	} else {
		n.moved++
	}
}

// struck reports whether the one who had a delivery was struck before a moment
// while the record was not committed.
func (x *index) struck(c call, d *delivery, before int64) bool {
	for i := range x.events {
		e := &x.events[i]
		if e.hit(&x.procs[d.proc]) && e.at <= before && x.uncommitted(c, e.committed) {
			return true
		}
	}
	return false
}

func (e *event) hit(p *handlerProc) bool { return e.life == p.life && (e.pid == 0 || e.pid == p.pid) }

// uncommitted reports whether an attempt's record, or a copy of it, lies at or
// above the committed offset.
func (x *index) uncommitted(c call, committed map[place]int64) bool {
	if c.attempt == 1 {
		return c.offset >= committed[place{x.stages[0], c.partition}]
	}
	for _, w := range x.copies[c] {
		if w.offset >= committed[w.place] {
			return true
		}
	}
	return false
}

// committedBefore reports whether all of an attempt's records were known to be
// committed before a moment.
func (x *index) committedBefore(c call, at int64) bool {
	committed := x.latest(at)
	return committed != nil && !x.uncommitted(c, committed)
}

// heldUp reports whether, when a partition left a member, something below an
// attempt's record was not yet settled: a forward that its broker did not
// acknowledge. The member left with the last delivery that was not a repetition:
// what was settled by then, its last commit could hold.
func (x *index) heldUp(c call, before, after *delivery) bool {
	left := x.lastBegin(tenure{x.procs[before.proc].life, c.partition}, after.begin)
	if c.attempt == 1 {
		return x.settlements[place{x.stages[0], c.partition}].before(c.offset) > left
	}
	for _, w := range x.copies[c] {
		if x.settlements[w.place].before(w.offset) > left {
			return true
		}
	}
	return false
}

// tenure is a member's time with a partition of every stage.
type tenure struct {
	life      string
	partition int32
}

// lastBegin is a member's last first delivery from a partition before a moment.
func (x *index) lastBegin(t tenure, before int64) int64 {
	begins := x.begins[t]
	n, _ := slices.BinarySearch(begins, before)
	if n == 0 {
		return before
	}
	return begins[n-1]
}

// bound adds up what may be delivered twice.
func (x *index) bound(n *duplicates) {
	byLife := map[string][]int32{}
	for i := range x.deliveries {
		life := x.procs[x.deliveries[i].proc].life
		byLife[life] = append(byLife[life], int32(i))
	}
	for i := range x.events {
		e := &x.events[i]
		seen := map[call]bool{}
		for _, j := range byLife[e.life] {
			d := &x.deliveries[j]
			c := call{d.record(), d.attempt}
			if !e.hit(&x.procs[d.proc]) || e.until > 0 && d.begin > e.until+int64(thawGrace) || seen[c] || !x.uncommitted(c, e.committed) {
				continue
			}
			seen[c] = true
			n.inHand++
		}
	}
	for c, copies := range x.copies {
		failures := x.failures(call{c.record, c.attempt - 1})
		n.resent += max(0, len(copies)-failures)
		n.cascade += max(0, min(len(copies), failures)-1)
	}
	for _, dead := range x.dead {
		n.dead += len(dead) - 1
	}
}

// failures is how many calls of an attempt failed.
func (x *index) failures(c call) int {
	n := 0
	for _, i := range x.groups[c] {
		if x.deliveries[i].outcome == journal.Failed {
			n++
		}
	}
	return max(1, n)
}
