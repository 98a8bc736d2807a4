package host

import (
	"context"
	"fmt"
	"maps"
	"time"
)

// State is what a host is doing.
type State string

const (
	StateRunning State = "running" // with one process at least
	StateDown    State = "down"    // waits to start a process again, or starts it
	// StateFailing is a crash loop: the handler's processes die whatever they
	// are given, or with nothing to do. Deliveries wait, none is blamed, and
	// single ones are tried until one is answered.
	StateFailing State = "failing"
	StateStopped State = "stopped"
)

// Status is a snapshot of a host.
type Status struct {
	State              State
	Name, Version, SDK string    // of the last Hello
	PID                int       // of the first process; 0 while there is none
	Restarts           int       // processes that ended without being asked to
	Since              time.Time // when the state began
	LastExit           string    // why the last process ended or did not start; "" = never
	InFlight           int       // deliveries that the processes have not answered
	Waiting            int       // deliveries that wait to be sent
	Late               int       // calls that run on past their deadline
	BadAnswers         int       // answers to nothing that was asked, or to something twice

	// Processes are those that should run, in their order, then those that an
	// upgrade has replaced and that still answer what they have.
	Processes []ProcessStatus
	Ends      map[Cause]int // of processes, the asked for at a stop aside
	Blamed    int           // deliveries found to kill their process
	Upgrades  int           // that took place
	// FailedUpgrades left the processes of before in their place.
	FailedUpgrades int
	OutputDropped  uint64 // bytes of the handler's output that were not logged
}

// ProcessStatus is a snapshot of one process.
type ProcessStatus struct {
	PID      int    // 0 while there is none
	Version  string // of the last one
	Replaced bool   // by an upgrade: it gets nothing new
	InFlight int
	Late     int
	Restarts int       // in its place, without being asked to
	Since    time.Time // when it was started, or ended
}

// Cause is why a process ended or did not start: one of a few words, fit for a
// metric's label.
type Cause string

const (
	CauseExit     Cause = "exit"     // it exited by itself
	CauseSignal   Cause = "signal"   // a signal killed it that was not ours
	CauseHang     Cause = "hang"     // it was killed or told to end since it or its calls hung
	CauseProtocol Cause = "protocol" // it broke off a stream, and was ended
	CauseStart    Cause = "start"    // it did not come up
	CauseReplaced Cause = "replaced" // an upgrade took its place
)

// Causes lists them all.
func Causes() []Cause {
	return []Cause{CauseExit, CauseSignal, CauseHang, CauseProtocol, CauseStart, CauseReplaced}
}

// aliveEvery is the time between two tries of Alive.
const aliveEvery = 10 * time.Millisecond

// Alive reports whether the host answers, whatever its processes do: nobody
// holds what it owns for as long as ctx lasts. Unlike Status it never hangs.
func (h *Host) Alive(ctx context.Context) error {
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for !h.mu.TryLock() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("ask the handler's host: %w", ctx.Err())
		}
	}
	h.mu.Unlock()
	return nil
}

// Status tells how the host is.
func (h *Host) Status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.status
	s.Name, s.Version, s.SDK = h.hello.Name, h.hello.Version, h.hello.SDK
	s.Waiting, s.Ends, s.OutputDropped = h.ledger.waiting.n, maps.Clone(s.Ends), h.cfg.unlogged.Load()
	for _, t := range h.seats {
		p := ProcessStatus{Version: t.version, Restarts: t.restarts, Since: t.since}
		if t.process != nil {
			t.process.tell(&p)
		}
		s.Processes = append(s.Processes, p)
	}
	for _, old := range h.replaced {
		p := ProcessStatus{Version: old.hello.Version, Replaced: true, Since: old.began}
		old.tell(&p)
		s.Processes = append(s.Processes, p)
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		s.InFlight += p.InFlight
		s.Late += p.Late
		if s.PID == 0 && !p.Replaced {
			s.PID = p.PID
		}
	}
	return s
}

// tell is called with Host.mu held.
func (p *process) tell(s *ProcessStatus) {
	s.PID, s.InFlight, s.Late = p.child.pid(), p.hand.sent.n, len(p.hand.late)
}

// note finds out what the state is. It is called with mu held.
func (h *Host) note() {
	state := StateDown
	for _, t := range h.seats {
		if t.process != nil {
			state = StateRunning
		}
	}
	switch {
	case h.over:
		state = StateStopped
	case h.suspects.failing:
		state = StateFailing
	}
	if h.status.State == state {
		return
	}
	if state == StateFailing {
		h.cfg.Logger.Error("crash loop: the handler's process dies whatever it is given: its records wait, single ones are tried",
			"why", h.status.LastExit)
	} else if h.status.State == StateFailing {
		h.cfg.Logger.Info("crash loop is over")
	}
	h.status.State, h.status.Since = state, time.Now()
}

// ended counts the end of a process, or a start that failed. It is called with
// mu held.
func (h *Host) ended(why error, cause Cause) {
	h.status.LastExit = why.Error()
	h.status.Ends[cause]++
}
