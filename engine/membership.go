package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kconsume/kconsume/engine/topics"
	"github.com/kconsume/kconsume/engine/topology"
	"github.com/segmentio/kafka-go"
)

// generation is the scope of ownership: what is read, forwarded and committed
// belongs to one.
type generation struct {
	id     int32
	member string
	commit func(map[string]map[int]int64) error
	starts map[topicPartition]start
	leave  context.CancelCauseFunc // ends it: the group is joined again
	doubt  bool                    // a commit had no answer: it may still arrive. The loop's own
}

// start is where a partition begins in a generation.
type start struct {
	committed int64 // −1 = none
	position  int64
}

// rejoin ends the generation so that the group assigns anew.
func (g *generation) rejoin(why string) { g.leave(errors.New(why)) }

// membership keeps this member in the group and tells the loop of each
// generation: started, and ended. Its one goroutine owns the group.
type membership struct {
	cfg     Config
	topo    *topology.Topology
	cluster *cluster
	loop    *loop
	group   *kafka.ConsumerGroup
	balance *balancer
	subs    *subscription
	mains   map[string]bool
	log     *slog.Logger
}

func newMembership(c Config, topo *topology.Topology, k *cluster, l *loop) (*membership, error) {
	m := &membership{cfg: c, topo: topo, cluster: k, loop: l, log: c.Logger, mains: map[string]bool{}}
	for _, ln := range topo.Lines {
		m.mains[ln.Topic] = true
	}
	m.subs = l.watch.subs
	m.balance = &balancer{
		counts: k.counts,
		failed: func(err error) { m.problem(fmt.Errorf("assign partitions: %w", err)) },
		own:    memberData{Lines: m.subs.lines},
	}
	var err error
	m.group, err = kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: c.Group, Brokers: c.Brokers, Topics: m.subs.topics,
		Dialer: &kafka.Dialer{
			ClientID: c.ClientID, DialFunc: k.dial, Timeout: requestTimeout,
		},
		GroupBalancers:    []kafka.GroupBalancer{m.balance},
		HeartbeatInterval: c.HeartbeatInterval, SessionTimeout: c.SessionTimeout,
		RebalanceTimeout: c.RebalanceTimeout, JoinGroupBackoff: joinPause,
		StartOffset: kafka.FirstOffset, Timeout: requestTimeout,
	})
	if err != nil {
		return nil, configError("join group %q: %v", c.Group, err)
	}
	return m, nil
}

const (
	joinPause      = time.Second            // the least time between two joins after an error
	startsPause    = 250 * time.Millisecond // between attempts to find where partitions begin
	startsPauseMax = 5 * time.Second
	startsQuiet    = 4 // attempts that fail before it is told
)

// run joins generation after generation until leave.
func (m *membership) run(ctx context.Context) {
	for {
		gen, err := m.group.Next(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, kafka.ErrGroupClosed):
			return
		case err != nil:
			m.problem(fmt.Errorf("join group %q: %w%s", m.cfg.Group, plainly(err), topics.OnGroup(m.cfg.Group, topics.ReadFrom).Advice(m.cluster.client, err)))
			sleep(ctx, joinPause)
			continue
		}
		m.problem(nil)
		gen.Start(func(over context.Context) { m.generation(over, gen) })
	}
}

// leaveWait is what a stop gives the group to take note of our leaving.
const leaveWait = 2 * time.Second

// close leaves the group. A broker that does not answer within leaveWait is cut
// off, and whatever else waits for it too.
func (m *membership) close() {
	left := make(chan struct{})
	go func() {
		defer close(left)
		_ = m.group.Close() // leaving is a courtesy: a session ends by itself
	}()
	select {
	case <-left:
	case <-time.After(leaveWait):
		m.log.Warn("the group did not take note of our leaving: our partitions move when the session ends", "group", m.cfg.Group)
	}
	m.cluster.close()
	<-left
}

