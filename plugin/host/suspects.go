package host

import "slices"

// crashesBeforeSearch is how often a process dies with a delivery in hand before
// that delivery is suspected.
const crashesBeforeSearch = 2

// lastRank parts those that killed a process alone from the others; see rank.
const lastRank = 1 << 20

// suspects finds out which delivery kills the handler's process, if one does.
// It decides only: it is told what was answered and what a process had when it
// died, and tells what a process may be sent.
//
// Deliveries that were there at two deaths are searched. They are tried in
// halves: one process at a time gets one set of them and nothing else. If it
// dies, the search goes on among those it had, and the other half is free; if
// it answers all of them, the search goes on in the other half, which is split
// without another try.
//
// The one that is left, and kills a process alone, is set aside until another
// delivery is answered: to see to that, any other one is tried alone, too. Then
// it is tried once more, and set aside once more. It is guilty when it killed a
// process alone twice, and others were answered between the two deaths and
// after the second one: an outage during which the handler dies of anything
// looks different. Only the death of a process that had been sent nothing else
// in its life counts: a handler may die of every second delivery.
//
// Where two kill a process alone, one after the other, or one does so three
// times, with nothing answered in between, or where a process dies twice with
// nothing in hand, the handler itself is failing: nobody is suspected, and
// single deliveries are tried until one is answered. One that has killed a
// process alone comes last among these, and not soon: another one may arrive.
//
// It is not safe for concurrent use. The zero value is ready.
type suspects struct {
	records map[uint64]*suspicion // by handle: what was there when a process died
	hunts   []hunt                // the first one is on
	trial   trial
	aside   []uint64 // killed a process alone; nothing has been answered since
	answers uint64   // given in time by this version of the handler

	streak      int    // deaths by single deliveries since the last answer
	lastSingle  uint64 // the delivery of the last one of these
	emptyDeaths int    // with nothing in hand, since the last answer
	failing     bool   // it is the handler
}

// suspicion is what is known of one unanswered delivery.
type suspicion struct {
	crashes int    // of processes that had it
	strikes int    // those that count towards a search
	alone   bool   // one of these had nothing else
	singles int    // those that had nothing else, answers in between, no failing
	at      uint64 // answers at the last one of these
	held    bool   // it may be sent in a trial only
	why     string // how the last process ended
}

// hunt is a set of deliveries that is to be tried.
type hunt struct {
	set []uint64
	// lethal: a process died with all of it, so that there is no need to try it
	// as a whole.
	lethal bool
	// fresh: it needs a process that was sent nothing before: another one that
	// was has just died of it.
	fresh bool
}

// trial is the set that is being tried, on one process.
type trial struct {
	runner  int // the process, 0 = none yet; until it has begun, its hand is to become empty
	begun   bool
	set     map[uint64]struct{} // not answered yet
	sibling []uint64            // the other half
}

// culprit is a delivery that is proven to kill the handler's process.
type culprit struct {
	handle  uint64
	crashes int
	why     string
}

// allowance says what a process may be sent.
type allowance uint8

const (
	allowAll     allowance = iota
	allowFree              // what is free says is
	allowTrial             // what tries says is
	allowProbe             // one delivery, the least suspected: see rank and probe
	allowNothing           // or not now
)

// quiet: whatever is answered or sent makes no difference.
func (s *suspects) quiet() bool {
	return len(s.records) == 0 && !s.failing && s.emptyDeaths == 0
}

// probing: it is to be seen whether the handler works at all.
func (s *suspects) probing() bool { return s.failing || len(s.aside) > 0 }

// pending: there is something to be tried.
func (s *suspects) pending() bool {
	return s.probing() || len(s.hunts) > 0 || s.trial.begun
}

// allow says what process who, which has n deliveries in hand, may be sent.
// fresh: it was sent nothing before, or there is none that was not.
func (s *suspects) allow(who, n int, fresh bool) allowance {
	if !s.pending() {
		s.trial = trial{}
		return allowAll
	}
	t := &s.trial
	fit := fresh || s.probing() || len(s.hunts) == 0 || !s.hunts[0].fresh
	switch {
	case t.begun:
	case !fit && t.runner == who:
		t.runner = 0
	case fit && (t.runner == 0 || n == 0):
		t.runner = who
	}
	switch {
	case t.runner != who && s.failing:
		return allowNothing
	case t.runner != who:
		return allowFree
	case t.begun:
		return allowTrial
	case n > 0:
		return allowNothing
	case s.probing():
		return allowProbe
	case s.begin():
		return allowTrial
	}
	return s.allow(who, n, fresh) // what there was to try is gone
}

