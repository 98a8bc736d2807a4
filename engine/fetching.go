package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kconsume/kconsume/engine/fetch"
	"github.com/kconsume/kconsume/engine/record"
	"github.com/kconsume/kconsume/engine/topics"
	"github.com/segmentio/kafka-go"
)

// Each leader is asked for all its partitions that have room, in one request;
// a partition that gets room while that one waits goes into a second request at
// once. There are never more than two, and a partition is in one only. A request
// waits long when nothing is left out of it, and briefly when something is, so
// that what got room meanwhile is not kept waiting by an idle topic.
const (
	fetchWaitLong  = 500 * time.Millisecond
	fetchWaitShort = 50 * time.Millisecond
	fetchMaxBytes  = 8 << 20 // of one answer
	fetchPartMax   = 1 << 20 // of one partition in it
	maxInflate     = 64 << 20
)

// leader is a broker with the requests that are under way to it.
type leader struct {
	id   int32
	busy int
}

// fetched is a fetch's result; parts are the partitions asked for, in order.
type fetched struct {
	lead   *leader
	parts  []*partition
	answer fetch.Answer
	err    error
}

// planFetches starts what fetches there can be and returns when a paused
// partition may be fetched again.
func (l *loop) planFetches(now time.Time) time.Time {
	if !l.running() {
		return time.Time{}
	}
	var next time.Time
	wanted := map[int32][]*partition{}
	full := map[int32]bool{}
	for p := range l.owned {
		switch {
		case p.fetching || p.leader < 0 || p.anew:
		case now.Before(p.pauseTo):
			if next.IsZero() || p.pauseTo.Before(next) {
				next = p.pauseTo
			}
		case p.held*2 > p.bound(now):
			full[p.leader] = full[p.leader] || l.roomSoon(p, now)
		default:
			wanted[p.leader] = append(wanted[p.leader], p)
		}
	}
	for id, parts := range wanted {
		lead := l.leaders[id]
		if lead == nil {
			lead = &leader{id: id}
			l.leaders[id] = lead
		}
		if lead.busy > 0 {
			// A second request is for what is known to be there; the rest
			// comes along with the next one.
			parts = slices.DeleteFunc(parts, func(p *partition) bool { return p.high >= 0 && p.position >= p.high })
		}
		if lead.busy < 2 && len(parts) > 0 {
			wait := fetchWaitLong
			if full[id] || lead.busy > 0 {
				wait = fetchWaitShort
			}
			l.fetch(lead, parts, wait, now)
		}
	}
	return next
}

// What is read ahead of a tier in which nothing is due for a while: enough to
// find a record that is due before those in front of it, and no more. A backlog
// of minutes is not worth holding.
const (
	lookAhead = 256 << 10 // bytes
	dueSoon   = 2 * time.Second
)

// bound is what a partition may hold now, in bytes.
func (p *partition) bound(now time.Time) int {
	if p.stage.Delay == 0 {
		return p.share
	}
	due, waits := p.gate.next()
	if waits && p.gate.len() == p.track.len() && due > now.Add(dueSoon).UnixMilli() {
		return min(p.share, lookAhead)
	}
	return p.share
}

// roomSoon reports whether a full partition may get room within a long wait:
// one in which everything waits for a later time will not.
func (l *loop) roomSoon(p *partition, now time.Time) bool {
	if p.gate.len() == 0 || p.gate.len() < p.track.len() {
		return true
	}
	due, _ := p.gate.next()
	return due < now.Add(fetchWaitLong).UnixMilli()
}

// fetch starts one request. The order of its partitions turns from request to
// request: a broker fills an answer from the front.
func (l *loop) fetch(lead *leader, parts []*partition, wait time.Duration, now time.Time) {
	l.rotation++
	k := l.rotation % len(parts)
	parts = slices.Concat(parts[k:], parts[:k])
	r := fetch.Request{
		Broker: lead.id, ClientID: l.cfg.ClientID, MaxWait: wait, MinBytes: 1, MaxBytes: fetchMaxBytes,
		ReadCommitted: !l.cfg.ReadUncommitted, MaxInflate: maxInflate,
	}
	for _, p := range parts {
		p.fetching = true
		most := int(float64(p.bound(now)-p.held) / p.inflation)
		r.Wants = append(r.Wants, fetch.Want{
			Topic: p.stage.Topic, Partition: p.lane.id, Offset: p.position, LeaderEpoch: -1,
			MaxBytes: int32(max(16<<10, min(most, fetchPartMax), p.grow)),
		})
		r.MaxBytes = max(r.MaxBytes, int32(p.grow))
	}
	lead.busy++
	l.task(func(ctx context.Context) event {
		a, err := fetch.Do(ctx, l.cluster.transport, l.cluster.addr, r)
		return &fetched{lead: lead, parts: parts, answer: a, err: err}
	})
}

