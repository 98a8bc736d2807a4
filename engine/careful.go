package engine

import (
	"time"

	"github.com/kconsume/kconsume/plugin"
)

// After an unclean end records are sent with care: see journal. A partition then
// has a number of records left that go one at a time, and what is suspected of
// having ended the process goes with nothing else in flight.

// suspectPatience is how long a record that would be blamed waits for another
// one to be answered first.
const suspectPatience = 10 * time.Second

// suspectLife is how long a suspect that does not come again is remembered: it
// may have gone to another member.
const suspectLife = 10 * time.Minute

// companyAfter is how long, beyond the deadline of a call, a record that goes
// alone is waited for before another one of its partition goes too: it takes the
// handler's process down again and again, perhaps, and what is answered beside it
// is the proof.
const companyAfter = 10 * time.Second

// careful reports that the journal has a say in what is sent.
func (l *loop) careful() bool {
	return l.journal.unclean && (l.carefulLeft > 0 || len(l.journal.crashes) > 0)
}

// mayGo reports whether the next ready record of a partition may be sent now.
func (l *loop) mayGo(p *partition, now time.Time) bool {
	if p.holdsBack() || p.ready.len() == 0 {
		return false
	}
	if !l.careful() {
		return true
	}
	if l.lone {
		return false
	}
	id := p.idAt(p.ready.peek())
	if l.journal.suspected(id) && p.ready.len() > 1 {
		p.ready.push(p.ready.pop()) // others first: they may prove that it is this one
		id = p.idAt(p.ready.peek())
	}
	switch {
	case l.journal.suspected(id) && now.Before(l.born.Add(suspectPatience)):
		return false
	case l.journal.alone(id):
		return l.inFlight == 0
	}
	return p.careful == 0 || p.flying == 0 || now.Sub(p.watchedAt) > l.cfg.HandlerTimeout+companyAfter
}

// sendWatched sends a record as send does and, while there is reason for care,
// writes it down first. A record that takes the process down is sent no more.
func (l *loop) sendWatched(batch []plugin.Delivery, p *partition, slot uint64, now time.Time) []plugin.Delivery {
	if !l.careful() || !p.track.open(slot) || p.track.at(slot).state != itemReady {
		return l.send(batch, p, slot, now)
	}
	id := p.idAt(slot)
	if l.journal.blamed(id) {
		it := p.track.at(slot)
		key, keyed := it.key, it.keyed
		it.state = itemForwarding
		delete(l.journal.crashes, id)
		l.decided(p, slot, &plugin.Verdict{
			Class: plugin.ClassPermanent, Reason: plugin.ReasonHandlerCrash, Rule: "journal",
			Message: "this process died three times with this record in hand, while others were handled",
		}, "", now)
		l.leaveKey(p.lane, key, keyed)
		return batch
	}
	if err := l.journal.begin(id); err != nil {
		l.problems.set("journal", err.Error())
	}
	l.lone = l.journal.alone(id)
	if p.careful > 0 {
		p.careful--
		l.carefulLeft--
	}
	p.watchedAt = now
	p.track.at(slot).noted = true
	return l.send(batch, p, slot, now)
}

// answeredNoted notes that a record that was written down has been answered.
func (l *loop) answeredNoted(id string) {
	l.lone = false
	if err := l.journal.end(id); err != nil {
		l.problems.set("journal", err.Error())
	}
}

// stepCare goes on with care while there is reason for it.
func (l *loop) stepCare(now time.Time) {
	if !l.careful() {
		return
	}
	if l.carefulLeft == 0 && now.After(l.born.Add(suspectLife)) {
		clear(l.journal.crashes)
	}
	l.resumeAll()
}

// resumeAll gives every partition its turn again: what was in the way is gone.
func (l *loop) resumeAll() {
	for p := range l.owned {
		l.resume(p)
	}
}

// idAt is the stable id of a record that is held.
func (p *partition) idAt(slot uint64) string {
	return p.recordID(p.track.at(slot))
}

func (p *partition) recordID(it *item) string {
	m := p.past(it)
	return m.ID()
}