// begin makes the next set the trial's.
func (s *suspects) begin() bool {
	h := s.hunts[0]
	s.hunts = s.hunts[1:]
	set := slices.DeleteFunc(h.set, func(handle uint64) bool { return s.records[handle] == nil || !s.records[handle].held })
	if len(set) == 0 {
		return false
	}
	half := len(set)
	if h.lethal && half > 1 {
		half /= 2
	}
	s.try(set[:half])
	s.trial.sibling = set[half:]
	return true
}

func (s *suspects) try(set []uint64) {
	s.trial.begun, s.trial.set = true, make(map[uint64]struct{}, len(set))
	for _, handle := range set {
		s.trial.set[handle] = struct{}{}
	}
}

// probe begins a trial of one delivery, which the runner is sent.
func (s *suspects) probe(handle uint64) {
	r := s.record(handle)
	r.held = true
	s.aside = slices.DeleteFunc(s.aside, func(a uint64) bool { return a == handle })
	s.try([]uint64{handle})
}

func (s *suspects) tries(handle uint64) bool { _, ok := s.trial.set[handle]; return ok }

func (s *suspects) free(handle uint64) bool { r := s.records[handle]; return r == nil || !r.held }

// rank orders deliveries for a probe: the lowest first. From lastRank on it has
// killed a process alone.
func (s *suspects) rank(handle uint64) int {
	switch r := s.records[handle]; {
	case r == nil:
		return 0
	case r.alone:
		return lastRank + r.crashes
	default:
		return min(r.crashes, lastRank-1)
	}
}

func (s *suspects) record(handle uint64) *suspicion {
	r := s.records[handle]
	if r == nil {
		if s.records == nil {
			s.records = map[uint64]*suspicion{}
		}
		r = &suspicion{}
		s.records[handle] = r
	}
	return r
}

// answered takes note of an answer in time: the delivery is cleared, and others
// may be guilty by it.
func (s *suspects) answered(handle uint64) (guilty []culprit) {
	s.answers++
	s.streak, s.emptyDeaths = 0, 0
	s.gone(handle)
	if s.failing {
		s.failing = false
		s.pardon()
	}
	var again []uint64
	for _, a := range s.aside {
		r := s.records[a]
		if r.singles < 2 {
			again = append(again, a)
			continue
		}
		guilty = append(guilty, culprit{a, r.crashes, r.why})
		delete(s.records, a)
	}
	s.aside = nil
	if len(again) > 0 {
		s.hunts = slices.Insert(s.hunts, 0, hunt{set: again})
	}
	return guilty
}

// pardon forgets what was known of deliveries that killed nobody alone: the
// deaths were the handler's.
func (s *suspects) pardon() {
	for handle, r := range s.records {
		if !r.held {
			delete(s.records, handle)
		}
	}
}

// gone forgets a delivery that nobody waits for any more, or that came late:
// that says nothing of the handler.
func (s *suspects) gone(handle uint64) {
	if s.records[handle] == nil {
		return
	}
	delete(s.records, handle)
	s.aside = slices.DeleteFunc(s.aside, func(a uint64) bool { return a == handle })
	t := &s.trial
	if delete(t.set, handle); t.begun && len(t.set) == 0 {
		if len(t.sibling) > 0 {
			s.hunts = slices.Insert(s.hunts, 0, hunt{set: t.sibling, lethal: true})
		}
		s.trial = trial{}
	}
}

// death is that of a process.
type death struct {
	who   int
	had   []uint64 // and had not answered
	alone bool     // it had nothing else: no late and no cancelled call
	first bool     // and was sent nothing else before
	why   string
}

