package host

import (
	"fmt"
	"time"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/internal/wire"
)

const (
	// frameRecords and frameBytes bound one frame of records. A larger record
	// goes alone.
	frameRecords = 500
	frameBytes   = 1 << 20
)

// longest is the longest timeout that is watched from outside, too: sums of it
// must not overflow.
const longest = 24 * time.Hour

// A number on the wire is slot + generation<<slotBits, 53 bits in all. The
// generation grows with each use of a slot, so that an answer given twice does
// not settle the delivery that has the slot next.
const (
	slotBits       = 24
	generationMask = 1<<(53-slotBits) - 1
)

// ledger holds every delivery that waits for its answer: those that wait to be
// sent, in the order in which they came, and those that a process has, in the
// hand of that process. It is not safe for concurrent use: Host.mu guards it.
type ledger struct {
	slots   []slot // slots[0] is nobody's: 0 ends a list
	free    []uint32
	waiting list
}

// hand is what one process has: the deliveries that it was sent and has not
// answered, in the order in which they were sent. Host.mu guards it.
type hand struct {
	sent    list
	bytes   int
	time    time.Duration // the sum of the timeouts
	untimed int           // the number of deliveries without one
	taken   int           // deliveries so far, answered ones included
	// late maps a number on the wire to an answered delivery whose call still
	// runs; runs has the number of such deliveries for each of these calls.
	late    map[uint64]lateDelivery
	runs    map[uint64]int
	cancels []uint64 // numbers of calls to cancel, not told yet
}

// lateDelivery is answered, but its call runs on. A call that handles a batch is
// that of several deliveries.
type lateDelivery struct{ handle, call uint64 }

// slot is one unanswered delivery: in no list, waiting or in a hand.
type slot struct {
	delivery   plugin.Delivery
	size       int // bytes on the wire, about
	generation uint32
	holder     *hand     // nil while it is not sent
	cancelled  bool      // only while sent
	due        time.Time // past it the process hangs; zero = never
	prev, next uint32
}

type list struct {
	first, last uint32
	n           int
}

func newLedger() *ledger { return &ledger{slots: make([]slot, 1)} }

func newHand() *hand { return &hand{late: map[uint64]lateDelivery{}, runs: map[uint64]int{}} }

// add appends a delivery to those that wait.
func (l *ledger) add(d *plugin.Delivery, size int) {
	var i uint32
	if n := len(l.free); n > 0 {
		i, l.free = l.free[n-1], l.free[:n-1]
	} else {
		if len(l.slots) == 1<<slotBits {
			panic(fmt.Sprintf("host: %d unanswered deliveries: the sender ignores its bounds", len(l.slots)-1))
		}
		i = uint32(len(l.slots))
		l.slots = append(l.slots, slot{})
	}
	s := &l.slots[i]
	s.delivery, s.size = *d, size
	l.push(&l.waiting, i)
}

func (l *ledger) push(to *list, i uint32) {
	s := &l.slots[i]
	s.prev, s.next = to.last, 0
	if to.last == 0 {
		to.first = i
	} else {
		l.slots[to.last].next = i
	}
	to.last = i
	to.n++
}

// giveBack puts a sent delivery before those that wait.
func (l *ledger) giveBack(i uint32) {
	s := &l.slots[i]
	l.unlink(&s.holder.sent, i)
	s.holder.unmark(s)
	s.prev, s.next = 0, l.waiting.first
	if l.waiting.first == 0 {
		l.waiting.last = i
	} else {
		l.slots[l.waiting.first].prev = i
	}
	l.waiting.first = i
	l.waiting.n++
}

func (l *ledger) unlink(from *list, i uint32) {
	s := &l.slots[i]
	if s.prev == 0 {
		from.first = s.next
	} else {
		l.slots[s.prev].next = s.next
	}
	if s.next == 0 {
		from.last = s.prev
	} else {
		l.slots[s.next].prev = s.prev
	}
	from.n--
}

// pace is what take needs to know about the process that it takes for.
type pace struct {
	concurrency int // calls that it is told to run at once
	calls       int // and that it runs at once; fewer where it says so
	grace       time.Duration
	maxRecords  int  // in flight, 0 = no limit
	maxBytes    int  // in flight, 0 = no limit
	share       int  // in flight, so that other processes get theirs; 0 = no limit
	debugged    bool // nothing is due: a person looks at it
}

// take moves what fits into one frame from waiting to a hand and adds it to f.
// may, unless it is nil, says which deliveries may go; the others are passed
// over.
//
// A delivery begins at the latest when the calls before it, each ended by its
// own timeout, have been worked off by all that run at once, and is
// answered within its own timeout: a delivery unanswered past that and a grace
// means that the process hangs.
func (l *ledger) take(h *hand, p *pace, now time.Time, f *wire.HostFrame, may func(handle uint64) bool) {
	bytes := 0
	for i := l.waiting.first; i != 0 && len(f.Records) < frameRecords; {
		s := &l.slots[i]
		at := i
		i = s.next
		if may != nil && !may(s.delivery.Handle) {
			continue
		}
		if len(f.Records) > 0 && bytes+s.size > frameBytes || h.full(p, s.size) {
			return
		}
		bytes += s.size
		l.unlink(&l.waiting, at)
		l.push(&h.sent, at)
		h.mark(p, s, now)
		h.taken++
		fill(f.Add(len(s.delivery.Message.Headers)), &s.delivery, l.number(at))
	}
}

