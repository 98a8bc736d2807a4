package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"
)

// event is a moment at which a member, or its handler, was lost or stood still.
// What it had in hand and not committed may be delivered again.
type event struct {
	kind      kind
	at        int64  // unix ns
	until     int64  // of a freeze: when it went on; else 0
	life      string // of the member
	pid       int    // of the handler process, where it alone was struck
	committed map[place]int64
}

// snapshot is what the group had committed at the latest by then.
type snapshot struct {
	at        int64
	committed map[place]int64
}

// run is a chaos run at work. Faults come one after another, from one goroutine.
type run struct {
	*rig
	ledger   *ledger
	producer *producer
	rng      *rand.Rand
	topics   []string // the stages'
	tiers    []string

	counts     map[kind]int
	recoveries []recovery
	events     []event
	snapshots  *snapshots
	troubles   []string // what a member did that it must not, by itself
	nextBroker int
}

// strike carries out one fault and returns once everything goes on.
func (r *run) strike(ctx context.Context, k kind) error {
	faults := map[kind]func(context.Context) error{
		killMember: r.killMember, freezeMember: r.freezeMember, killHandler: r.killHandler,
		stopBroker:  func(ctx context.Context) error { return r.endBroker(ctx, stopBroker, r.kafka.Stop) },
		killBroker:  func(ctx context.Context) error { return r.endBroker(ctx, killBroker, r.kafka.Kill) },
		moveLeaders: r.moveLeaders, rolling: r.rolling, forbidTier: r.forbidTier,
	}
	if err := faults[k](ctx); err != nil {
		return fmt.Errorf("%s: %w", k, err)
	}
	r.counts[k]++
	return r.alive()
}

// alive fails if a member ended by itself.
func (r *run) alive() error {
	for _, m := range r.members {
		if m.proc.ended() {
			return fmt.Errorf("%s ended by itself: %v\n%s", m.life, m.proc.err, m.words())
		}
	}
	return nil
}

// recovered waits for progress since a watch began and notes how long it took.
func (r *run) recovered(ctx context.Context, w *watch, what kind) error {
	rec, err := r.ledger.progress(ctx, w, string(what))
	if err != nil {
		return err
	}
	r.recoveries = append(r.recoveries, rec)
	return nil
}

// working waits until the present life of each member has handled something.
func (r *run) working(ctx context.Context) error {
	return until(ctx, progressPatience, "deliveries by every member", func(context.Context) (bool, error) {
		return !slices.ContainsFunc(r.members, func(m *member) bool { return r.ledger.of(m.life) == 0 }), r.alive()
	})
}

// victim is any member, once all work.
func (r *run) victim(ctx context.Context) (*member, error) {
	return r.members[r.rng.IntN(len(r.members))], r.working(ctx)
}

// lost notes that a member was struck. The offsets are read a moment later:
// a commit that was under way has arrived by then, and nobody else can have
// committed for it, as its session lasts for seconds. Where they cannot be read
// in that time those read last stand for them: the bound is wider then.
func (r *run) lost(ctx context.Context, e event) {
	time.Sleep(200 * time.Millisecond) // long for a request that was sent already
	err := until(ctx, sessionTimeout/2, "the group's offsets", func(ctx context.Context) (bool, error) {
		var err error
		e.committed, err = r.admin.committed(ctx, r.topics, r.partitions)
		return err == nil, err
	})
	if err != nil {
		e.committed = r.snapshots.latest(e.at)
	}
	r.events = append(r.events, e)
}

func (r *run) killMember(ctx context.Context) error {
	m, err := r.victim(ctx)
	if err != nil {
		return err
	}
	life := m.life
	m.kill()
	w := r.ledger.watch(r.partitions, false)
	r.lost(ctx, event{kind: killMember, at: w.since, life: life})
	// The service manager starts it again: at once, or after its session's end.
	time.Sleep(time.Duration(r.rng.Int64N(int64(sessionTimeout * 5 / 4))))
	if err := m.start(); err != nil {
		return err
	}
	return r.recovered(ctx, w, killMember)
}

