package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kconsume/kconsume/engine/topics"
	"github.com/segmentio/kafka-go"
)

// parcel is a record on its way to a topic, until the broker has acknowledged
// it. It is a forward, whose source waits for it, or an emission.
type parcel interface {
	// source is the partition whose commit waits for it, nil if none does.
	source() *partition
	// wanted reports whether anybody still wants it written.
	wanted() bool
	target(l *loop) sinkID
	message(partition int32) kafka.Message
	tried() *passage
	// slim makes it smaller, if it can be, after a refusal of it alone.
	slim() bool
	// arrived is the broker's acknowledgement.
	arrived(l *loop, now time.Time)
	// oversize is the broker's refusal of it alone, as slim as it gets.
	oversize(l *loop, s *sink, now time.Time)
	// failed is any other failure; it reports whether to write it again.
	failed(l *loop, f writeFailure, now time.Time) bool
}

// passage is what a parcel has met with so far.
type passage struct {
	alone  bool  // goes in a request of its own
	parked bool  // waits beside its sink until its topic takes records of its size
	offset int64 // where it lies, once it has arrived
}

func (p *passage) tried() *passage { return p }

// sinkID names a sink. Partition −1 is for records whose topic's partitions are
// not known: their keys decide when they are written.
type sinkID struct {
	topicPartition
	parked bool // the side-track of records that are too large
}

// sink is one partition of a topic that is written to. One write at a time is
// in flight, in the order of the decisions; other sinks do not wait for it. The
// owner loop alone uses it.
type sink struct {
	sinkID
	policy    EmitPolicy // of an emitted topic; "" = forwards
	queue     []parcel
	batch     []parcel  // being written; nil = no write is in flight
	fails     int       // writes in a row
	notBefore time.Time // no write before: the last one failed
	failure   writeFailure
}

// loose reports that no source waits for what it carries.
func (s *sink) loose() bool { return s.policy == EmitBuffer || s.policy == EmitDrop }

// holdsUp reports that the end of a generation should wait for it. What is too
// large does not arrive within that time.
func (s *sink) holdsUp() bool {
	return !s.loose() && !s.parked && (s.batch != nil || len(s.queue) > 0)
}

// name is how its problems are called.
func (s *sink) name() string {
	what := "write to " + s.topic
	if s.partition >= 0 {
		what = fmt.Sprintf("%s/%d", what, s.partition)
	}
	if s.parked {
		what += " of records refused alone"
	}
	return what
}

// Bounds of one write, and of the waits between failed ones. The longest wait
// outlasts the transport's metadata, so that a leader that moved is found.
const (
	sinkRecords = 250 // the client sets this many aside for each write, however few there are
	sinkBytes   = 900 << 10
	sinkWaitMin = 250 * time.Millisecond
	sinkWaitMax = 5 * time.Second
)

// ship queues a parcel for its sink. One that a source waits for is kept until
// a generation is there to own it: a partition that is lost meanwhile is
// decided anew by its next owner.
func (l *loop) ship(x parcel) {
	if p := x.source(); p != nil && l.gen == nil {
		p.outbox = append(p.outbox, x)
		return
	}
	s := l.sinkOf(x.target(l))
	s.queue = append(s.queue, x)
}

// flushOutbox ships what was decided between two generations.
func (l *loop) flushOutbox(p *partition) {
	kept := p.outbox
	p.outbox = nil
	for _, x := range kept {
		l.ship(x)
	}
}

func (l *loop) sinkOf(id sinkID) *sink {
	s := l.sinks[id]
	if s == nil {
		s = &sink{sinkID: id, policy: l.cfg.Emit[id.topic]}
		l.sinks[id] = s
	}
	return s
}

