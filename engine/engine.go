package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kconsume/kconsume/engine/secure"
	"github.com/kconsume/kconsume/engine/topics"
	"github.com/kconsume/kconsume/engine/topology"
	"github.com/kconsume/kconsume/metrics"
	"github.com/kconsume/kconsume/plugin"
)

// Engine consumes topics for a group: it delivers their records to a handler,
// relays failures through the retry tiers and to the dead letter queue, and
// commits what is settled. Make one with New and run it once.
type Engine struct {
	cfg  Config
	topo *topology.Topology
	met  *metrics.Engine

	mu      sync.Mutex
	loop    *loop // nil before the topics are there and after the end
	state   State // while there is no loop
	since   time.Time
	problem string
}

// New checks the configuration and makes an engine. It has no effect outside
// the process. Its errors are of class "config".
func New(c Config) (*Engine, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	topo, err := c.Topology()
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: c, topo: topo, met: metrics.NewEngine(c.Registerer), state: StateStarting, since: time.Now()}
	for _, l := range topo.Lines {
		e.met.DeadLetters.WithLabelValues(l.DLQ)
		e.atZero(l)
	}
	e.met.Commits.WithLabelValues(commitOK)
	for topic := range c.Emit {
		e.met.Emitted.WithLabelValues(topic)
		e.met.EmitLost.WithLabelValues(topic, lostOverflow)
		e.met.EmitLost.WithLabelValues(topic, lostExit)
	}
	return e, nil
}

// atZero has the counters of a line stand at 0 from the start, so that their
// first event is an increase. Those with a reason have too many.
func (e *Engine) atZero(l topology.Line) {
	for _, s := range l.Stages {
		e.met.OffsetsLost.WithLabelValues(s.Topic)
		if s.Name != stageMain {
			e.met.Foreign.WithLabelValues(s.Topic)
		}
	}
	for _, s := range l.Tiers() {
		e.met.Retries.WithLabelValues(l.Topic, s.Name)
	}
	for _, topic := range append(l.StageTopics(), l.DLQ) {
		if topic != l.Topic {
			e.met.WriterRetries.WithLabelValues(topic)
			e.met.WriterErrors.WithLabelValues(topic)
		}
	}
}

