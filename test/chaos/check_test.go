package main

import (
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/test/chaos/journal"
	"github.com/kconsume/kconsume/test/chaos/task"
)

const second = int64(time.Second)

// good is a small run in which every promise was kept: one partition, a tier of
// two seconds, and of its records one is handled at once, one after a failure,
// one goes to the DLQ, and one was with a member that was killed.
func good() *evidence {
	tier := tierTopic("2s")
	s := func(n int64, do task.Action) source { return source{number: n, at: 1000, do: do, hash: uint64(n)} }
	d := func(offset int64, attempt, stage int16, begin, end int64, o journal.Outcome, proc int32) delivery {
		return delivery{begin: begin, end: end, offset: offset, number: offset, attempt: attempt, stage: stage, outcome: o, proc: proc}
	}
	w := func(topic string, offset, at, origin int64, failed int, due int64, class string) forwarded {
		return forwarded{place: place{topic, 0}, offset: offset, at: at, origin: record{0, origin}, failed: failed, due: due, class: class, hash: uint64(origin)}
	}
	main := place{topicMain, 0}
	return &evidence{
		strict: true, keys: 2, maxAttempts: 2, stages: []string{topicMain, tier}, delays: []time.Duration{0, 2 * time.Second},
		acked:   []int64{4},
		sources: [][]source{{s(0, task.OK), s(1, task.Once), s(2, task.Permanent), s(3, task.OK)}},
		forwarded: []forwarded{
			w(topicDLQ, 0, 1700, 2, 1, 0, "permanent"),
			w(tier, 0, 1300, 1, 1, 3200, ""),
		},
		deliveries: []delivery{
			d(0, 1, 0, 1*second, 1*second+1, journal.Done, 0),
			d(1, 1, 0, 1*second, 1*second+200e6, journal.Failed, 0),
			d(2, 1, 0, 1*second+500e6, 1*second+600e6, journal.Failed, 0),
			d(3, 1, 0, 2*second, 2*second+1, journal.Done, 0),
			d(3, 1, 0, 10*second, 10*second+1, journal.Done, 1),
			d(1, 2, 1, 10*second+10, 10*second+20, journal.Done, 1),
		},
		procs:     []handlerProc{{life: "m1.1", pid: 1}, {life: "m2.1", pid: 2}},
		events:    []event{{kind: killMember, at: 3 * second, life: "m1.1", committed: map[place]int64{main: 3}}},
		snapshots: []snapshot{{at: 2 * second, committed: map[place]int64{main: 3}}, {at: 11 * second, committed: map[place]int64{main: 4}}},
		committed: map[place]int64{main: 4, {tier, 0}: 1},
		ends:      map[place]int64{main: 4, {tier, 0}: 1},
	}
}

func brokenOf(f *findings) map[string]int {
	out := map[string]int{}
	for _, b := range f.promises {
		if b.count > 0 {
			out[b.promise] = b.count
		}
	}
	return out
}

func TestNothingBroken(t *testing.T) {
	f := check(good())
	if got := brokenOf(f); len(got) > 0 {
		t.Errorf("a good run is found broken: %v", got)
	}
	if f.acked != 4 || f.sources != 4 || f.handled != 3 || f.dead != 1 || f.parked != 1 || f.deliveries != 6 {
		t.Errorf("counts: %+v", f)
	}
	if d := f.duplicates; d.total != 1 || d.struck != 1 || d.inHand != 1 || d.bound() != 1 {
		t.Errorf("duplicates: %+v", d)
	}
}

