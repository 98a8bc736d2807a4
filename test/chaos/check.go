package main

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/kconsume/kconsume/test/chaos/journal"
)

// check holds the evidence against the promises. It is pure.
func check(e *evidence) *findings {
	f := &findings{sources: 0, deliveries: len(e.deliveries)}
	x := newIndex(e)
	x.accounted(f)
	x.genuine(f)
	x.attempts(f)
	x.early(f)
	x.order(f)
	x.overlaps(f)
	x.commits(f)
	f.duplicates = x.repeats(f)
	return f
}

// accounted checks I1: every acknowledged task is in the topic, and every record
// of the topic ended as its task says, and nothing is left uncommitted.
func (x *index) accounted(f *findings) {
	gone := f.promise("acknowledged, not in the topic")
	lost := f.promise("lost")
	wrong := f.promise("ended otherwise than its task says")
	open := f.promise("not committed at the end")
	for p, records := range x.sources {
		f.acked += x.acked[p]
		f.sources += len(records)
		present := make([]bool, x.acked[p])
		for o := range records {
			s := &records[o]
			if s.number >= 0 && s.number < x.acked[p] {
				if present[s.number] {
					f.again++
				}
				present[s.number] = true
			}
			r := record{int32(p), int64(o)}
			handled, dead := x.handled(r), x.dead[r]
			switch {
			case !handled && len(dead) == 0:
				lost.add("%d/%d, task %d, %s: neither handled nor in the DLQ", p, o, s.number, s.do)
			case handled && len(dead) > 0 || handled != (s.do.Dead() == ""):
				wrong.add("%d/%d, task %d, %s: handled %v, %d times in the DLQ", p, o, s.number, s.do, handled, len(dead))
			case len(dead) > 0 && dead[0].class != s.do.Dead():
				wrong.add("%d/%d, task %d, %s: in the DLQ as %s", p, o, s.number, s.do, dead[0].class)
			}
			if handled {
				f.handled++
			}
		}
		for n, ok := range present {
			if !ok {
				gone.add("task %d of partition %d", n, p)
			}
		}
	}
	f.dead = len(x.dead)
	for at, end := range x.ends {
		if x.committed[at] != end {
			open.add("%s/%d: committed %d of %d", at.topic, at.partition, x.committed[at], end)
		}
	}
}

// handled reports whether a call for the record ended well.
func (x *index) handled(r record) bool {
	for n := range x.maxAttempts {
		for _, i := range x.groups[call{r, int16(n + 1)}] {
			if x.deliveries[i].outcome == journal.Done {
				return true
			}
		}
	}
	return false
}

// genuine checks I2 and I9: whatever was delivered or forwarded was written, and
// is byte for byte what was written.
func (x *index) genuine(f *findings) {
	phantom := f.promise("phantom")
	altered := f.promise("altered")
	for i := range x.deliveries {
		d := &x.deliveries[i]
		s := x.source(d.record())
		switch {
		case s == nil || s.number != d.number:
			phantom.add("delivered %d/%d as task %d, which is not there", d.partition, d.offset, d.number)
		case d.outcome == journal.Altered:
			altered.add("delivered %d/%d, task %d, otherwise than written", d.partition, d.offset, d.number)
		case d.attempt > 1 && len(x.copies[call{d.record(), d.attempt}]) == 0:
			phantom.add("delivery %d of %d/%d, which no tier holds", d.attempt, d.partition, d.offset)
		case d.attempt > 1 != (d.stage > 0):
			phantom.add("delivery %d of %d/%d from stage %d", d.attempt, d.partition, d.offset, d.stage)
		}
	}
	for i := range x.forwarded {
		w := &x.forwarded[i]
		if w.topic != topicDLQ {
			f.parked++
		}
		s := x.source(w.origin)
		switch {
		case w.foreign != "" || s == nil || w.failed < 1 || len(x.groups[call{w.origin, int16(w.failed)}]) == 0:
			phantom.add("%s/%d/%d of %d/%d after %d failures: %s", w.topic, w.partition, w.offset, w.origin.partition, w.origin.offset, w.failed, w.foreign)
		case w.hash != s.hash:
			altered.add("%s/%d/%d is not %d/%d", w.topic, w.partition, w.offset, w.origin.partition, w.origin.offset)
		}
	}
}