// Run consumes until ctx ends. It then drains: what was begun is finished
// within DrainTimeout and committed, and Run returns nil. While no broker can
// be reached it keeps trying. It returns early only with an *Error.
func (e *Engine) Run(ctx context.Context) error {
	defer e.setLoop(nil, StateStopped)
	if e.cfg.DrainTimeout < e.cfg.HandlerTimeout {
		e.cfg.Logger.Warn("the drain timeout is shorter than the handler timeout: a stop cuts deliveries off that are then repeated",
			"drain_timeout", e.cfg.DrainTimeout.String(), "handler_timeout", e.cfg.HandlerTimeout.String())
	}
	leftovers, err := e.prepare(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	k := newCluster(e.cfg, append(e.topo.Names(), e.cfg.emitTopics()...))
	defer k.close()
	d := e.cfg.Deliverer
	if d == nil {
		pool := plugin.NewPool(e.cfg.Handler, plugin.PoolConfig{Concurrency: e.cfg.Concurrency})
		defer pool.Close()
		d = pool
	}
	stop, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	l := newLoop(e.cfg, e.topo, k, d, e.met)
	l.fail = fail
	if l.journal, err = openJournal(e.cfg.StateFile); err != nil {
		return configError("%v: give this one a state folder (--state-dir) of its own", err)
	}
	defer func() {
		if err := l.journal.close(); err != nil {
			e.cfg.Logger.Warn("the journal was not closed: the next start takes care as after a crash", "error", err.Error())
		}
	}()
	if l.journal.unclean {
		e.cfg.Logger.Warn("the last run did not end cleanly: the first records go one at a time", "suspects", len(l.journal.crashes))
	}
	l.watch.subs = newSubscription(e.topo, leftovers)
	for i, stages := range leftovers {
		for _, st := range stages {
			l.addLeftover(e.topo.Lines[i].Topic, st)
		}
	}
	m, err := newMembership(e.cfg, e.topo, k, l)
	if err != nil {
		return err
	}
	e.setLoop(l, StateJoining)
	member, leave := context.WithCancel(context.Background())
	var joined sync.WaitGroup
	joined.Go(func() { m.run(member) })
	l.run(stop)
	leave()
	m.close()
	joined.Wait()
	l.finish()
	if ended, ok := errors.AsType[*Error](context.Cause(stop)); ok {
		return ended
	}
	return nil
}

// Bounds of the waits between attempts to reach a broker at the start.
const (
	reachWaitMin = 500 * time.Millisecond
	reachWaitMax = 5 * time.Second
)

// prepare waits for a broker and sees to the topics: those of ours that are
// missing are made, and what cannot work is refused. It returns the leftover
// tiers to drain, by line. It has connections of its own: what they remember of
// topics that were missing must not last.
func (e *Engine) prepare(ctx context.Context) (leftovers [][]topology.Stage, err error) {
	k := newCluster(e.cfg, e.topo.Names())
	defer k.close()
	said := newProblems(e.cfg.Logger)
	for wait := reachWaitMin; ; wait = min(reachWaitMax, 2*wait) {
		if err = e.allowedTopics(ctx, k); err == nil {
			leftovers, err = findLeftovers(ctx, k, e.cfg.Group, e.topo)
		}
		if err == nil {
			said.set("start", "")
			return leftovers, nil
		}
		if ctx.Err() != nil || ClassOf(err) == ErrConfig {
			return nil, err
		}
		if topics.ClassOf(err) == topics.Denied || secure.KindOf(err) == secure.Denied {
			return nil, &Error{ErrDenied, err}
		}
		if secure.KindOf(err) == secure.Setting {
			return nil, &Error{ErrConfig, err}
		}
		if e.cfg.ExitIfUnreachable {
			return nil, &Error{ErrUnreachable, err}
		}
		said.set("start", err.Error())
		e.setProblem(err.Error())
		sleep(ctx, wait)
	}
}

// allowedTopics sees to the topics and to the permissions, which are known of a
// topic only once it is there.
func (e *Engine) allowedTopics(ctx context.Context, k *cluster) error {
	needs := Needs(e.cfg, e.topo)
	if err := topics.Allowed(ctx, k.client, needs); err != nil {
		return err
	}
	if err := e.ensureTopics(ctx, k); err != nil {
		return err
	}
	return topics.Allowed(ctx, k.client, needs)
}

// ensureTopics makes what is missing, and looks again until nothing is: somebody
// else may have made a topic meanwhile, with other settings.
func (e *Engine) ensureTopics(ctx context.Context, k *cluster) error {
	policy := topology.Policy{Create: !e.cfg.KeepTopics, DLQRetention: e.cfg.DLQRetention, Bootstrap: strings.Join(e.cfg.Brokers, ",")}
	for {
		actual, err := topics.Read(ctx, k.client, e.topo)
		if err != nil {
			return err
		}
		plan := e.topo.Plan(actual, policy)
		if len(plan.Problems) > 0 {
			return &Error{ErrConfig, errors.Join(plan.Problems...)}
		}
		if len(plan.Changes) == 0 {
			for _, w := range plan.Warnings {
				e.cfg.Logger.Warn(w)
			}
			return nil
		}
		for _, c := range plan.Changes {
			e.cfg.Logger.Info("changing topics", "action", string(c.Action), "topic", c.Topic, "partitions", c.Partitions)
		}
		if err := topics.Apply(ctx, k.client, plan); err != nil {
			return err
		}
	}
}

func (e *Engine) setLoop(l *loop, s State) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.loop, e.state, e.since, e.problem = l, s, time.Now(), ""
}

func (e *Engine) setProblem(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.problem = text
}

// Status is a snapshot, taken by the engine's loop. It fails if the loop does
// not answer before ctx ends.
func (e *Engine) Status(ctx context.Context) (Status, error) {
	e.mu.Lock()
	l, s := e.loop, Status{State: e.state, Since: e.since, Problem: e.problem, Group: e.cfg.Group}
	e.mu.Unlock()
	if l == nil {
		return s, nil
	}
	q := &query{reply: make(chan Status, 1)}
	select {
	case l.events <- q:
	case <-l.over:
		return s, nil
	case <-ctx.Done():
		return s, fmt.Errorf("ask the engine's loop: %w", ctx.Err())
	}
	select {
	case s = <-q.reply:
		return s, nil
	case <-l.over:
		return s, nil
	case <-ctx.Done():
		return s, fmt.Errorf("ask the engine's loop: %w", ctx.Err())
	}
}

// Alive reports whether the engine's loop answers, whatever it is waiting for.
func (e *Engine) Alive(ctx context.Context) error {
	_, err := e.Status(ctx)
	return err
}

// Ready reports whether the engine is in its group and takes records.
func (e *Engine) Ready(ctx context.Context) error {
	s, err := e.Status(ctx)
	if err != nil {
		return err
	}
	if s.State != StateRunning {
		return fmt.Errorf("%s: %s", s.State, orText(s.Problem, "not in the group"))
	}
	return nil
}

func orText(s, or string) string {
	if s == "" {
		return or
	}
	return s
}