func (h *hand) full(p *pace, size int) bool {
	return p.maxRecords > 0 && h.sent.n >= p.maxRecords ||
		p.share > 0 && h.sent.n >= p.share ||
		p.maxBytes > 0 && h.sent.n > 0 && h.bytes+size > p.maxBytes
}

func (h *hand) mark(p *pace, s *slot, now time.Time) {
	s.holder, s.due = h, time.Time{}
	h.bytes += s.size
	if s.delivery.Timeout <= 0 || s.delivery.Timeout > longest {
		h.untimed++
		return
	}
	if h.untimed == 0 && !p.debugged {
		s.due = now.Add(h.time/time.Duration(p.calls) + s.delivery.Timeout + p.grace)
	}
	h.time += s.delivery.Timeout
}

func (h *hand) unmark(s *slot) {
	s.holder, s.cancelled = nil, false
	h.bytes -= s.size
	if s.delivery.Timeout <= 0 || s.delivery.Timeout > longest {
		h.untimed--
		return
	}
	h.time -= s.delivery.Timeout
}

func (l *ledger) number(i uint32) uint64 {
	return uint64(i) | uint64(l.slots[i].generation)<<slotBits
}

// find returns the slot of a delivery in a hand, 0 if the number names none.
func (l *ledger) find(h *hand, number uint64) uint32 {
	i := uint32(number & (1<<slotBits - 1))
	if uint64(i) >= uint64(len(l.slots)) || l.slots[i].holder != h || l.number(i) != number {
		return 0
	}
	return i
}

// settle ends a sent delivery and returns its handle.
func (l *ledger) settle(i uint32) uint64 {
	h := l.slots[i].holder
	l.unlink(&h.sent, i)
	h.unmark(&l.slots[i])
	return l.release(i)
}

func (l *ledger) release(i uint32) uint64 {
	s := &l.slots[i]
	handle := s.delivery.Handle
	*s = slot{generation: (s.generation + 1) & generationMask}
	l.free = append(l.free, i)
	return handle
}

// withdraw takes out the deliveries among handles that wait and returns their
// handles.
func (l *ledger) withdraw(handles map[uint64]struct{}) (unsent []uint64) {
	for i := l.waiting.first; i != 0; {
		next := l.slots[i].next
		if _, ok := handles[l.slots[i].delivery.Handle]; ok {
			l.unlink(&l.waiting, i)
			unsent = append(unsent, l.release(i))
		}
		i = next
	}
	return unsent
}

// cancel notes in a hand which calls among handles are to be cancelled.
func (l *ledger) cancel(h *hand, handles map[uint64]struct{}) {
	for i := h.sent.first; i != 0; i = l.slots[i].next {
		s := &l.slots[i]
		if _, ok := handles[s.delivery.Handle]; ok && !s.cancelled {
			s.cancelled = true
			h.cancels = append(h.cancels, l.number(i))
		}
	}
}

// lost is what a process had when it ended, by handle.
type lost struct {
	again     []uint64 // wait to be sent once more
	cancelled []uint64 // nobody is to get them any more
	ended     []uint64 // the late calls, which ended with it
}

// lose puts what is in a hand before what waits, since its process is gone: the
// next one gets it in the order of before.
func (l *ledger) lose(h *hand) (was lost) {
	for i := h.sent.first; i != 0; {
		next := l.slots[i].next
		if l.slots[i].cancelled {
			was.cancelled = append(was.cancelled, l.settle(i))
		} else {
			h.unmark(&l.slots[i])
			was.again = append(was.again, l.slots[i].delivery.Handle)
		}
		i = next
	}
	if h.sent.n > 0 {
		l.slots[h.sent.last].next = l.waiting.first
		if l.waiting.first == 0 {
			l.waiting.last = h.sent.last
		} else {
			l.slots[l.waiting.first].prev = h.sent.last
		}
		l.waiting.first = h.sent.first
		l.waiting.n += h.sent.n
		h.sent = list{}
	}
	for _, d := range h.late {
		was.ended = append(was.ended, d.handle)
	}
	clear(h.late)
	clear(h.runs)
	return was
}

// runsOn notes that an answered delivery is late, and tells how many calls are.
func (h *hand) runsOn(number uint64, d lateDelivery) int {
	h.late[number] = d
	h.runs[d.call]++
	return len(h.runs)
}

// runsNoMore takes out a late delivery whose call has ended.
func (h *hand) runsNoMore(number uint64) (handle uint64, ok bool) {
	d, ok := h.late[number]
	if !ok {
		return 0, false
	}
	delete(h.late, number)
	if h.runs[d.call]--; h.runs[d.call] == 0 {
		delete(h.runs, d.call)
	}
	return d.handle, true
}

// overdue returns the first delivery in a hand that should have been answered
// by now.
func (l *ledger) overdue(h *hand, now time.Time) *plugin.Delivery {
	for i := h.sent.first; i != 0; i = l.slots[i].next {
		if s := &l.slots[i]; !s.due.IsZero() && now.After(s.due) {
			return &s.delivery
		}
	}
	return nil
}