// Each planted fault is found, and nothing else is.
func TestPlantedFaults(t *testing.T) {
	main := place{topicMain, 0}
	for name, c := range map[string]struct {
		plant func(e *evidence)
		want  []string // promises
	}{
		"a record is not handled":    {func(e *evidence) { e.deliveries[0].outcome = journal.Unfinished }, []string{"committed before it was settled", "lost"}},
		"a task is not in the topic": {func(e *evidence) { e.acked[0] = 5 }, []string{"acknowledged, not in the topic"}},
		"handled and dead":           {func(e *evidence) { e.sources[0][2].do = task.OK }, []string{"ended otherwise than its task says"}},
		"dead for another reason":    {func(e *evidence) { e.forwarded[0].class = "transient" }, []string{"ended otherwise than its task says"}},
		"left uncommitted":           {func(e *evidence) { e.ends[main] = 5 }, []string{"not committed at the end"}},
		"delivered from nowhere": {func(e *evidence) {
			d := e.deliveries[0]
			d.offset, d.number, d.begin, d.end = 9, 8, 20*second, 21*second
			e.deliveries = append(e.deliveries, d)
		}, []string{"phantom"}},
		"a retry that no tier holds":  {func(e *evidence) { e.forwarded = e.forwarded[:1] }, []string{"committed before it was settled", "phantom"}},
		"a dead letter from nowhere":  {func(e *evidence) { e.forwarded[0].foreign = "no headers" }, []string{"committed before it was settled", "lost", "phantom"}},
		"another value":               {func(e *evidence) { e.forwarded[1].hash = 9 }, []string{"altered"}},
		"the handler saw another key": {func(e *evidence) { e.deliveries[3].outcome = journal.Altered }, []string{"altered"}},
		"a third delivery of two":     {func(e *evidence) { e.maxAttempts = 1; e.forwarded[1].failed = 1 }, []string{"lost", "over the limit of attempts"}},
		"early":                       {func(e *evidence) { e.deliveries[5].begin, e.deliveries[5].end = 3*second+199e6, 4*second }, []string{"early"}},
		"due too soon":                {func(e *evidence) { e.forwarded[1].due = 3199 }, []string{"early"}},
		"out of order":                {func(e *evidence) { e.deliveries[2].begin, e.deliveries[2].end = 1, 2 }, []string{"out of order within a key"}},
		"two calls of a key":          {func(e *evidence) { e.deliveries[1].end = 2*second + 1 }, []string{"early", "two calls of a key at once"}},
		"an offset goes back":         {func(e *evidence) { e.snapshots[1].committed[main] = 2 }, []string{"committed offsets that went back"}},
		"committed too soon":          {func(e *evidence) { e.snapshots[0].at = 1*second + 100e6 }, []string{"committed before it was settled"}},
		"again after the commit": {func(e *evidence) {
			e.events[0].committed[main] = 4
			e.snapshots[0].at = 2*second + 1
			e.snapshots[0].committed[main] = 4
		}, []string{"delivered again after it was committed", "duplicates beyond the bound", "duplicates though nobody was struck"}},
		"again, and nobody was struck": {func(e *evidence) { e.events = nil }, []string{"duplicates beyond the bound", "duplicates though nobody was struck"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := good()
			c.plant(e)
			got := brokenOf(check(e))
			for _, promise := range c.want {
				if got[promise] == 0 {
					t.Errorf("not found: %s", promise)
				}
				delete(got, promise)
			}
			if len(got) > 0 {
				t.Errorf("found too much: %v", got)
			}
		})
	}
}

// A member that was frozen calls what it was sent before: that is counted apart.
func TestFrozenMember(t *testing.T) {
	e := good()
	e.events[0].kind, e.events[0].until = freezeMember, 9*second
	e.events[0].life = "m2.1"
	e.deliveries[2].proc, e.deliveries[2].begin, e.deliveries[2].end = 1, 10*second, 10*second+1
	e.deliveries[0].begin, e.deliveries[0].end = 10*second+5, 10*second+6
	f := check(e)
	if f.apart != 1 {
		t.Errorf("%d counted apart, want 1", f.apart)
	}
	if got := brokenOf(f)["out of order within a key"]; got > 0 {
		t.Errorf("%d out of order", got)
	}
}

