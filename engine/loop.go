package engine

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/kconsume/kconsume/engine/topology"
	"github.com/kconsume/kconsume/metrics"
)

// loop owns every partition of this member, from fetch to commit. It is one
// goroutine; fetches, writes, commits and metadata requests run beside it, one
// goroutine each, and come back to it as events. Nothing else touches its state.
//
// It turns round once per batch of events: take what has come (a fetch, answers
// of the handler, acknowledged forwards), then step: release what is due, send
// what is ready, forward what was decided, fetch where there is room, commit
// what is settled, and sleep until the earliest of the next due time, commit or
// pause.
type loop struct {
	cfg     Config
	topo    *topology.Topology
	cluster *cluster
	deliver Deliverer
	met     *metrics.Engine
	log     *slog.Logger
	seed    maphash.Seed

	events chan event
	work   context.Context // ends when the loop does: cuts off its requests
	cancel context.CancelFunc
	over   chan struct{}           // closed when the loop has ended
	fail   context.CancelCauseFunc // stops the engine with an error
	tasks  sync.WaitGroup          // the goroutines beside the loop

	state       State
	since       time.Time
	gen         *generation // nil between two generations
	lastGen     *generation // the latest, also when it has ended
	ending      *ending     // gen has ended and is being closed
	frozen      frozen
	journal     *journal
	tracing     *tracing // nil = no spans
	born        time.Time
	lone        bool      // what flies goes alone: it is suspected of having ended the last process
	carefulLeft int       // of all partitions
	drain       *draining // the engine is stopping
	stopped     bool

	lines   map[string]*line   // by main topic
	stages  map[string]stageOf // by the stage's own topic
	lanes   map[laneID]*lane   // also lanes lost, while a call occupies a key of theirs
	parts   []*partition       // by index; nil = free
	byTopic map[topicPartition]*partition
	late    map[uint64]lateCall // answered at the deadline, still running

	turns    []*partition // partitions with ready records, in turn
	inFlight int
	flyBytes int
	held     int
	pace     pace

	leaders  map[int32]*leader
	layout   layout
	reshaped bool                // a topic was made anew with other partitions: the group has to assign anew
	ids      map[string]identity // of topics, as last seen
	watch    watch
	layoutAt time.Time // of the last request
	asking   bool
	nextAsk  time.Time
	rotation int

	sinks   map[sinkID]*sink
	writers *writers
	loose   int                  // bytes emitted that no source waits for
	lostAt  map[string]time.Time // by emitted topic, while records are being lost

	committing bool
	nextCommit time.Time
	nextGauges time.Time
	problems   problems
	handlers   []string  // versions that are counted apart, the one met first in front
	lastDue    time.Time // earliest due time of all gates, as of the last step
}

// event is something that happened beside the loop.
type event interface{ apply(l *loop) }

type topicPartition struct {
	topic     string
	partition int32
}

type stageOf struct {
	line  *line
	stage topology.Stage
}

// lateCall is a call that outlived its deadline: its key stays occupied.
type lateCall struct {
	p     *partition
	key   uint64
	keyed bool
	place place
}

func newLoop(c Config, topo *topology.Topology, k *cluster, d Deliverer, m *metrics.Engine) *loop {
	work, cancel := context.WithCancel(context.Background())
	l := &loop{
		work: work, cancel: cancel, over: make(chan struct{}),
		cfg: c, topo: topo, cluster: k, deliver: d, met: m, log: c.Logger, seed: maphash.MakeSeed(),
		events: make(chan event, 64), state: StateJoining, since: time.Now(), born: time.Now(), journal: &journal{},
		lines: map[string]*line{}, stages: map[string]stageOf{}, lanes: map[laneID]*lane{},
		byTopic: map[topicPartition]*partition{}, ids: map[string]identity{}, watch: newWatch(), late: map[uint64]lateCall{},
		leaders: map[int32]*leader{}, sinks: map[sinkID]*sink{}, lostAt: map[string]time.Time{}, writers: newWriters(c, k),
		pace: newPace(c.Concurrency), tracing: newTracing(c), problems: newProblems(c.Logger),
	}
	for _, tl := range topo.Lines {
		ln := &line{
			Line:   tl,
			policy: c.policy(&tl),
			dead:   m.DeadLetters.WithLabelValues(tl.DLQ),
			fails:  m.ForwardFails,
		}
		for _, s := range tl.Tiers() {
			ln.retry = append(ln.retry, m.Retries.WithLabelValues(tl.Topic, s.Name))
		}
		l.lines[tl.Topic] = ln
		for _, s := range tl.Stages {
			l.stages[s.Topic] = stageOf{ln, s}
		}
	}
	return l
}