// freezeMember lets a member stand still for longer than its session, with or
// without its handler, and go on.
func (r *run) freezeMember(ctx context.Context) error {
	m, err := r.victim(ctx)
	if err != nil {
		return err
	}
	pids := []int{m.proc.pid()}
	if handler := m.handlerPID(); handler != 0 && r.rng.IntN(2) == 0 {
		pids = append(pids, handler)
	}
	signal := func(s syscall.Signal) error {
		for _, pid := range pids {
			if err := syscall.Kill(pid, s); err != nil {
				return fmt.Errorf("signal process %d of %s: %w", pid, m.life, err)
			}
		}
		return nil
	}
	if err := signal(syscall.SIGSTOP); err != nil {
		return err
	}
	w := r.ledger.watch(r.partitions, false)
	e := event{kind: freezeMember, at: w.since, life: m.life}
	thaw := time.NewTimer(8*time.Second + time.Duration(r.rng.Int64N(int64(2*time.Second))))
	defer thaw.Stop()
	r.lost(ctx, e)
	if err := r.recovered(ctx, w, freezeMember); err != nil {
		return err
	}
	select {
	case <-thaw.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	w = r.ledger.watch(r.partitions, false)
	if err := signal(syscall.SIGCONT); err != nil {
		return err
	}
	r.events[len(r.events)-1].until = time.Now().UnixNano()
	return r.recovered(ctx, w, "member thawed")
}

func (r *run) killHandler(ctx context.Context) error {
	m, err := r.victim(ctx)
	if err != nil {
		return err
	}
	pid := m.handlerPID()
	if pid == 0 {
		return fmt.Errorf("%s has no handler", m.life)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill handler of %s: %w", m.life, err)
	}
	w := r.ledger.watch(r.partitions, false)
	// What it had is delivered again by the same member, which may commit what
	// it had been answered: the offsets of before are the safe side.
	r.events = append(r.events, event{kind: killHandler, at: w.since, life: m.life, pid: pid, committed: r.snapshots.latest(w.since)})
	return r.recovered(ctx, w, killHandler)
}

// endBroker ends the next broker and starts it again.
func (r *run) endBroker(ctx context.Context, k kind, end func(...int) error) error {
	i := r.nextBroker % 3
	r.nextBroker++
	if err := end(i); err != nil {
		return err
	}
	w := r.ledger.watch(r.partitions, false)
	if err := r.recovered(ctx, w, k); err != nil {
		return err
	}
	w = r.ledger.watch(r.partitions, false)
	if err := r.startBroker(ctx, i); err != nil {
		return err
	}
	return r.recovered(ctx, w, "broker back")
}

// startBroker starts a broker and waits until its replicas are in sync: with
// one missing the next broker's end would stop the cluster.
func (r *run) startBroker(ctx context.Context, i int) error {
	if err := r.kafka.Start(i); err != nil {
		return err
	}
	return r.inSync(ctx)
}

func (r *run) inSync(ctx context.Context) error {
	return until(ctx, progressPatience, "all replicas in sync", func(ctx context.Context) (bool, error) {
		return r.admin.whole(ctx, 3, r.moving()...)
	})
}

// moving are the topics whose leaders faults move.
func (r *run) moving() []string {
	return append(slices.Clone(r.topics), topicDLQ, "__consumer_offsets")
}

// moveLeaders gives every partition of the stages and of the group's offsets
// another leader: the group's coordinator moves, too.
func (r *run) moveLeaders(ctx context.Context) error {
	if err := r.inSync(ctx); err != nil {
		return err
	}
	if err := r.admin.rotate(ctx, r.moving()...); err != nil {
		return err
	}
	return r.recovered(ctx, r.ledger.watch(r.partitions, false), moveLeaders)
}

// rolling replaces each member by SIGTERM and a new life, one after another.
func (r *run) rolling(ctx context.Context) error {
	for _, m := range r.members {
		if err := r.working(ctx); err != nil {
			return err
		}
		if err := m.stop(); err != nil {
			r.troubles = append(r.troubles, err.Error())
		}
		w := r.ledger.watch(r.partitions, false)
		if err := m.start(); err != nil {
			return err
		}
		if err := r.recovered(ctx, w, rolling); err != nil {
			return err
		}
	}
	return nil
}

// forbidTier makes the retry topics refuse what is written, in one of two ways:
// they want more replicas in sync than there are, and the main topic goes on
// meanwhile; or everything is too large for them, which stops its partition, as
// that is the policy.
func (r *run) forbidTier(ctx context.Context) error {
	name, value, broker := "min.insync.replicas", "3", r.nextBroker%3
	if r.counts[forbidTier]%2 == 1 {
		name, value, broker = "max.message.bytes", "1", -1
	}
	if err := r.working(ctx); err != nil {
		return err
	}
	before, err := r.failures(ctx)
	if err != nil {
		return err
	}
	if err := r.setTiers(ctx, name, value); err != nil {
		return err
	}
	if broker >= 0 {
		r.nextBroker++
		if err := r.kafka.Stop(broker); err != nil {
			return err
		}
		if err := r.recovered(ctx, r.ledger.watch(r.partitions, false), forbidTier); err != nil {
			return err
		}
	}
	err = until(ctx, progressPatience, "a forward that is refused", func(ctx context.Context) (bool, error) {
		now, err := r.failures(ctx)
		return err == nil && now > before, err
	})
	if err != nil {
		return err
	}
	if broker >= 0 {
		if err := r.startBroker(ctx, broker); err != nil {
			return err
		}
	}
	tiers, main := r.ledger.watch(r.partitions, true), r.ledger.watch(r.partitions, false)
	if err := r.setTiers(ctx, name, ""); err != nil {
		return err
	}
	if err := r.recovered(ctx, main, "retry topic open"); err != nil {
		return err
	}
	return r.recovered(ctx, tiers, "its next retries")
}

func (r *run) setTiers(ctx context.Context, name, value string) error {
	for _, t := range r.tiers {
		if err := r.admin.setting(ctx, t, name, value); err != nil {
			return err
		}
	}
	return nil
}

// failures is how many forwards failed, of all members.
func (r *run) failures(ctx context.Context) (float64, error) {
	var n float64
	for _, m := range r.members {
		b, err := m.metrics(ctx)
		if err != nil {
			return 0, err
		}
		n += sum(b, "kconsume_forward_failures_total")
	}
	return n, nil
}

// byKind groups recoveries, each group sorted by how long it took.
func byKind(all []recovery) map[string][]recovery {
	out := map[string][]recovery{}
	for _, r := range all {
		out[r.kind] = append(out[r.kind], r)
	}
	for _, k := range slices.Collect(maps.Keys(out)) {
		slices.SortFunc(out[k], func(a, b recovery) int { return int(a.took - b.took) })
	}
	return out
}