func (f *fetched) apply(l *loop) {
	now := time.Now()
	f.lead.busy--
	for _, p := range f.parts {
		p.fetching = false
	}
	what := fmt.Sprintf("fetch from broker %d", f.lead.id)
	if f.err != nil {
		for _, p := range f.parts {
			p.pauseTo = now.Add(500 * time.Millisecond)
			p.leader = -1
		}
		l.askLayout()
		if !errors.Is(f.err, context.Canceled) {
			l.problems.set(what, fmt.Sprintf("cannot fetch: %v", plainly(f.err)))
		}
		return
	}
	l.problems.set(what, "")
	for i := range f.answer.Parts {
		part := &f.answer.Parts[i]
		p := l.byTopic[topicPartition{part.Topic, part.Partition}]
		if p == nil || p.anew || !slices.Contains(f.parts, p) || part.Offset != p.position {
			continue // lost, or lost and owned again, since it was asked for
		}
		l.fetchedPart(p, part, now)
	}
}

// fetchedPart takes what a fetch brought of one partition.
func (l *loop) fetchedPart(p *partition, part *fetch.Part, now time.Time) {
	if part.Err == nil || isRecordError(part.Err) {
		p.high = part.HighWatermark
		if !l.cfg.ReadUncommitted && part.LastStable >= 0 {
			p.high = min(p.high, part.LastStable)
			p.openTransaction(part.Set.Next == part.LastStable && part.LastStable < part.HighWatermark, part.LastStable, now)
		}
		if part.Wire > 0 {
			p.inflation = (p.inflation + max(1, float64(part.Set.Bytes)/float64(part.Wire))) / 2
		}
		stuck := l.accept(p, &part.Set, now)
		if part.Err == nil {
			l.setPartProblem(p, stuck)
			return
		}
	}
	l.met.FetchFails.WithLabelValues(p.stage.Topic, fetchReason(part.Err)).Inc()
	p.pauseTo = now.Add(time.Second)
	switch {
	case isRecordError(part.Err):
		l.setPartProblem(p, fmt.Sprintf("%s/%d: %v: it is fetched again, nothing is passed over", p.stage.Topic, p.lane.id, part.Err))
	case errors.Is(part.Err, kafka.OffsetOutOfRange):
		l.offsetLost(p)
	case errors.Is(part.Err, kafka.TopicAuthorizationFailed):
		l.setPartProblem(p, fmt.Sprintf("not allowed to read %s%s", p.stage.Topic, topics.OnTopic(p.stage.Topic, topics.ReadFrom).Advice(l.cluster.client, part.Err)))
	default: // the leader moved, or the topic is not there: look again
		p.pauseTo = now.Add(250 * time.Millisecond)
		p.leader = -1
		l.askLayout()
		l.setPartProblem(p, fmt.Sprintf("cannot fetch %s/%d: %v", p.stage.Topic, p.lane.id, part.Err))
	}
}

// openTransaction notes whether the partition is read up to where an open
// transaction holds it up, and since when it stands there.
func (p *partition) openTransaction(held bool, at int64, now time.Time) {
	switch {
	case !held:
		p.openSince = time.Time{}
	case p.openSince.IsZero() || p.openAt != at:
		p.openAt, p.openSince = at, now
	}
}

func (l *loop) setPartProblem(p *partition, text string) {
	if p.problem == text {
		return
	}
	p.problem = text
	l.problems.set(fmt.Sprintf("%s/%d", p.stage.Topic, p.lane.id), text)
}

func isRecordError(err error) bool {
	_, ok := errors.AsType[*record.Error](err)
	return ok
}

// fetchReason is the bounded word for a failed fetch of a partition.
func fetchReason(err error) string {
	if e, ok := errors.AsType[*record.Error](err); ok {
		return string(e.Class)
	}
	switch {
	case errors.Is(err, kafka.OffsetOutOfRange):
		return "offset_out_of_range"
	case errors.Is(err, kafka.NotLeaderForPartition), errors.Is(err, kafka.LeaderNotAvailable):
		return "leader"
	case errors.Is(err, kafka.UnknownTopicOrPartition):
		return "unknown_topic"
	case errors.Is(err, kafka.TopicAuthorizationFailed):
		return "denied"
	}
	return "other"
}

// offsetLost notes that a broker says of a position that it does not exist. The
// metadata tells first whether that is because the topic was made anew.
func (l *loop) offsetLost(p *partition) {
	p.lost = true
	p.pauseTo = time.Now().Add(requestTimeout) // until the answer
	l.askLayout()
}

