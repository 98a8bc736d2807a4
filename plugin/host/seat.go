package host

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/kconsume/kconsume/plugin/printable"
)

// seat is the place of one of the handler's processes. Its goroutine owns the
// process: it waits for the end and starts the next one, until Stop. An upgrade
// puts another process in the place, and leaves the old one to it to end.
type seat struct {
	host     *Host
	handover chan *process // holds one; written with Host.mu held

	process  *process           // guarded by Host.mu; nil while there is none
	version  string             // guarded by Host.mu; of the last process
	restarts int                // guarded by Host.mu
	since    time.Time          // guarded by Host.mu
	starting context.CancelFunc // guarded by Host.mu; gives up a start under way
	left     bool               // guarded by Host.mu; nobody reads handover any more
}

// keep keeps a process in the seat, p at first. The error is of the last one's
// end.
func (s *seat) keep(p *process) error {
	h := s.host
	pause := backoff{min: h.cfg.BackoffMin, max: h.cfg.BackoffMax}
	for p != nil {
		settled := time.NewTimer(h.cfg.BackoffMax)
		next, end := s.attend(p, settled.C)
		settled.Stop()
		switch {
		case next != nil:
			old := p
			h.retiring.Go(func() { h.bury(old) })
			pause, p = backoff{min: pause.min, max: pause.max}, next
		case end == nil:
			return s.leave(p)
		default:
			wait := s.lost(p, end, &pause)
			p = s.restart(wait, &pause)
		}
	}
	return s.leave(nil)
}

// attend waits until p has ended, and ends it for good; until it has been
// replaced, by next; or until Stop, with neither.
func (s *seat) attend(p *process, settled <-chan time.Time) (next *process, end *ending) {
	h := s.host
	for {
		select {
		case <-p.child.exited:
		case <-p.broken.Done():
		case <-p.weary:
			h.recall(p, h.drained)
			e := p.end()
			e.cause, e.recalled = CauseHang, true
			e.why = fmt.Errorf("%d calls ran on past their deadline, it was told to end: %w", p.pace.concurrency, e.why)
			return nil, &e
		case next := <-s.handover:
			return next, nil
		case <-h.stop.Done():
			return nil, nil
		case <-settled:
			h.settled(p)
			continue
		}
		e := p.end()
		return nil, &e
	}
}

// settled: p has lived long enough to be no part of a crash loop, if it had
// nothing to do.
func (h *Host) settled(p *process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.hand.sent.n == 0 && h.ledger.waiting.n == 0 {
		h.suspects.calm()
		h.note()
	}
}

// adopt makes p the process of a seat. It is called with mu held.
func (h *Host) adopt(s *seat, p *process) {
	if h.runs != p.file {
		h.runs = p.file
		h.version++
		h.suspects = suspects{}
	}
	h.launched++
	p.number, p.version = h.launched, h.version
	h.hello = p.hello
	s.process, s.version, s.since = p, p.hello.Version, p.began
	if p.pace.debugged {
		h.cfg.Logger.Warn("handler is being debugged: no deadline holds", "pid", p.child.pid())
	}
	p.run(h)
	h.note()
	h.nudge()
}

// lost takes back what a dead process had, and tells how long to wait for the
// next one.
func (s *seat) lost(p *process, end *ending, pause *backoff) time.Duration {
	h := s.host
	was, step := h.lose(p, *end, !end.recalled)
	h.mu.Lock()
	s.restarts++
	h.status.Restarts++
	h.ended(end.why, end.cause)
	h.note()
	blamed := h.status.Blamed
	h.mu.Unlock()
	lived := time.Since(p.began)
	h.cfg.Logger.Error("handler process ended: starting it again", "why", end.why.Error(),
		"lived", lived.Round(time.Millisecond), "redelivered", len(was.again))
	return pause.after(lived, step, blamed, rand.Float64())
}

