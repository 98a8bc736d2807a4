package host

import (
	"fmt"
	"iter"
	"time"

	"github.com/kconsume/kconsume/plugin/internal/wire"
	"github.com/kconsume/kconsume/plugin/printable"
)

// processes yields those that have something in hand, or may be sent something.
// It is called with mu held.
func (h *Host) processes() iter.Seq[*process] {
	return func(yield func(*process) bool) {
		for p := range h.takers() {
			if !yield(p) {
				return
			}
		}
		for _, p := range h.replaced {
			if !yield(p) {
				return
			}
		}
	}
}

// takers yields the processes that may be sent something. It is called with mu
// held.
func (h *Host) takers() iter.Seq[*process] {
	return func(yield func(*process) bool) {
		for _, t := range h.seats {
			if p := t.process; p != nil && !p.draining.Load() && !yield(p) {
				return
			}
		}
	}
}

// next puts into f what p is to be sent now, and reports whether that is
// anything.
func (h *Host) next(p *process, f *wire.HostFrame) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.draining.Load() || h.stop.Err() != nil {
		p.draining.Store(true)
		f.Drain = true
	} else {
		h.fill(p, f)
	}
	f.Cancel = append(f.Cancel, p.hand.cancels...)
	p.hand.cancels = p.hand.cancels[:0]
	return f.Drain || len(f.Records) > 0 || len(f.Cancel) > 0
}

// fill takes for p what waits, as far as it may have it.
func (h *Host) fill(p *process, f *wire.HostFrame) {
	var may func(uint64) bool
	s := &h.suspects
	p.pace.share = h.share()
	switch s.allow(p.number, p.hand.sent.n, h.fresh(p)) {
	case allowNothing:
		return
	case allowFree:
		may = s.free
	case allowTrial:
		may, p.pace.share = s.tries, 0
	case allowProbe:
		handle, ok := h.leastSuspected()
		if !ok || !h.patient(p, handle) {
			return
		}
		s.probe(handle)
		may = s.tries
	}
	h.ledger.take(p.hand, &p.pace, time.Now().Add(-p.stalled), f, may)
}

// fresh: p was sent nothing before, or there is no such process, and none to come.
func (h *Host) fresh(p *process) bool {
	if p.hand.taken == 0 {
		return true
	}
	for _, t := range h.seats {
		if t.process == nil || t.process.draining.Load() || t.process.hand.taken == 0 {
			return false
		}
	}
	return true
}

// leastSuspected is the delivery among those that wait that may best be tried
// to see whether the handler works at all.
func (h *Host) leastSuspected() (handle uint64, ok bool) {
	least := 0
	for i := h.ledger.waiting.first; i != 0; i = h.ledger.slots[i].next {
		d := &h.ledger.slots[i].delivery
		if rank := h.suspects.rank(d.Handle); !ok || rank < least {
			handle, least, ok = d.Handle, rank, true
		}
	}
	return handle, ok
}

// patient reports whether a delivery may be tried as a probe on p. One that has
// killed a process alone is given time: each crash doubles it as it does the
// wait for the next process, but this one is there for what comes meanwhile.
func (h *Host) patient(p *process, handle uint64) bool {
	rank := h.suspects.rank(handle)
	if rank < lastRank {
		return true
	}
	wait := h.cfg.BackoffMax
	if doublings := rank - lastRank; doublings < 20 {
		wait = min(wait, h.cfg.BackoffMin<<doublings)
	}
	return time.Since(p.began) >= wait
}

// share is how many deliveries one process may have in hand, 0 = all: so many
// that all there are would be spread evenly. For a process that is down the
// others run what they can at once, and leave the rest to it.
func (h *Host) share() int {
	if len(h.seats) == 1 {
		return 0
	}
	all, takers := h.ledger.waiting.n, 0
	for p := range h.takers() {
		all += p.hand.sent.n
		takers++
	}
	return max(portion(all, len(h.seats)), min(h.cfg.each(), portion(all, max(1, takers))))
}

// portion is the n-th part, rounded up.
func portion(all, n int) int { return (all + n - 1) / n }

// nudge wakes the processes that are to take what waits, the least loaded
// first. It is called with mu held.
func (h *Host) nudge() {
	if len(h.seats) == 1 || h.suspects.pending() {
		for p := range h.takers() {
			p.nudge()
		}
		return
	}
	h.round++
	share := h.share()
	for left := h.ledger.waiting.n; left > 0; {
		var least *process
		for p := range h.takers() {
			if p.round != h.round && p.hand.sent.n < share && (least == nil || p.hand.sent.n < least.hand.sent.n) {
				least = p
			}
		}
		if least == nil {
			return
		}
		least.round = h.round
		least.nudge()
		left -= share - least.hand.sent.n
	}
}

// overdue names the first delivery that p should have answered by now. A time
// in which we stood still ourselves, frozen or starved, does not count: the
// answers wait to be read.
func (h *Host) overdue(p *process, now time.Time, sinceLast time.Duration) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if sinceLast > 2*h.cfg.beat {
		p.stalled += sinceLast - h.cfg.beat
	}
	if h.suspects.probing() {
		p.nudge() // see patient
	}
	d := h.ledger.overdue(p.hand, now.Add(-p.stalled))
	if d == nil {
		return ""
	}
	return fmt.Sprintf("%s/%d@%d", printable.Line(d.Message.Topic), d.Message.Partition, d.Message.Offset)
}
