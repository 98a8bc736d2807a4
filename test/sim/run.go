package sim

import (
	"io"
	"slices"
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
	w.turbulent(s)
	if !w.ledger.failed() {
		w.quiet(s)
	}
	if !w.ledger.failed() {
		w.ledger.finish()
	}
	virtual := w.now()
	w.close()
	st := w.ledger.stats
	st.Virtual, st.Faults, st.Hits = virtual, w.faults, w.hits
	return &Result{Seed: seed, Violations: w.ledger.violations, Stats: st, history: w.history}, nil
}

// turbulent is the time of faults, and the drain after it.
func (w *world) turbulent(s *Schedule) {
	var all sync.WaitGroup
	for slot, turns := range s.Slots {
		all.Go(func() { w.play(slot, turns) })
	}
	all.Go(func() { w.playFaults(s.Faults) })
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
		for i := range s.Quiet {
			if s.Quiet[i].At == time.Duration(burst) {
				w.produce(&s.Quiet[i])
			}
		}
		w.until(w.now() + 500*time.Millisecond)
		slotsNow := []int{burst % (slots - 1)}
		if burst == quietBursts-1 {
			slotsNow = []int{0, 1, 2}
		}
		w.restart(slotsNow, 100+burst)
		w.drain()
		if w.ledger.failed() {
			return
		}
	}
	var all sync.WaitGroup
	for slot := range slots {
		if m := w.member(slot); m != nil {
			all.Go(func() { w.end(slot, m) })
		}
	}
	all.Wait()
}

// restart stops members at the same time and starts them again.
func (w *world) restart(which []int, life int) {
	var all sync.WaitGroup
	for _, slot := range which {
		m := w.member(slot)
		all.Go(func() { w.end(slot, m) })
	}
	all.Wait()
	w.until(w.now() + 500*time.Millisecond)
	for _, slot := range slices.Sorted(slices.Values(which)) {
		w.start(slot, life)
	}
}