// restart starts the next process after wait, however often it takes. It
// returns nil when the host is to stop.
func (s *seat) restart(wait time.Duration, pause *backoff) *process {
	h := s.host
	told := ""
	for {
		if next, stopped := s.rest(wait); next != nil || stopped {
			return next
		}
		p, err := s.start()
		if err == nil || h.stop.Err() != nil {
			return p
		}
		if err.Error() != told { // a repeated failure is told once
			told = err.Error()
			h.cfg.Logger.Error("handler does not start: trying again", "why", told)
		}
		h.mu.Lock()
		h.ended(err, CauseStart)
		h.note()
		h.mu.Unlock()
		wait = pause.delay(0, rand.Float64())
	}
}

// rest waits for d, unless an upgrade fills the seat or the host is to stop.
func (s *seat) rest(d time.Duration) (next *process, stopped bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil, false
	case next := <-s.handover:
		return next, false
	case <-s.host.stop.Done():
		return nil, true
	}
}

// start starts a process, unless an upgrade fills the seat meanwhile.
func (s *seat) start() (*process, error) {
	h := s.host
	ctx, cancel := context.WithCancel(h.stop)
	defer cancel()
	h.mu.Lock()
	s.starting = cancel
	cfg, name := *h.cfg, h.hello.Name
	cfg.SHA256 = h.pin
	next := s.handed()
	h.mu.Unlock()
	if next != nil {
		return next, nil
	}
	p, err := launch(ctx, &cfg, name)
	h.mu.Lock()
	defer h.mu.Unlock()
	s.starting = nil
	if next := s.handed(); next != nil {
		if p != nil {
			h.retiring.Go(p.dismiss)
		}
		return next, nil
	}
	if err != nil {
		return nil, err
	}
	h.cfg.Logger.Info("handler process started", "version", printable.Line(p.hello.Version), "pid", p.child.pid())
	h.adopt(s, p)
	return p, nil
}

// handed takes what an upgrade has put in the seat, if it has.
func (s *seat) handed() *process {
	select {
	case next := <-s.handover:
		return next
	default:
		return nil
	}
}

// recall sends the process nothing more and lets it answer what it has, until
// enough is closed. One that has answered everything and does not end its
// stream is waited for no longer than a grace.
func (h *Host) recall(p *process, enough <-chan struct{}) {
	p.draining.Store(true)
	p.nudge()
	tick := time.NewTicker(h.cfg.beat)
	defer tick.Stop()
	var idle time.Duration
	for {
		select {
		case <-p.received:
			return
		case <-p.child.exited:
			return
		case <-p.broken.Done():
			return
		case <-enough:
			return
		case <-tick.C:
		}
		idle += h.cfg.beat
		if h.inHand(p) > 0 {
			idle = 0
		}
		if idle > h.cfg.Grace {
			return
		}
	}
}

func (h *Host) inHand(p *process) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return p.hand.sent.n
}

// bury ends a process that an upgrade has replaced: what it does not answer
// goes to the others.
func (h *Host) bury(p *process) {
	h.recall(p, h.drained)
	end := p.end()
	was, _ := h.lose(p, end, false)
	h.mu.Lock()
	h.status.Ends[CauseReplaced]++
	h.mu.Unlock()
	if end.killed || len(was.again) > 0 {
		h.cfg.Logger.Warn("replaced handler process did not end as it should", "why", end.why.Error(),
			"killed", end.killed, "redelivered", len(was.again))
	}
}

// leave ends the seat's last process, if there is one, and what an upgrade has
// just put in its place.
func (s *seat) leave(p *process) error {
	h := s.host
	h.mu.Lock()
	s.left = true
	next := s.handed()
	h.mu.Unlock()
	if next != nil && p != nil {
		h.retiring.Go(func() { h.bury(p) })
	}
	if next != nil {
		p = next
	}
	if p == nil {
		return nil
	}
	h.recall(p, h.drained)
	end := p.end()
	was, _ := h.lose(p, end, false)
	switch {
	case end.killed:
		return fmt.Errorf("stop handler %s: it did not end by itself: %w", h.cfg.Name, end.why)
	case len(was.again)+len(was.cancelled) > 0:
		return fmt.Errorf("stop handler %s: of its deliveries %d left unanswered: %w", h.cfg.Name, len(was.again)+len(was.cancelled), end.why)
	}
	return nil
}
