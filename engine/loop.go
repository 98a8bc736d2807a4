package engine

import (
	"context"
	"hash/maphash"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kconsume/kconsume/engine/topology"
	"github.com/kconsume/kconsume/metrics"
	"github.com/prometheus/client_golang/prometheus"
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
		pace: newPace(c.Concurrency), problems: problems{log: c.Logger, last: map[string]string{}},
	}
	for _, tl := range topo.Lines {
		ln := &line{
			Line:   tl,
			policy: policy{tiers: tl.Tiers(), maxAttempts: c.MaxAttempts, retryAfterMax: c.RetryAfterMax, unknownTransient: c.UnknownTransient},
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
	wake.add(l.stepEnding(now))
	wake.add(l.stepDrain(now))
	wake.add(l.planLayout(now))
	wake.add(l.planWatch(now))
	if !now.Before(l.nextGauges) {
		l.settleBusy()
		l.unclog(now)
		l.stepCare(now)
		l.setGauges()
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

// addPartition makes a partition that this member has come to own.
func (l *loop) addPartition(so stageOf, id int32, committed, position int64) {
	lid := laneID{so.line.Topic, int(id)}
	ln := l.lanes[lid]
	if ln == nil {
		ln = &lane{line: so.line, id: id, keys: newKeys(), running: running{}}
		l.lanes[lid] = ln
	}
	p := &partition{
		lane: ln, stage: so.stage, track: newTracker[item](position), position: position,
		committed: committed, high: -1, leader: -1, inflation: 1,
		handled: map[metrics.Outcome]prometheus.Counter{},
	}
	for _, o := range []metrics.Outcome{metrics.OutcomeAck, metrics.OutcomeDrop, metrics.OutcomeRetry, metrics.OutcomeDead, metrics.OutcomeSkipped} {
		p.handled[o] = l.met.Messages.WithLabelValues(so.line.Topic, so.stage.Name, string(o))
	}
	if so.stage.Delay > 0 {
		p.lateness = l.met.Lateness.WithLabelValues(so.line.Topic, so.stage.Name)
	}
	i := slices.Index(l.parts, nil)
	if i < 0 {
		i = len(l.parts)
		l.parts = append(l.parts, nil)
	}
	if l.journal.unclean {
		p.careful = l.cfg.Concurrency
		l.carefulLeft += p.careful
	}
	p.idx = uint32(i)
	l.parts[i] = p
	l.byTopic[topicPartition{so.stage.Topic, id}] = p
}

// dropPartition gives up a partition that is no longer ours: its calls are
// cancelled, their answers dropped, and nothing of it is committed.
func (l *loop) dropPartition(p *partition) {
	p.gone = true
	delete(l.byTopic, topicPartition{p.stage.Topic, p.lane.id})
	l.held -= p.held
	p.held = 0
	l.carefulLeft -= p.careful
	p.careful = 0
	p.outbox = nil
	l.dropUnwanted()
	p.lane.keys.forget()
	var cancel []uint64
	for s := p.track.head; s < p.track.tail; s++ {
		if !p.track.open(s) {
			continue
		}
		switch it := p.track.at(s); it.state {
		case itemFlying:
			cancel = append(cancel, p.handle(s))
			p.lane.running.add(p.placeOf(s))
		case itemReady:
			l.leaveKey(p.lane, it.key, it.keyed)
		}
	}
	if len(cancel) > 0 {
		l.deliver.Cancel(cancel)
	}
	l.met.Lag.DeleteLabelValues(p.stage.Topic, itoa(p.lane.id))
	l.free(p)
}

// free takes a lost partition's index back once no call can name it any more.
func (l *loop) free(p *partition) {
	if !p.gone || p.flying > 0 || p.late > 0 {
		return
	}
	l.parts[p.idx] = nil
	lid := laneID{p.lane.line.Topic, int(p.lane.id)}
	if p.lane.keys.idle() && len(p.lane.running) == 0 && l.lanes[lid] == p.lane && !l.ownsLane(p.lane) {
		delete(l.lanes, lid)
	}
}

func (l *loop) ownsLane(ln *lane) bool {
	for _, p := range l.parts {
		if p != nil && p.lane == ln {
			return true
		}
	}
	return false
}

// idleShare is what a partition in which nothing waits may hold: enough for a
// first fetch, which makes it busy.
const idleShare = 64 << 10

// shares divides the buffer: half for the main topics, half for all stages
// beside them, so that what waits never takes room from what runs. Within a
// half the busy partitions have equal shares.
func (l *loop) shares() {
	var mains, others int
	for p := range l.owned {
		switch {
		case !p.busy:
		case p.stage.Name == stageMain:
			mains++
		default:
			others++
		}
	}
	for p := range l.owned {
		n := others
		if p.stage.Name == stageMain {
			n = mains
		}
		p.share = idleShare
		if p.busy {
			p.share = max(idleShare, l.cfg.MaxBuffer/2/n)
		}
	}
}

// settleBusy lets partitions that have run dry give up their shares.
func (l *loop) settleBusy() {
	for p := range l.owned {
		p.busy = p.track.len() > 0 || p.high > p.position
	}
	l.shares()
}

// problems logs what goes wrong when it changes, not each time.
type problems struct {
	log  *slog.Logger
	last map[string]string
}

// set notes the state of one thing that can fail; "" = it works.
func (p *problems) set(what, text string) {
	before := p.last[what]
	switch {
	case text == before:
		return
	case text == "":
		delete(p.last, what)
		p.log.Info("recovered", "what", what)
		return
	}
	p.last[what] = text
	p.log.Warn(text, "what", what)
}

// forget drops the problem of a thing that is there no more.
func (p *problems) forget(what string) { delete(p.last, what) }

// any is one of the problems, "" if there is none.
func (p *problems) any() string {
	for _, what := range slices.Sorted(maps.Keys(p.last)) {
		return what + ": " + p.last[what]
	}
	return ""
}