// generation guards one generation: it returns only when that is over and the
// loop has let go of it. (The group ends a generation when any function of it
// returns, and joins again only when all have.)
func (m *membership) generation(over context.Context, gen *kafka.Generation) {
	ctx, leave := context.WithCancelCause(over)
	defer leave(nil)
	g := &generation{id: gen.ID, member: gen.MemberID, commit: gen.CommitOffsets, leave: leave}
	var err error
	found := map[topicPartition]int64{}
	for tries := 1; ; tries++ {
		if g.starts, err = m.starts(ctx, gen, found); err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		if tries > startsQuiet { // a topic just made has no leader for a moment
			m.problem(err)
		}
		sleep(ctx, min(startsPauseMax, startsPause<<min(tries-1, 8)))
	}
	m.problem(nil)
	m.balance.setOwned(gen.ID, m.lanes(gen))
	m.loop.post(&started{g})
	<-ctx.Done()
	if over.Err() == nil {
		m.log.Info("joining the group again", "why", context.Cause(ctx).Error())
	}
	end := &ended{gen: g, done: make(chan struct{})}
	m.loop.post(end)
	select {
	case <-end.done:
		if end.doubt {
			m.balance.fence()
		}
	case <-m.loop.work.Done():
	}
	m.awaitCoordinator()
	if len(end.rest) > 0 {
		// The last commit went to a coordinator that is gone: the one that
		// answers now still takes it, until the next generation is complete.
		if err := m.cluster.commit(m.loop.work, m.cfg.Group, g, end.rest); err != nil {
			m.log.Warn("the last commit of a generation failed: what it held is delivered again where it changes hands", "error", err.Error())
		}
	}
	if lines := m.subs.takeUp(); lines != nil {
		m.balance.setLines(lines)
	}
}

// coordinatorPause is the time between two questions to a coordinator that does
// not answer.
const coordinatorPause = 200 * time.Millisecond

// awaitCoordinator holds the next join back until the group's coordinator
// answers, for a session at most. The client gives its member id up when a join
// fails for any reason: the group would then wait for a member that is gone, and
// every partition would change hands.
func (m *membership) awaitCoordinator() {
	ctx, cancel := context.WithTimeout(m.loop.work, m.cfg.SessionTimeout)
	defer cancel()
	any := map[string][]int{m.topo.Lines[0].Topic: {0}}
	for {
		if _, err := m.cluster.committed(ctx, m.cfg.Group, any); err == nil || ctx.Err() != nil {
			return
		}
		sleep(ctx, coordinatorPause)
	}
}

// lanes are the partitions of main topics in a generation.
func (m *membership) lanes(gen *kafka.Generation) map[string][]int {
	lanes := map[string][]int{}
	for topic, parts := range gen.Assignments {
		if !m.mains[topic] {
			continue
		}
		for _, p := range parts {
			lanes[topic] = append(lanes[topic], p.ID)
		}
	}
	return lanes
}

// starts finds where each partition of a generation begins. Where nothing was
// committed, an absolute offset is found and committed before anything is
// handled: else records that arrive meanwhile could fall between two starts.
// found keeps what earlier tries have found.
func (m *membership) starts(ctx context.Context, gen *kafka.Generation, found map[topicPartition]int64) (map[topicPartition]start, error) {
	out := map[topicPartition]start{}
	unknown := map[string][]int{}
	for topic, parts := range gen.Assignments {
		for _, p := range parts {
			if p.Offset >= 0 {
				out[topicPartition{topic, int32(p.ID)}] = start{p.Offset, p.Offset}
			} else {
				unknown[topic] = append(unknown[topic], p.ID)
			}
		}
	}
	if len(unknown) == 0 {
		return out, nil
	}
	// The group protocol's read takes an error for "nothing committed": ask again.
	known, err := m.cluster.committed(ctx, m.cfg.Group, unknown)
	if err != nil {
		return nil, err
	}
	anew, err := m.madeAnew(ctx, unknown, known)
	if err != nil {
		return nil, err
	}
	fresh := offsets{}
	for topic, parts := range unknown {
		for _, id := range parts {
			tp := topicPartition{topic, int32(id)}
			if at := known[topic][id]; at >= 0 {
				out[tp] = start{at, at}
				continue
			}
			at, known := found[tp]
			if !known {
				if at, err = m.begin(ctx, topic, id, anew[topic]); err != nil {
					return nil, err
				}
				found[tp] = at
			}
			fresh.set(topic, int32(id), at)
			out[tp] = start{at, at}
		}
	}
	if len(fresh) > 0 {
		if err := gen.CommitOffsets(fresh); err != nil {
			return nil, fmt.Errorf("commit the first offsets: %w", err)
		}
	}
	return out, nil
}

