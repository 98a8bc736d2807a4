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

// ledger holds every delivery that waits for its answer, in the order in which
// they came: first those that the present process has, then those that wait to
// be sent. It is not safe for concurrent use: Host.mu guards it.
type ledger struct {
	slots   []slot // slots[0] is nobody's: 0 ends a list
	free    []uint32
	waiting list
	sent    list
	// What the present process has: bytes, the sum of the timeouts, and the
	// number of deliveries without one.
	sentBytes int
	sentTime  time.Duration
	untimed   int
	// late maps a number on the wire to the handle of an answered delivery
	// whose call still runs.
	late map[uint64]uint64
}

// slot is one unanswered delivery: in no list, waiting or sent.
type slot struct {
	delivery   plugin.Delivery
	size       int // bytes on the wire, about
	generation uint32
	sent       bool
	cancelled  bool      // only while sent
	due        time.Time // past it the process hangs; zero = never
	prev, next uint32
}

type list struct {
	first, last uint32
	n           int
}

func newLedger() *ledger {
	return &ledger{slots: make([]slot, 1), late: map[uint64]uint64{}}
}

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
	concurrency int
	grace       time.Duration
	maxRecords  int // in flight, 0 = no limit
	maxBytes    int // in flight, 0 = no limit
}

// take moves what fits into one frame from waiting to sent and adds it to f.
//
// A delivery begins at the latest when the calls before it, each ended by its
// own timeout, have been worked off by all of concurrency together, and is
// answered within its own timeout: a delivery unanswered past that and a grace
// means that the process hangs.
func (l *ledger) take(p *pace, now time.Time, f *wire.HostFrame) {
	bytes := 0
	for i := l.waiting.first; i != 0 && len(f.Records) < frameRecords; i = l.waiting.first {
		s := &l.slots[i]
		if len(f.Records) > 0 && bytes+s.size > frameBytes || l.full(p, s.size) {
			return
		}
		bytes += s.size
		l.unlink(&l.waiting, i)
		l.push(&l.sent, i)
		l.mark(p, s, now)
		fill(f.Add(len(s.delivery.Message.Headers)), &s.delivery, l.number(i))
	}
}

func (l *ledger) full(p *pace, size int) bool {
	return p.maxRecords > 0 && l.sent.n >= p.maxRecords ||
		p.maxBytes > 0 && l.sent.n > 0 && l.sentBytes+size > p.maxBytes
}

func (l *ledger) mark(p *pace, s *slot, now time.Time) {
	s.sent, s.due = true, time.Time{}
	l.sentBytes += s.size
	if s.delivery.Timeout <= 0 || s.delivery.Timeout > longest {
		l.untimed++
		return
	}
	if l.untimed == 0 {
		s.due = now.Add(l.sentTime/time.Duration(p.concurrency) + s.delivery.Timeout + p.grace)
	}
	l.sentTime += s.delivery.Timeout
}

func (l *ledger) unmark(s *slot) {
	s.sent, s.cancelled = false, false
	l.sentBytes -= s.size
	if s.delivery.Timeout <= 0 || s.delivery.Timeout > longest {
		l.untimed--
		return
	}
	l.sentTime -= s.delivery.Timeout
}

func (l *ledger) number(i uint32) uint64 {
	return uint64(i) | uint64(l.slots[i].generation)<<slotBits
}

// find returns the slot of a delivery that the present process has, 0 if the
// number names none.
func (l *ledger) find(number uint64) uint32 {
	i := uint32(number & (1<<slotBits - 1))
	if uint64(i) >= uint64(len(l.slots)) || !l.slots[i].sent || l.number(i) != number {
		return 0
	}
	return i
}

// settle ends a sent delivery and returns its handle.
func (l *ledger) settle(i uint32) uint64 {
	l.unlink(&l.sent, i)
	l.unmark(&l.slots[i])
	return l.release(i)
}

func (l *ledger) release(i uint32) uint64 {
	s := &l.slots[i]
	handle := s.delivery.Handle
	*s = slot{generation: (s.generation + 1) & generationMask}
	l.free = append(l.free, i)
	return handle
}

// cancel takes out the deliveries among handles that wait and returns their
// handles, and the numbers of those that the present process has.
func (l *ledger) cancel(handles []uint64) (unsent, numbers []uint64) {
	wanted := make(map[uint64]struct{}, len(handles))
	for _, h := range handles {
		wanted[h] = struct{}{}
	}
	for i := l.sent.first; i != 0; i = l.slots[i].next {
		s := &l.slots[i]
		if _, ok := wanted[s.delivery.Handle]; ok && !s.cancelled {
			s.cancelled = true
			numbers = append(numbers, l.number(i))
		}
	}
	for i := l.waiting.first; i != 0; {
		next := l.slots[i].next
		if _, ok := wanted[l.slots[i].delivery.Handle]; ok {
			l.unlink(&l.waiting, i)
			unsent = append(unsent, l.release(i))
		}
		i = next
	}
	return unsent, numbers
}

// lose puts what the process had back before what waits, since the process is
// gone: the next one gets it in the order of before. It returns the handles of
// the cancelled deliveries, which nobody is to get any more, and of the late
// calls, which ended with their process.
func (l *ledger) lose() (cancelled, ended []uint64) {
	for i := l.sent.first; i != 0; {
		next := l.slots[i].next
		if l.slots[i].cancelled {
			cancelled = append(cancelled, l.settle(i))
		} else {
			l.unmark(&l.slots[i])
		}
		i = next
	}
	if l.sent.n > 0 {
		l.slots[l.sent.last].next = l.waiting.first
		if l.waiting.first == 0 {
			l.waiting.last = l.sent.last
		} else {
			l.slots[l.waiting.first].prev = l.sent.last
		}
		l.waiting.first = l.sent.first
		l.waiting.n += l.sent.n
		l.sent = list{}
	}
	for number, handle := range l.late {
		ended = append(ended, handle)
		delete(l.late, number)
	}
	return cancelled, ended
}

// overdue returns the first delivery that should have been answered by now.
func (l *ledger) overdue(now time.Time) *plugin.Delivery {
	for i := l.sent.first; i != 0; i = l.slots[i].next {
		if s := &l.slots[i]; !s.due.IsZero() && now.After(s.due) {
			return &s.delivery
		}
	}
	return nil
}