func TestCopiesInATier(t *testing.T) {
	e := good()
	again := e.forwarded[1]
	again.offset = 1
	e.forwarded = append(e.forwarded, again)
	e.committed[again.place], e.ends[again.place] = 2, 2
	d := e.deliveries[5]
	d.begin, d.end = d.begin+10, d.end+10
	e.deliveries = append(e.deliveries, d)
	f := check(e)
	if got := brokenOf(f); len(got) > 0 {
		t.Errorf("found broken: %v", got)
	}
	if d := f.duplicates; d.total != 2 || d.copies != 1 || d.resent != 1 || d.bound() != 2 {
		t.Errorf("duplicates: %+v", d)
	}
}

// While a forward is not acknowledged no commit can pass it: when the partition
// moves then, what is settled behind it is repeated though nobody was struck.
func TestPartitionMovesBehindAForward(t *testing.T) {
	e := good()
	e.events = nil
	e.forwarded[0].at = 9500
	e.snapshots[0].committed[place{topicMain, 0}] = 2
	f := check(e)
	if got := brokenOf(f); len(got) > 0 {
		t.Errorf("found broken: %v", got)
	}
	if d := f.duplicates; d.total != 1 || d.held != 1 || d.bound() != 1 {
		t.Errorf("duplicates: %+v", d)
	}
}

func TestSlowestPartition(t *testing.T) {
	w := &watch{since: 100, first: make([]int64, 2), written: make([]int64, 2)}
	w.delivered(&delivery{begin: 150}, 100) // written before
	w.delivered(&delivery{begin: 160, partition: 1}, 101)
	w.delivered(&delivery{begin: 170, stage: 1}, 101) // from a tier
	if got := slowest(w.first); got != 0 {
		t.Errorf("slowest is %d while a partition stands", got)
	}
	w.delivered(&delivery{begin: 180}, 102)
	w.delivered(&delivery{begin: 190}, 103)
	if got := slowest(w.first); got != 180 {
		t.Errorf("slowest is %d, want 180", got)
	}
}

func TestLongestPauses(t *testing.T) {
	var all []delivery
	for _, at := range []int64{1, 20, 30, 95} {
		all = append(all, delivery{begin: at})
	}
	all = append(all, delivery{begin: 50, partition: 1}, delivery{begin: 60, stage: 1, partition: 1})
	got := longestPauses(all, round{from: 10, until: 100}, 2)
	if got[0] != 50 || got[1] != 65 {
		t.Errorf("pauses %v, want 50 ns and 65 ns", got)
	}
}

func TestScheduleHasEveryKind(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		kill int
	}{{time.Minute, 2}, {15 * time.Minute, 32}} {
		got := map[kind]int{}
		for _, k := range schedule(c.d, testRand()) {
			got[k]++
		}
		if got[killMember] != c.kill || len(got) != len(kinds()) {
			t.Errorf("%v: %v", c.d, got)
		}
	}
}

func TestEachLine(t *testing.T) {
	var got []line
	err := eachLine(strings.NewReader("3\t7\t123\tk\tv v\tX-Retry-Attempts=2,X-Retry-Due=9,X-Original-Partition=3,X-Original-Offset=5,"+
		"X-Original-Timestamp=44,X-Record-Id=chaos/3/5@44,X-Retry-Group=chaos,X-Original-Topic=chaos\n"), func(l line) error {
		got = append(got, l)
		return nil
	})
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	f := got[0].forwarded("t")
	if f.foreign != "" || f.origin != (record{3, 5}) || f.failed != 2 || f.due != 9 || f.at != 123 || f.offset != 7 || f.partition != 3 {
		t.Errorf("%+v", f)
	}
	if f := (&line{headers: []byte("a=b")}).forwarded("t"); f.foreign == "" {
		t.Error("a record without our headers is taken for ours")
	}
	if err := eachLine(strings.NewReader("no record\n"), nil); err == nil {
		t.Error("no error about a line that is none")
	}
}