// run is the loop. stop ends it: what was begun is finished within the drain
// timeout, committed, and run returns. What runs beside it is left to finish.
func (l *loop) run(stop context.Context) {
	defer func() {
		l.cancel()
		close(l.over)
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	stopping := stop.Done()
	for !l.stopped {
		select {
		case e := <-l.events:
			e.apply(l)
		case a := <-l.deliver.Answers():
			l.answered(a)
		case <-timer.C:
		case <-stopping:
			stopping = nil
			l.beginDrain()
		}
		l.takePending()
		timer.Reset(l.step(time.Now()))
	}
}

// finish waits for what runs beside the loop, once the connections are cut, and
// closes the writers last.
func (l *loop) finish() {
	l.tasks.Wait()
	l.tracing.cutAll(l.parts)
	l.loseRest()
	l.writers.close()
	l.writers.count(l.met)
}

// takePending takes what else has come by now, so that one step serves it all.
func (l *loop) takePending() {
	for range cap(l.events) {
		select {
		case e := <-l.events:
			e.apply(l)
		case a := <-l.deliver.Answers():
			l.answered(a)
		default:
			return
		}
	}
}

// step does everything that can be done now and returns how long there is
// nothing to do unless something happens.
func (l *loop) step(now time.Time) time.Duration {
	wake := earliest{now: now, at: now.Add(turnEvery)}
	wake.add(l.stepFrozen(now))
	if !l.frozen.suspect {
		l.release(now)
		l.dispatch(now)
		wake.add(l.lastDue)
		if l.drain == nil || !l.drain.cut { // else forwards are given up
			wake.add(l.pumpSinks(now))
		}
	}
	wake.add(l.planFetches(now))
	wake.add(l.planCommit(now))
	l.planReshape()
	wake.add(l.stepEnding(now))
	wake.add(l.stepDrain(now))
	wake.add(l.planLayout(now))
	wake.add(l.planWatch(now))
	if !now.Before(l.nextGauges) {
		l.settleBusy()
		l.unclog(now)
		l.stepCare(now)
		l.setGauges()
		l.problems.tick(now)
		l.nextGauges = now.Add(time.Second)
	}
	return wake.in()
}

// earliest is the next time at which there is something to do.
type earliest struct{ now, at time.Time }

func (e *earliest) add(t time.Time) {
	if !t.IsZero() && t.Before(e.at) {
		e.at = t
	}
}

func (e *earliest) in() time.Duration { return max(0, e.at.Sub(e.now)) }

// task runs an effect beside the loop. What it returns comes back as an event.
func (l *loop) task(f func(ctx context.Context) event) {
	l.tasks.Go(func() { l.post(f(l.work)) })
}

// post hands an event to the loop, unless it has ended.
func (l *loop) post(e event) {
	select {
	case l.events <- e:
	case <-l.work.Done():
	}
}

// fetches reports whether new records may be read and sent.
func (l *loop) running() bool { return l.gen != nil && l.ending == nil && l.drain == nil }

func (l *loop) setState(s State) {
	if l.state != s {
		l.state, l.since = s, time.Now()
	}
}

// owned are the partitions that are this member's now.
func (l *loop) owned(yield func(*partition) bool) {
	for _, p := range l.parts {
		if p != nil && !p.gone && !yield(p) {
			return
		}
	}
}
