package sim

import (
	"iter"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/plugin"
)

// delivery is one record on its way to a member's handler.
type delivery struct {
	rec      *record
	member   *member
	tenure   *tenure
	handle   uint64
	stage    topicPartition
	attempt  int
	step     *Step
	begun    time.Time // zero = the handler was not called
	verdict  verdict
	answered int // forwards of it of which this member knows that they succeeded
}

// verdict is what is to become of a delivery.
type verdict struct {
	kind  verdictKind
	at    time.Time
	class string        // X-Error-Class
	wish  time.Duration // > 0 = of the handler
}

type verdictKind uint8

const (
	verdictNone      verdictKind = iota // none yet, or cancelled
	verdictHandled                      // acknowledged or dropped
	verdictTransient                    // to a tier, or to the DLQ after the last attempt
	verdictPermanent                    // to the DLQ
)

// sent takes what an engine hands to its deliverer, and checks each delivery.
func (l *ledger) sent(m *member, ds []plugin.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.crashed {
		return
	}
	for i := range ds {
		l.sentOne(m, &ds[i])
	}
}

func (l *ledger) sentOne(m *member, pd *plugin.Delivery) {
	msg := &pd.Message
	topic, known := topicOfStage(msg.Stage)
	rec := l.input(msg.Partition, msg.Offset, unixMS(msg.Time))
	if !known || rec == nil || rec.aborted || msg.Topic != mainTopic {
		l.violate("I2", "%s: a delivery of %s/%d offset %d from stage %q, which was not produced", m.name, msg.Topic, msg.Partition, msg.Offset, msg.Stage)
		return
	}
	d := &delivery{rec: rec, member: m, handle: pd.Handle, stage: topicPartition{topic, msg.Partition}, attempt: msg.Attempt}
	l.history.add(event{what: "sent", member: m.name, rec: rec, note: msg.Stage, n: msg.Attempt})
	d.step = rec.in.step(max(1, msg.Attempt))
	l.checkContent(m, rec, msg)
	l.checkOrder(d)
	l.checkAsked(m, rec, "sent")
	if d.tenure = l.tenureOf(m, d.stage); d.tenure != nil {
		l.checkCopies(d)
	} else {
		l.violate("I7", "%s: %s was sent from %v, which is not the member's", m.name, rec.id(), d.stage)
	}
	if msg.MaxAttempts != l.schedule.MaxAttempts || msg.Attempt < 1 || msg.Attempt > msg.MaxAttempts {
		l.violate("I5", "%s: %s was sent as attempt %d of %d", m.name, rec.id(), msg.Attempt, msg.MaxAttempts)
	}
	rec.sent = append(rec.sent, d)
	m.open[pd.Handle], m.flying[pd.Handle] = d, d
	l.stats.Sent++
}

// checkContent is I9 of a delivery.
func (l *ledger) checkContent(m *member, rec *record, msg *plugin.Message) {
	own := make([]header, len(msg.Headers))
	for i, h := range msg.Headers {
		own[i] = header{h.Key, h.Value}
	}
	if !sameBytes(msg.Key, rec.in.Key) || !sameBytes(msg.Value, rec.in.Value) || !sameHeaders(own, headersOf(rec.in.Headers)) ||
		msg.ID != "" && msg.ID != rec.id() {
		l.violate("I9", "%s: %s was sent as %q with key %q, value %q, headers %q, time %d", m.name, rec.id(), msg.ID, msg.Key, msg.Value, msg.Headers, unixMS(msg.Time))
	}
}

// checkCopies is I2, I5, I6 and I7 of a delivery: its stage holds as many copies of
// the record with this attempt, at or above the tenure's base and due by now, as
// the tenure has sent, this one included.
func (l *ledger) checkCopies(d *delivery) {
	all, above, due := d.copies(0), d.copies(d.tenure.base), 0
	for c := range d.positions(d.tenure.base) {
		if c.due <= unixMS(time.Now()) {
			due++
		}
	}
	already, before, cutOff := 0, 0, false
	for _, o := range d.rec.sent {
		if o.stage == d.stage && o.attempt == d.attempt {
			if o.tenure == d.tenure {
				already++
			}
			if !o.begun.IsZero() {
				before++
			}
			cutOff = cutOff || o.member.cutOff
		}
	}
	switch {
	case all == 0:
		l.violate("I5", "%s: %s was sent from %v as attempt %d, and there is none with %d failed ones", d.member.name, d.rec.id(), d.stage, d.attempt, d.attempt-1)
	case above == 0:
		l.violate("I7", "%s: %s was sent from %v below what was committed (%d) when the member came to own it", d.member.name, d.rec.id(), d.stage, d.tenure.base)
	case above <= already && d.stage.topic != l.unsure:
		l.violate("I7", "%s: %s was sent from %v as attempt %d for the %d. time in one tenure (%v), and there are %d copies", d.member.name, d.rec.id(), d.stage, d.attempt, already+1, d.tenure.id, above)
	case due <= already:
		l.violate("I6", "%s: %s was sent from %v as attempt %d before it was due", d.member.name, d.rec.id(), d.stage, d.attempt)
	}
	if before >= all {
		l.stats.Duplicates++
		if l.quiet && !cutOff {
			l.violate("I7", "%s: %s was sent from %v as attempt %d once more, in the quiet time", d.member.name, d.rec.id(), d.stage, d.attempt)
		}
	}
}