// madeAnew are the main topics that were deleted and created again while this
// group was away. The brokers forget a topic's offsets with it: nothing of such
// a topic is committed, though the stages beside it are, which this group
// commits together with it from its first assignment on.
func (m *membership) madeAnew(ctx context.Context, unknown map[string][]int, known map[string]map[int]int64) (map[string]bool, error) {
	anew := map[string]bool{}
	for _, ln := range m.topo.Lines {
		if len(unknown[ln.Topic]) == 0 || anyCommitted(known[ln.Topic]) {
			continue
		}
		counts, err := m.cluster.counts(ln.StageTopics())
		if err != nil {
			return nil, err
		}
		ask := map[string][]int{}
		for topic, n := range counts {
			for id := range n {
				ask[topic] = append(ask[topic], id)
			}
		}
		all, err := m.cluster.committed(ctx, m.cfg.Group, ask)
		if err != nil {
			return nil, err
		}
		main := all[ln.Topic]
		delete(all, ln.Topic)
		if anyCommitted(main) {
			continue
		}
		for _, parts := range all {
			anew[ln.Topic] = anew[ln.Topic] || anyCommitted(parts)
		}
	}
	return anew, nil
}

func anyCommitted(parts map[int]int64) bool {
	for _, at := range parts {
		if at >= 0 {
			return true
		}
	}
	return false
}

// begin is where a partition without a committed offset begins: a main topic as
// configured, every other stage at its first record.
func (m *membership) begin(ctx context.Context, topic string, partition int, anew bool) (int64, error) {
	switch {
	case !m.mains[topic]:
		return m.cluster.listOffset(ctx, topic, partition, OffsetEarliest, time.Time{})
	case !anew:
		return m.cluster.listOffset(ctx, topic, partition, m.cfg.Start, m.cfg.StartTime)
	}
	text := fmt.Sprintf("topic %s was deleted and created again while this group was away: nothing of it is committed", topic)
	m.loop.post(&forgotten{topic, text})
	if m.cfg.OffsetLost == OffsetFail {
		return 0, &Error{ErrOffset, fmt.Errorf("%s: choose where to go on with --offset-lost earliest or latest", text)}
	}
	return m.cluster.listOffset(ctx, topic, partition, m.cfg.OffsetLost, time.Time{})
}

// forgotten is a partition whose committed offset went with its topic.
type forgotten struct{ topic, text string }

func (f *forgotten) apply(l *loop) {
	l.met.OffsetsLost.WithLabelValues(f.topic).Inc()
	if l.cfg.OffsetLost == OffsetFail {
		l.fail(&Error{ErrOffset, fmt.Errorf("%s: choose where to go on with --offset-lost earliest or latest", f.text)})
		return
	}
	l.log.Error(f.text, "going_on_from", string(l.cfg.OffsetLost))
}

func (m *membership) problem(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	m.loop.post(&trouble{"group", text})
}

// trouble is a problem seen beside the loop, "" = it is over.
type trouble struct{ what, text string }

func (t *trouble) apply(l *loop) { l.problems.set(t.what, t.text) }

// sleep waits, or returns early with its context.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
