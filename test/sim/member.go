package sim

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kconsume/kconsume/engine"
)

// member is one life of an engine: from its start to its stop or crash.
type member struct {
	name  string
	wire  *wire
	still *still
	stop  context.CancelFunc
	done  chan struct{}
	err   error // of Run, once done

	// Guarded by the ledger's mutex.
	crashed  bool
	stopping bool
	cutOff   bool      // its drain was over before it had done what it had begun
	thawed   time.Time // it went on after it had stood still for long, and has not asked the group since; zero = it has
	syncs    []*synced
	open     map[uint64]*delivery // sent, and the call has not ended
	flying   map[uint64]*delivery // sent, and not answered
}

// current is the generation that it is in; nil = none yet.
func (m *member) current() *synced {
	if len(m.syncs) == 0 {
		return nil
	}
	return m.syncs[len(m.syncs)-1]
}

// stopSlack is how much longer than DrainTimeout a stop may take: calls that are
// cancelled have half a second, then writers, group and handler are closed.
const stopSlack = 6 * time.Second

// start begins a member's life.
func (w *world) start(slot, life int) *member {
	m := &member{
		name: fmt.Sprintf("m%d.%d", slot, life), still: newStill(), done: make(chan struct{}),
		open: map[uint64]*delivery{}, flying: map[uint64]*delivery{},
	}
	m.wire = &wire{w: w, name: m.name, links: map[*link]bool{}}
	m.still.begins = func(d time.Duration) {
		w.history.fault(m.name, "it stands still for "+d.String())
		w.hit(FreezeProc, 1)
	}
	m.still.ends = func(stood time.Duration) { w.ledger.wentOn(m, stood) }
	w.ledger.join(m)
	w.setCurrent(slot, m)
	d := newDeliverer(w.ledger, m)
	s := w.ledger.schedule
	e, err := engine.New(engine.Config{
		Brokers: w.addresses, Group: group, Topics: []string{mainTopic}, Deliverer: d,
		Retry: tiers[:], Emit: map[string]engine.EmitPolicy{outTopic: engine.EmitOutbox}, MaxAttempts: s.MaxAttempts, Order: s.Order, Concurrency: s.Concurrency,
		CommitInterval: commitInterval, HandlerTimeout: handlerTimeout, DrainTimeout: s.Drain,
		ClientID: m.name, SessionTimeout: sessionTimeout, RebalanceTimeout: 3 * time.Second,
		Logger: slog.New(slog.NewTextHandler(w.history.logOf(m.name), &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: noTime})), Dial: m.still.dial(m.wire.dial),
	})
	if err != nil {
		panic(err) // the configuration is ours
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	w.tasks.Go(func() {
		m.err = e.Run(ctx)
		close(m.done)
		d.close() // calls that are deaf to their context may still run
	})
	return m
}

func noTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// join makes a member known.
func (l *ledger) join(m *member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.members[m.name] = m
	l.history.add(event{what: "start", member: m.name})
}

// crash ends a member at once: it leaves no group, and nothing that it still does
// counts.
func (w *world) crash(slot int, m *member) {
	w.setCurrent(slot, nil)
	l := w.ledger
	l.mu.Lock()
	l.history.add(event{what: "CRASH", member: m.name})
	m.crashed = true
	l.stats.Crashes++
	l.mu.Unlock()
	m.wire.crash()
	m.still.die()
	m.stop()
}

// end stops a member and checks that it ends in time (I10). One that stands still
// hears of it when it goes on.
func (w *world) end(slot int, m *member) {
	w.setCurrent(slot, nil)
	m.still.await()
	l := w.ledger
	l.mu.Lock()
	l.history.add(event{what: "stop", member: m.name})
	m.stopping = true
	l.stats.Stops++
	l.mu.Unlock()
	m.stop()
	begin := time.Now()
	select {
	case <-m.done:
	case <-time.After(l.schedule.Drain + stopSlack):
		l.mu.Lock()
		l.violate("I10", "%s has not stopped after %v", m.name, time.Since(begin))
		l.mu.Unlock()
		m.wire.crash()
		<-m.done
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history.add(event{what: "stopped", member: m.name, note: time.Since(begin).String()})
	l.stats.SlowestStop = max(l.stats.SlowestStop, time.Since(begin))
	m.cutOff = l.schedule.Drain == shortDrain && time.Since(begin) >= shortDrain
	if m.err != nil {
		l.violate("I10", "%s ended with an error: %v", m.name, m.err)
	}
}

// play lives a slot's lives, one after the other, and returns the one that lives
// on; nil = none does.
func (w *world) play(slot int, turns []Turn) *member {
	for life, t := range turns {
		if !w.until(t.Start) {
			return nil
		}
		m := w.start(slot, life)
		if t.End == 0 {
			return m
		}
		select {
		case <-m.done:
			w.endedByItself(m)
			return nil
		case <-time.After(t.End - w.now()):
		case <-w.ledger.failing:
			w.crash(slot, m)
			return nil
		}
		if t.Crash {
			w.crash(slot, m)
		} else {
			w.end(slot, m)
		}
	}
	return nil
}

func (w *world) endedByItself(m *member) {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	w.ledger.violate("I10", "%s ended by itself: %v", m.name, m.err)
}