// afterLoss asks how far the logs reach of which that was said, in topics that
// are still the same.
func (l *loop) afterLoss() {
	for p := range l.owned {
		if p.lost && !p.anew {
			l.survey(p)
		}
		p.lost = false
	}
}

// survey finds out how far a partition's log reaches. That alone tells whether a
// position is lost: a replica that is behind says so of one that is there.
func (l *loop) survey(p *partition) {
	p.pauseTo = time.Now().Add(requestTimeout) // until the answer
	s := &surveyed{p: p, from: p.position}
	topic, id := p.stage.Topic, int(p.lane.id)
	l.task(func(ctx context.Context) event {
		if s.start, s.err = l.cluster.listOffset(ctx, topic, id, OffsetEarliest, time.Time{}); s.err == nil {
			s.end, s.err = l.cluster.listOffset(ctx, topic, id, OffsetLatest, time.Time{})
		}
		if s.err != nil {
			sleep(ctx, relocatePause)
		}
		return s
	})
}

// surveyed is how far a log reaches of which a broker said that it lacks a position.
type surveyed struct {
	p                *partition
	from, start, end int64
	err              error
}

func (s *surveyed) apply(l *loop) {
	p := s.p
	if p.gone || p.anew || p.position != s.from {
		return
	}
	p.pauseTo = time.Time{} // the next fetch brings it here again, if it has to
	switch {
	case s.err != nil:
		l.setPartProblem(p, s.err.Error())
	case s.start <= s.from && s.from <= s.end:
		l.setPartProblem(p, fmt.Sprintf("a broker says that it lacks offset %d of %s/%d, though the log reaches from %d to %d: it is fetched again", s.from, p.stage.Topic, p.lane.id, s.start, s.end))
		p.pauseTo = time.Now().Add(time.Second)
		p.leader = -1
		l.askLayout()
	default:
		l.lost(s)
	}
}

// lost follows the policy where a position no longer exists in the topic that it
// is of. A tier is always read from its beginning: --offset-lost is for main
// topics.
func (l *loop) lost(s *surveyed) {
	p := s.p
	text := fmt.Sprintf("offset %d of %s/%d no longer exists (log start %d, end %d)", s.from, p.stage.Topic, p.lane.id, s.start, s.end)
	at := relocated{p: p, policy: l.cfg.OffsetLost, from: s.from, offset: s.start}
	if p.stage.Name != stageMain {
		at.policy = OffsetEarliest
	}
	l.met.OffsetsLost.WithLabelValues(p.stage.Topic).Inc()
	switch at.policy {
	case OffsetFail:
		l.fail(&Error{ErrOffset, fmt.Errorf("%s: choose where to go on with --offset-lost earliest or latest", text)})
		return
	case OffsetLatest:
		at.offset = s.end
	}
	l.log.Error(text, "going_on_from", string(at.policy))
	at.apply(l)
}

// relocatePause is the least time between two attempts to find where to go on.
const relocatePause = time.Second

// relocate finds out where a partition goes on under a policy.
func (l *loop) relocate(p *partition, policy OffsetPolicy) {
	p.pauseTo = time.Now().Add(requestTimeout) // until the answer
	topic, id, from := p.stage.Topic, int(p.lane.id), p.position
	l.task(func(ctx context.Context) event {
		offset, err := l.cluster.listOffset(ctx, topic, id, policy, time.Time{})
		if err != nil {
			sleep(ctx, relocatePause)
		}
		return &relocated{p: p, policy: policy, from: from, offset: offset, err: err}
	})
}

// relocated is where a partition whose position was lost goes on.
type relocated struct {
	p            *partition
	policy       OffsetPolicy
	from, offset int64
	err          error
}

func (r *relocated) apply(l *loop) {
	p := r.p
	if p.gone || p.position != r.from && !p.anew {
		return
	}
	if r.err != nil {
		l.setPartProblem(p, r.err.Error())
		if p.anew {
			l.relocate(p, r.policy) // no fetch would bring it here again
		} else {
			p.pauseTo = time.Time{}
		}
		return
	}
	p.pauseTo = time.Time{}
	if r.offset > p.position && !p.anew { // retention passed us by: the gap counts as settled
		p.position = r.offset
		p.track.advance(r.offset)
		return
	}
	// The topic is shorter than it was: it was made anew. What was read of the
	// old one is let go, and offsets begin again.
	so := stageOf{p.lane.line, p.stage}
	l.dropPartition(p)
	l.addPartition(so, p.lane.id, -1, r.offset)
	l.shares()
	l.lead()
}