// positions are the copies of a delivery's record with its attempt that its stage
// holds, from an offset on.
func (d *delivery) positions(from int64) iter.Seq[*position] {
	return func(yield func(*position) bool) {
		if d.stage.topic == mainTopic && d.attempt == 1 && d.rec.offset >= from && !yield(&position{rec: d.rec}) {
			return
		}
		for _, c := range d.rec.copies {
			if !c.void && c.tp == d.stage && c.failed == d.attempt-1 && c.offset >= from && !yield(c) {
				return
			}
		}
	}
}

func (d *delivery) copies(from int64) (n int) {
	for range d.positions(from) {
		n++
	}
	return n
}

// checkOrder is I8 of a delivery: neither its key nor, if it has none, the record
// itself is being handled by this member.
func (l *ledger) checkOrder(d *delivery) {
	ordered, twice := l.ordered(d.rec), 0
	for _, o := range d.member.open {
		switch {
		case ordered && o.stage.partition == d.stage.partition && l.sameOrder(o, d):
			l.violate("I8", "%s: %s (attempt %d, %v) was sent while %s (attempt %d, %v) had not ended", d.member.name, d.rec.id(), d.attempt, d.stage, o.rec.id(), o.attempt, o.stage)
		case o.rec == d.rec && o.stage == d.stage && o.attempt == d.attempt:
			twice++
		}
	}
	if twice > 0 && twice >= d.copies(0) {
		l.violate("I8", "%s: %s (attempt %d, %v) was sent while it was being handled", d.member.name, d.rec.id(), d.attempt, d.stage)
	}
	if !ordered {
		return
	}
	if d.stage.topic != mainTopic || len(d.rec.sent) > 0 || l.unsure == mainTopic || l.former[d.rec.id()] != nil {
		return
	}
	list := l.inputs[d.stage]
	for o := d.rec.offset - 1; o >= 0; o-- {
		r := list[o]
		if r == nil || r.aborted || (r.compacted || r.gone) && len(r.sent) == 0 || l.schedule.Order == engine.OrderKey && !sameBytes(r.in.Key, d.rec.in.Key) {
			continue
		}
		if len(r.sent) == 0 {
			l.violate("I8", "%s: %s was sent before %s, which is of the same key and older", d.member.name, d.rec.id(), r.id())
		}
		return // what is older still was checked when that one was sent
	}
}

// ordered reports whether a record has an order at all.
func (l *ledger) ordered(r *record) bool {
	switch l.schedule.Order {
	case engine.OrderPartition:
		return true
	case engine.OrderKey:
		return r.in.Key != nil
	}
	return false
}

// sameOrder reports whether two deliveries of a partition number may not overlap.
func (l *ledger) sameOrder(a, b *delivery) bool {
	if l.schedule.Order == engine.OrderPartition {
		return a.stage == b.stage
	}
	return a.rec.in.Key != nil && sameBytes(a.rec.in.Key, b.rec.in.Key)
}

// began notes that a handler is called; nil = the call is of no account.
func (l *ledger) began(m *member, msg *plugin.Message) *delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec := l.input(msg.Partition, msg.Offset, unixMS(msg.Time))
	if m.crashed || rec == nil {
		return nil
	}
	topic, _ := topicOfStage(msg.Stage)
	for _, d := range rec.sent {
		if d.member == m && d.begun.IsZero() && d.stage.topic == topic && d.attempt == msg.Attempt && m.open[d.handle] == d {
			if msg.ID != rec.id() {
				l.violate("I9", "%s: %s is shown to the handler as %q", m.name, rec.id(), msg.ID)
			}
			d.begun = time.Now()
			return d
		}
	}
	l.violate("I2", "%s: the handler was called with %s, which was not sent to it", m.name, msg.ID)
	return nil
}

// judged notes a delivery's verdict. It comes before the engine can know it.
func (l *ledger) judged(d *delivery, v verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d.member.crashed || d.verdict.kind != verdictNone {
		return
	}
	v.at = time.Now()
	d.verdict = v
	l.history.add(event{what: "verdict", member: d.member.name, rec: d.rec, note: d.step.Act.String() + " " + v.class, n: d.attempt})
	if v.kind == verdictHandled {
		d.rec.handled = max(d.rec.handled, d.attempt)
		l.lastChange = v.at
		l.stats.Handled++
	}
}

// ended notes that a handler's call is over, or that there will be none.
func (l *ledger) ended(d *delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(d.member.open, d.handle)
}

// topicOfStage is the topic of a stage's name.
func topicOfStage(name string) (string, bool) {
	if name == "main" {
		return mainTopic, true
	}
	for _, d := range tiers {
		if t := tierTopic(d); t == mainTopic+"."+name {
			return t, true
		}
	}
	return "", false
}