// pumpSinks starts a write for each sink that has something and may, and
// returns when the next one may.
func (l *loop) pumpSinks(now time.Time) time.Time {
	var next time.Time
	for id, s := range l.sinks {
		switch {
		case s.batch != nil:
		case len(s.queue) == 0:
			if s.fails == 0 || !s.loose() { // else how it failed is still to be remembered
				delete(l.sinks, id)
				if s.fails > 0 {
					l.problems.forget(s.name()) // what failed went with its partition
				}
			}
		case l.gen == nil && !s.loose():
		case now.Before(s.notBefore):
			if next.IsZero() || s.notBefore.Before(next) {
				next = s.notBefore
			}
		case l.watch.compacted[s.topic]: // it would lose records: the watch has said so
		default:
			l.write(s)
		}
	}
	return next
}

// dropUnwanted takes out of every queue what nobody waits for any more.
func (l *loop) dropUnwanted() {
	for _, s := range l.sinks {
		s.queue = slices.DeleteFunc(s.queue, func(x parcel) bool { return !x.wanted() })
	}
}

// write sends the head of a sink's queue.
func (l *loop) write(s *sink) {
	msgs, alone := s.take()
	w := l.writers.of(s.topic, alone)
	receipts := make([]*receipt, len(msgs))
	there := s.partition >= 0 && int(s.partition) < len(l.layout[s.topic])
	for i := range msgs {
		receipts[i] = msgs[i].WriterData.(*receipt)
		receipts[i].there = there
	}
	l.task(func(ctx context.Context) event {
		errs := positions(w.WriteMessages(ctx, msgs...), len(msgs))
		return &written{s, errs, receipts}
	})
}

// take moves the head of the queue into the batch: as many records as fit the
// bounds, or one by itself that is larger, or was refused among others.
func (s *sink) take() (msgs []kafka.Message, alone bool) {
	bytes := 0
	for _, x := range s.queue {
		m := x.message(s.partition)
		n := wireSize(&m)
		at := x.tried()
		at.alone = at.alone || n > sinkBytes
		if len(msgs) > 0 && (at.alone || bytes+n > sinkBytes || len(msgs) == sinkRecords) {
			break
		}
		m.WriterData = &receipt{at: len(msgs)}
		msgs = append(msgs, m)
		bytes += n
		if at.alone {
			alone = true
			break
		}
	}
	s.batch = slices.Clone(s.queue[:len(msgs)])
	clear(s.queue[:len(msgs)])
	s.queue = s.queue[len(msgs):]
	return msgs, alone
}

// wireSize is how many bytes a record takes uncompressed, rounded up. It is at
// least what the client counts.
func wireSize(m *kafka.Message) int {
	const fixed, perHeader = 64, 10
	n := fixed + len(m.Key) + len(m.Value)
	for i := range m.Headers {
		n += perHeader + len(m.Headers[i].Key) + len(m.Headers[i].Value)
	}
	return n
}

// receipt is what the client brings back of one record.
type receipt struct {
	at     int   // its position among those of its write
	there  bool  // its partition exists, whatever the client knows by now
	offset int64 // set where the broker has acknowledged it
}

// sign notes where records lie. The client calls it before it tells the result
// of the write, and with copies of the records.
func sign(msgs []kafka.Message, err error) {
	if err != nil {
		return
	}
	for i := range msgs {
		if r, ok := msgs[i].WriterData.(*receipt); ok {
			r.offset = msgs[i].Offset
		}
	}
}

// written is a write's result: errs is nil, or one error per record of the batch.
type written struct {
	s        *sink
	errs     []error
	receipts []*receipt // to be read only where there is no error
}

func (w *written) apply(l *loop) {
	now, s := time.Now(), w.s
	batch := s.batch
	s.batch = nil
	var again []parcel
	var failed error
	for i, x := range batch {
		var err error
		if w.errs != nil {
			err = w.errs[i]
		}
		switch {
		case err == nil:
			x.tried().offset = w.receipts[i].offset
			x.arrived(l, now)
		case !x.wanted():
		case errors.Is(err, errNotSent):
			again = append(again, x)
		default:
			goesOn, stays := l.refused(s, x, failureOf(err), now)
			if stays {
				again = append(again, x)
			}
			if !goesOn {
				failed = err
			}
		}
	}
	s.queue = append(again, s.queue...) // in front: the order of the decisions stays
	l.setFailed(s, failed, now)
}

