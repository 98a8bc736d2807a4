package sim

import (
	"context"
	"io"
	"sync"
	"time"
)

// drainBound is how long everything may take to be handled and committed once
// there are no more faults: a session has to end, a backlog to be worked off,
// and what fails to pass all tiers.
const drainBound = 90 * time.Second

// Stats is what happened in one run.
type Stats struct {
	Records     int // produced and not aborted
	Sent        int // deliveries
	Handled     int // acknowledged or dropped
	Dead        int // records in the DLQ, copies too
	Emitted     int // records that handlers emitted, copies too
	Commits     int
	Crashes     int
	Stops       int
	Generations int
	Duplicates  int // deliveries beyond the copies that there are
	Bound       int // what they may be at most
	Faults      map[Kind]int
	Hits        map[Kind]int // what they acted on
	Virtual     time.Duration
	Drained     time.Duration // from the last fault to everything committed
	SlowestStop time.Duration
}

// Result is one run.
type Result struct {
	Seed       uint64
	Violations []string
	Stats      Stats
	History    string // the file in which it was saved, "" = it was not

	history *history
}

// WriteHistory tells what happened, event by event.
func (r *Result) WriteHistory(w io.Writer) error { return r.history.write(w) }

// Run plays the history of a seed. It must be called in a bubble of
// testing/synctest, and returns when nothing of it runs any more. It stops early
// at the first violation.
func Run(seed uint64) (*Result, error) {
	s := NewSchedule(seed)
	w, err := newWorld(s)
	if err != nil {
		return nil, err
	}
	ctx, over := context.WithCancel(context.Background())
	w.tasks.Go(func() { w.expireSessions(ctx) })
	w.turbulent(s)
	if !w.ledger.failed() {
		w.lateGrowth(&s.Growth)
		w.anew(&s.Anew)
	}
	if !w.ledger.failed() {
		w.quiet(s)
	}
	if !w.ledger.failed() {
		w.ledger.finish()
	}
	virtual := w.now()
	over()
	w.close()
	st := w.ledger.stats
	st.Virtual, st.Faults, st.Hits = virtual, w.faults, w.hits
	if len(w.ledger.violations) == 0 {
		st.checkEnough(w.ledger)
	}
	return &Result{Seed: seed, Violations: w.ledger.violations, Stats: st, history: w.history}, nil
}

// What is the least that a run must have been through to say anything.
const (
	minCrashes = 8
	minFaults  = 60
)

func (st *Stats) checkEnough(l *ledger) {
	faults := 0
	for _, n := range st.Faults {
		faults += n
	}
	if st.Records < minRecords || st.Crashes < minCrashes || faults < minFaults || st.Generations < minCrashes {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.violate("I10", "this seed says little: %d records, %d crashes, %d faults, %d generations", st.Records, st.Crashes, faults, st.Generations)
	}
}

// turbulent is the time of faults, and the drain after it.
func (w *world) turbulent(s *Schedule) {
	var all sync.WaitGroup
	for slot, turns := range s.Slots {
		all.Go(func() { w.play(slot, turns) })
	}
	all.Go(func() { w.playFaults(s.Faults) })
	all.Go(func() { w.growth(&s.Growth) })
	all.Go(func() {
		for i := range s.Inputs {
			if !w.until(s.Inputs[i].At) {
				return
			}
			w.produce(&s.Inputs[i])
		}
	})
	all.Wait()
	w.heal()
	healed := w.now()
	w.drain()
	w.ledger.stats.Drained = w.now() - healed
}

// drain waits until everything is committed, within drainBound.
func (w *world) drain() {
	defer w.ledger.checkPrompt()
	for begin := w.now(); !w.drained(); {
		if w.now()-begin > drainBound {
			w.ledger.mu.Lock()
			w.ledger.violate("I10", "not drained %v after the last fault: committed %v, group %s", drainBound, w.committed(), w.tellGroup())
			w.ledger.mu.Unlock()
			return
		}
		if !w.until(w.now() + 250*time.Millisecond) {
			return
		}
	}
}

// promptSlack is how much longer than the commit interval the last commit may
// take in the quiet time.
const promptSlack = time.Second

// checkPrompt is called when everything is committed. In the quiet time that has
// to be soon after the last record was handled: else what a crash repeats has no
// bound.
func (l *ledger) checkPrompt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if late := time.Since(l.lastChange); l.quiet && late > commitInterval+promptSlack {
		l.violate("I7", "what was settled is committed only after %v", late)
	}
}

// quiet stops and starts members under load, one after the other and then all at
// once. Nothing may be repeated.
func (w *world) quiet(s *Schedule) {
	if !w.until(w.now() + 5*time.Second) { // timers of faults end, the group settles
		return
	}
	w.drain()
	w.ledger.mu.Lock()
	w.ledger.quiet = true
	w.ledger.mu.Unlock()
	for burst := range quietBursts {
		w.settle()
		for i := range s.Quiet {
			if s.Quiet[i].At == time.Duration(burst) {
				w.produce(&s.Quiet[i])
			}
		}
		if burst < quietBursts-1 {
			w.until(w.now() + 500*time.Millisecond)
			w.stopAll(burst % (slots - 1))
			w.until(w.now() + 500*time.Millisecond)
			w.start(burst%(slots-1), 100+burst)
		} else {
			// Some have come back from a tier by then in which others wait. One
			// member takes all of it up: if more came, they would repeat what is
			// settled behind something that waits.
			w.until(w.now() + 1500*time.Millisecond)
			w.stopAll(0, 1, 2)
			w.start(0, 100+burst)
		}
		w.drain()
		if w.ledger.failed() {
			return
		}
	}
	w.stopAll(0, 1, 2)
}

// stopAll stops the members of slots at the same time.
func (w *world) stopAll(which ...int) {
	var all sync.WaitGroup
	for _, slot := range which {
		if m := w.member(slot); m != nil {
			all.Go(func() { w.end(slot, m) })
		}
	}
	all.Wait()
}

// settle waits until the group has all members that run, within drainBound.
func (w *world) settle() {
	for begin := w.now(); w.now()-begin < drainBound; {
		g := w.cluster.GroupInfo(group)
		if g != nil && g.State == "Stable" && len(g.Members) == slots-1 || !w.until(w.now()+250*time.Millisecond) {
			return
		}
	}
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	w.ledger.violate("I10", "the group has not settled: %s", w.tellGroup())
}