// attempts checks I5.
func (x *index) attempts(f *findings) {
	over := f.promise("over the limit of attempts")
	for i := range x.deliveries {
		if d := &x.deliveries[i]; d.attempt < 1 || int(d.attempt) > x.maxAttempts {
			over.add("%d/%d: delivery %d of %d", d.partition, d.offset, d.attempt, x.maxAttempts)
		}
	}
	for i := range x.forwarded {
		if w := &x.forwarded[i]; w.failed > x.maxAttempts || w.topic != topicDLQ && w.failed >= x.maxAttempts {
			over.add("%s/%d/%d says %d failures of %d", w.topic, w.partition, w.offset, w.failed, x.maxAttempts)
		}
	}
}

// early checks I6: a due time is no earlier than the failure and the tier's
// delay together, and no delivery is earlier than the due time. Of several
// copies the earliest counts.
func (x *index) early(f *findings) {
	early := f.promise("early")
	for c, copies := range x.copies {
		due := int64(math.MaxInt64)
		for _, w := range copies {
			due = min(due, w.due)
			failed := x.firstEnd(call{c.record, c.attempt - 1})
			delay := x.delays[slices.Index(x.stages, w.topic)]
			if w.due < time.Unix(0, failed).Add(delay).UnixMilli() {
				early.add("%s/%d/%d is due %d ms after the failure, not %v", w.topic, w.partition, w.offset, w.due-failed/1e6, delay)
			}
		}
		for _, i := range x.groups[c] {
			if d := &x.deliveries[i]; d.begin < due*1e6 {
				early.add("%d/%d: delivery %d came %v early", d.partition, d.offset, d.attempt, time.Duration(due*1e6-d.begin))
			}
		}
	}
}

// firstEnd is when the first of an attempt's calls had failed.
func (x *index) firstEnd(c call) int64 {
	first := int64(math.MaxInt64)
	for _, i := range x.groups[c] {
		if d := &x.deliveries[i]; d.outcome == journal.Failed {
			first = min(first, d.end)
		}
	}
	if first == math.MaxInt64 {
		return 0
	}
	return first
}

// order checks I8: the first deliveries of a key's tasks come in the order of
// their numbers. What a frozen member had passed its check for, and calls once
// it goes on, is counted apart.
func (x *index) order(f *findings) {
	wrong := f.promise("out of order within a key")
	first := map[taskID]int32{}
	for i := range x.deliveries {
		d := &x.deliveries[i]
		if d.attempt != 1 {
			continue
		}
		t := taskID{d.partition, d.number}
		if j, ok := first[t]; !ok || x.deliveries[j].begin > d.begin {
			first[t] = int32(i)
		}
	}
	all := make([]int32, 0, len(first))
	for _, i := range first {
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b int32) int { return cmp.Compare(x.deliveries[a].begin, x.deliveries[b].begin) })
	last := map[taskID]int32{} // by key
	for _, i := range all {
		d := &x.deliveries[i]
		key := taskID{d.partition, d.number % int64(x.keys)}
		if j, ok := last[key]; ok && x.deliveries[j].number > d.number {
			before := &x.deliveries[j]
			if x.thawed(d) || x.thawed(before) {
				f.apart++
			} else {
				wrong.add("key %d/%d: task %d of %s came %v after task %d of %s", key.partition, key.number, d.number, x.procs[d.proc].life,
					time.Duration(d.begin-before.begin), before.number, x.procs[before.proc].life)
			}
			continue
		}
		last[key] = i
	}
}

// taskID names a task, or a key by its first task.
type taskID struct {
	partition int32
	number    int64
}

// thawed reports whether a delivery began in a member, or under one, that had
// been frozen before.
func (x *index) thawed(d *delivery) bool {
	for i := range x.events {
		e := &x.events[i]
		if e.kind == freezeMember && e.life == x.procs[d.proc].life && d.begin >= e.at && d.begin <= e.until+int64(thawGrace) {
			return true
		}
	}
	return false
}

// thawGrace is how long a member that goes on may take to learn that it has
// lost its partitions: its handler works off what it was sent before.
const thawGrace = 2 * time.Second

// overlaps checks that no two calls of one key overlap in one handler process.
func (x *index) overlaps(f *findings) {
	twice := f.promise("two calls of a key at once")
	type slot struct {
		taskID
		proc int32
	}
	order := make([]int32, len(x.deliveries))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(x.deliveries[a].begin, x.deliveries[b].begin) })
	last := map[slot]int32{}
	for _, i := range order {
		d := &x.deliveries[i]
		s := slot{taskID{d.partition, d.number % int64(x.keys)}, d.proc}
		if j, ok := last[s]; ok {
			if b := &x.deliveries[j]; b.end == 0 || b.end > d.begin {
				twice.add("key %d/%d in %s: task %d began while task %d ran", s.partition, s.number, x.procs[d.proc].life, d.number, b.number)
			}
		}
		last[s] = i
	}
}