// refused decides over one record that was not written. A refusal for its size
// is followed up at once: in a batch nobody knows which record is too large, so
// each is sent alone; one refused alone goes without diagnostics; and one that
// is refused even so is oversize. One that is invalid, as a record without a key
// is to a compacted topic, makes the broker refuse its whole batch as well: it
// is found in the same way and waits beside its sink. Everything else is for a
// later time.
func (l *loop) refused(s *sink, x parcel, f writeFailure, now time.Time) (goesOn, stays bool) {
	l.met.ForwardFails.WithLabelValues(s.topic, string(f.kind), f.reason).Inc()
	at := x.tried()
	switch {
	case f.reason == "invalid_record" && x.source() != nil:
		l.watch.hurry() // the topic's settings may be why
		if !at.alone {
			at.alone = true
			return true, true
		}
		l.setAside(x, s, now)
		return !s.parked, false
	case !f.tooLarge():
		return false, x.failed(l, f, now)
	case !at.alone:
		at.alone = true
		return true, true
	case x.slim():
		return true, true
	}
	x.oversize(l, s, now)
	return !s.parked, false
}

// setFailed notes how the latest write of a sink went.
func (l *loop) setFailed(s *sink, err error, now time.Time) {
	if err == nil {
		if (s.fails > 0 || s.parked) && (!s.parked || len(s.queue) == 0) {
			l.problems.set(s.name(), "")
		}
		s.fails, s.failure = 0, writeFailure{}
		return
	}
	s.failure = failureOf(err)
	s.hold(now)
	if !s.parked { // park has said what is to be done
		l.problems.set(s.name(), l.writeProblem(s, err))
	}
}

func (l *loop) writeProblem(s *sink, err error) string {
	return s.failure.problem(s.topic, plainly(err)) + topics.OnTopic(s.topic, topics.WriteTo).Advice(l.cluster.client, err)
}

// hold keeps a sink from writing for a while, longer each time.
func (s *sink) hold(now time.Time) {
	s.fails++
	s.notBefore = now.Add(min(sinkWaitMax, sinkWaitMin<<min(s.fails-1, 10)))
}

// park puts a record that is too large beside its sink, so that the rest goes
// on. Its partition waits: no more of it is handled until the topic takes the
// record, which is tried now and then, in turn with others that are parked.
func (l *loop) park(x parcel, s *sink, now time.Time) {
	beside := l.putBeside(x, s, now)
	m := x.message(s.partition)
	p := x.source()
	p.stuck = fmt.Sprintf("a record of %d bytes is too large for %s: raise max.message.bytes of %s; it goes on by itself then", wireSize(&m), s.topic, s.topic)
	beside.failure = failureOf(kafka.MessageSizeTooLarge)
	l.problems.set(beside.name(), fmt.Sprintf("%s/%d waits: %s", p.stage.Topic, p.lane.id, p.stuck))
	if at := x.tried(); !at.parked {
		at.parked = true
		p.parked++
	}
}

// putBeside queues a record that was refused alone beside its sink.
func (l *loop) putBeside(x parcel, s *sink, now time.Time) *sink {
	beside := l.sinkOf(sinkID{s.topicPartition, true})
	beside.queue = append(beside.queue, x)
	if !s.parked && beside.batch == nil && beside.fails == 0 {
		beside.hold(now)
	}
	return beside
}

// setAside puts an invalid record beside its sink, so that the rest goes on. Its
// partition goes on too: only the commit waits for it.
func (l *loop) setAside(x parcel, s *sink, now time.Time) {
	beside := l.putBeside(x, s, now)
	beside.failure = failureOf(kafka.InvalidRecord)
	l.problems.set(beside.name(), beside.failure.problem(s.topic, kafka.InvalidRecord))
}

// unpark notes that a parked parcel is on its way no more.
func (l *loop) unpark(x parcel) {
	at, p := x.tried(), x.source()
	if !at.parked {
		return
	}
	at.parked = false
	if p.parked--; p.parked == 0 {
		p.stuck = ""
		l.resume(p)
	}
}
