package sim

import (
	"context"
	"errors"
	"time"

	"github.com/kconsume/kconsume/plugin"
)

var (
	errGateway = errors.New("gateway is down")
	errRefuses = errors.New("no such customer")
	errOdd     = errors.New("something odd")
)

// handler does with each delivery what its record's script says, and tells the
// ledger of the verdict before anybody else can know it.
type handler struct {
	l *ledger
	m *member
}

// Handle plays one step of a script.
func (h *handler) Handle(ctx context.Context, msg *plugin.Message) error {
	h.m.still.passCall()
	d := h.l.began(h.m, msg)
	if d == nil {
		return nil
	}
	defer h.l.ended(d)
	s := d.step
	if ctx.Err() == nil { // else it stood still before it began
		h.wait(ctx, s)
	}
	if s.Act == actDeaf {
		_ = h.cutOff(ctx, d)
		time.Sleep(s.Takes)
		h.m.still.passCall()
		return nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) { // it stood still meanwhile, or took its time
		return h.cutOff(ctx, d)
	}
	switch s.Act {
	case actSlow:
		if ctx.Err() != nil {
			return h.cutOff(ctx, d)
		}
		emit(d, msg)
		return h.done(d, nil)
	case actTimeout: // cancelled before its time was over
		return h.cutOff(ctx, d)
	case actAck:
		emit(d, msg)
		return h.done(d, nil)
	case actDrop:
		return h.done(d, plugin.Drop("not for us"))
	case actGarbled: // the deliverer spoils the answer
		h.l.judged(d, verdict{kind: verdictTransient, class: "transient"})
		return nil
	case actTransient:
		return h.failed(ctx, d, verdict{kind: verdictTransient, class: "transient"}, plugin.Transient(errGateway))
	case actRetryAfter:
		return h.failed(ctx, d, verdict{kind: verdictTransient, class: "transient", wish: s.Wish}, plugin.RetryAfter(errGateway, s.Wish))
	case actPermanent:
		return h.failed(ctx, d, verdict{kind: verdictPermanent, class: "permanent"}, plugin.Permanent(errRefuses))
	case actUnknown:
		return h.failed(ctx, d, verdict{kind: verdictPermanent, class: "permanent"}, errOdd)
	case actPanic:
		_ = h.failed(ctx, d, verdict{kind: verdictPermanent, class: "panic"}, nil)
		panic("boom")
	}
	panic("a step without an act")
}

// wait is what a call does before it answers.
func (h *handler) wait(ctx context.Context, s *Step) {
	takes := s.Takes
	switch s.Act {
	case actTimeout:
		takes = time.Hour
	case actDeaf:
		takes = handlerTimeout
	}
	over := time.After(takes)
	select {
	case <-over:
	case <-ctx.Done():
		// Only some take notice of being cancelled. Few live to see their time over.
		if errors.Is(ctx.Err(), context.Canceled) && s.Act != actSlow && s.Act != actTimeout {
			<-over
		}
	}
	h.m.still.passCall()
}

func (h *handler) done(d *delivery, err error) error {
	h.l.judged(d, verdict{kind: verdictHandled})
	return err
}

// failed gives a verdict, unless the host has cancelled the call: then there is
// none, whatever is returned.
func (h *handler) failed(ctx context.Context, d *delivery, v verdict, err error) error {
	if !errors.Is(ctx.Err(), context.Canceled) {
		h.l.judged(d, v)
	}
	return err
}

// cutOff is the verdict on a call whose context has ended: a timeout, or none.
func (h *handler) cutOff(ctx context.Context, d *delivery) error {
	return h.failed(ctx, d, verdict{kind: verdictTransient, class: "timeout"}, ctx.Err())
}

// deliverer stands between an engine and its handler: it tells the ledger what
// is sent, and spoils answers as scripts want it.
type deliverer struct {
	l       *ledger
	m       *member
	pool    *plugin.Pool
	answers chan plugin.Answers
	stop    chan struct{}
	over    chan struct{}
}

func newDeliverer(l *ledger, m *member) *deliverer {
	d := &deliverer{
		l: l, m: m, answers: make(chan plugin.Answers), stop: make(chan struct{}), over: make(chan struct{}),
		pool: plugin.NewPool(&handler{l, m}, plugin.PoolConfig{Handler: "sim@1", Concurrency: l.schedule.Concurrency}),
	}
	go d.relay()
	return d
}

// Deliver is the engine's.
func (d *deliverer) Deliver(ds []plugin.Delivery) {
	d.l.sent(d.m, ds)
	d.pool.Deliver(ds)
}

// Cancel is the engine's.
func (d *deliverer) Cancel(handles []uint64) { d.pool.Cancel(handles) }

// Answers is the engine's: its owner loop asks each time before it sleeps.
func (d *deliverer) Answers() <-chan plugin.Answers {
	d.m.still.turn()
	return d.answers
}

func (d *deliverer) relay() {
	defer close(d.over)
	for a := range d.pool.Answers() {
		d.m.still.pass()
		d.l.answered(d.m, &a)
		select {
		case d.answers <- a:
		case <-d.stop:
		}
	}
}

// close waits until no call runs.
func (d *deliverer) close() {
	close(d.stop)
	d.pool.Close()
	<-d.over
}

// answered takes what is about to be answered: scripts may take a verdict out of
// it, and calls that never began are over.
func (l *ledger) answered(m *member, a *plugin.Answers) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := a.Acked[:0]
	for _, h := range a.Acked {
		d := m.flying[h]
		delete(m.flying, h)
		if d != nil && d.step.Act == actGarbled {
			a.Verdicts = append(a.Verdicts, plugin.Answer{Handle: h})
			continue
		}
		kept = append(kept, h)
	}
	a.Acked = kept
	for _, v := range a.Verdicts {
		if d := m.flying[v.Handle]; d != nil && d.begun.IsZero() {
			delete(m.open, v.Handle)
		}
		delete(m.flying, v.Handle)
	}
}