// died takes note of a death. The result tells that the search has come a step
// further.
func (s *suspects) died(d death) (step bool) {
	who, had, alone := d.who, d.had, d.alone
	for _, handle := range had {
		r := s.record(handle)
		r.crashes++
		r.strikes++
		r.why = d.why
	}
	if len(had) == 0 && alone {
		s.emptyDeaths++
	}
	switch {
	case s.trial.runner == who && s.trial.begun:
		step = s.killed(d)
	case !s.failing:
		step = s.suspect(d)
	}
	if s.trial.runner == who {
		s.trial = trial{}
	}
	if s.emptyDeaths > 1 {
		s.excuse()
		s.fail()
	}
	return step && !s.failing
}

// killed: the trial ended by a death.
func (s *suspects) killed(d death) (step bool) {
	had := d.had
	rest := s.trial.sibling
	for handle := range s.trial.set {
		if !slices.Contains(had, handle) {
			rest = append(rest, handle) // it was not sent
		}
	}
	slices.Sort(rest)
	s.trial = trial{}
	switch {
	case len(had) == 0:
		s.hunts = slices.Insert(s.hunts, 0, hunt{set: rest})
		return false
	case !d.alone:
		s.hunts = slices.Insert(s.hunts, 0, hunt{set: had}, hunt{set: rest})
		return false
	case len(had) == 1:
		s.single(had[0], d.first)
	default:
		s.hunts = slices.Insert(s.hunts, 0, hunt{set: had, lethal: true})
	}
	s.release(rest)
	return true
}

// suspect begins a search, if there is reason to.
func (s *suspects) suspect(d death) (step bool) {
	var set []uint64
	for _, handle := range d.had {
		if s.records[handle].strikes >= crashesBeforeSearch {
			set = append(set, handle)
		}
	}
	switch {
	case len(set) == 0:
		return false
	case len(d.had) == 1 && d.alone:
		s.single(set[0], d.first)
	default:
		s.hold(set)
		s.hunts = append(s.hunts, hunt{set: set, lethal: true})
	}
	return true
}

func (s *suspects) hold(set []uint64) {
	for _, handle := range set {
		s.records[handle].held = true
	}
}

// single: the delivery killed a process that had nothing else; first: and had
// been sent nothing before.
func (s *suspects) single(handle uint64, first bool) {
	r := s.records[handle]
	r.held = true
	if !first {
		s.hunts = slices.Insert(s.hunts, 0, hunt{set: []uint64{handle}, fresh: true})
		return
	}
	if r.singles == 0 || s.answers > r.at {
		r.singles++
	}
	r.at, r.alone = s.answers, true
	s.aside = append(s.aside, handle)
	other := s.streak > 0 && s.lastSingle != handle
	s.streak++
	s.lastSingle = handle
	if other {
		s.excuse()
	}
	if other || s.streak > 2 {
		s.fail()
	}
}

// release frees what another delivery's guilt explains. One that has killed a
// process alone itself stays under suspicion.
func (s *suspects) release(set []uint64) {
	if s.failing {
		return
	}
	for _, handle := range set {
		r := s.records[handle]
		switch {
		case r == nil:
		case r.alone:
			s.hunts = append(s.hunts, hunt{set: []uint64{handle}})
		default:
			r.held, r.strikes = false, 1
		}
	}
}

// excuse: what killed a process alone so far did so as any other would have.
func (s *suspects) excuse() {
	for _, r := range s.records {
		r.singles = 0
	}
}

// fail ends every search: it is the handler. What killed a process alone is
// still to be tried again one day.
func (s *suspects) fail() {
	s.failing = true
	s.trial, s.hunts = trial{}, nil
	s.aside = nil
	for handle, r := range s.records {
		if r.held = r.alone; r.held {
			s.aside = append(s.aside, handle)
		}
	}
	slices.Sort(s.aside)
}

// recalled: a process was told to end, and has ended: what it had not answered
// tells nothing.
func (s *suspects) recalled(who int) {
	t := &s.trial
	if t.runner != who {
		return
	}
	if t.begun {
		rest := slices.Clone(t.sibling)
		for handle := range t.set {
			rest = append(rest, handle)
		}
		s.hunts = slices.Insert(s.hunts, 0, hunt{set: rest})
	}
	s.trial = trial{}
}

// calm ends failing where nothing is there to be tried: a process has lived
// long with nothing in hand.
func (s *suspects) calm() {
	s.failing, s.streak, s.emptyDeaths = false, 0, 0
}
