package dlq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
	"github.com/kconsume/kconsume/engine/backlog"
	"github.com/kconsume/kconsume/engine/record"
	"github.com/kconsume/kconsume/engine/topics"
	"github.com/kconsume/kconsume/engine/topology"
	"github.com/segmentio/kafka-go"
)

// Bounds of what is read from a DLQ for one thing.
const (
	sliceBytes = 8 << 20               // at a time, from a partition
	passBytes  = 64 << 20              // before who waits is told how far it is
	pageBytes  = 64 << 20              // for a page of messages
	pageTime   = 3 * time.Second       // the same
	freshTime  = 2 * time.Second       // to bring the counts up to date
	firstTime  = 8 * time.Second       // more, where nothing is known yet
	planBytes  = 1 << 30               // for a plan
	seekBytes  = 16 << 20              // for the oldest open record, each time
	breath     = 20 * time.Millisecond // between two passes, for whoever else works here
	settingTTL = 30 * time.Second      // of the DLQ's retention
)

// queue is one DLQ and its state.
type queue struct {
	line   topology.Line
	topic  string
	group  string
	client *kafka.Client
	reader *backlog.Reader
	log    *state.Log
	logger *slog.Logger
	hook   func(what string, do func() error) error // nil but in tests

	kick      chan struct{} // wakes scan
	beginning chan struct{} // holds one token: see begin

	mu       sync.Mutex
	index    *index
	printer  printer // scan's own
	begun    int     // passes that have begun
	ended    int     // the number of the last that ended
	complete bool    // it reached the ends that it found
	problem  error   // of the last pass
	changed  chan struct{}
	tallied  tally
	setting  setting
}

// setting is the DLQ's retention as it was read last.
type setting struct {
	read      time.Time
	retention time.Duration // 0 = for ever, or not known
}

func newQueue(c *Config, line topology.Line) *queue {
	q := &queue{
		line: line, topic: line.DLQ, group: c.Group, client: c.Client, reader: backlog.New(c.Client), logger: c.Logger,
		log: state.NewLog(c.Client, line.State(), c.Logger), kick: make(chan struct{}, 1), beginning: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	q.log.Effect = q.effect
	q.beginning <- struct{}{}
	return q
}

// span is what a DLQ's partitions hold, and the topic's identity.
type spans struct {
	life  topics.ID
	parts []backlog.Span // by partition
}

func (s *spans) lifeText() string { return state.Life(s.life) }

// spans asks the brokers for what the DLQ holds now.
func (q *queue) spans(ctx context.Context) (spans, error) {
	all, err := topics.Layouts(ctx, q.client, []string{q.topic})
	if err != nil {
		return spans{}, unavailable(err)
	}
	lay, ok := all[q.topic]
	if !ok {
		return spans{}, refuse(KindUnavailable, "topic %s does not exist: create it with kconsume topics apply", q.topic)
	}
	parts, err := q.reader.Spans(ctx, []string{q.topic})
	if err != nil {
		return spans{}, unavailable(err)
	}
	return spans{lay.ID, parts}, nil
}

// unavailable is an error of the brokers' as one of ours.
func unavailable(err error) error {
	if _, ours := errors.AsType[*Error](err); ours {
		return err
	}
	if errors.Is(err, state.ErrMissing) {
		return &Error{Kind: KindUnavailable, Text: err.Error(), Err: err}
	}
	return &Error{Kind: KindUnavailable, Text: err.Error() + ": try again", Err: err}
}

// scan keeps the index up to date while somebody asks for it, until ctx ends.
func (q *queue) scan(ctx context.Context) {
	said := ""
	for more := false; ; {
		if !more {
			select {
			case <-q.kick:
			case <-ctx.Done():
				return
			}
		}
		q.mu.Lock()
		q.begun++
		n := q.begun
		q.mu.Unlock()
		complete, err := q.pass(ctx)
		if ctx.Err() != nil {
			return
		}
		q.mu.Lock()
		q.ended, q.complete, q.problem = n, complete, err
		close(q.changed)
		q.changed = make(chan struct{})
		q.mu.Unlock()
		if more = err == nil && !complete; more {
			select {
			case <-time.After(breath):
			case <-ctx.Done():
				return
			}
		}
		switch {
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			q.logger.Warn("dead letters cannot be read", "topic", q.topic, "error", err)
		}
	}
}

// pass reads on in every partition, up to passBytes in all.
func (q *queue) pass(ctx context.Context) (complete bool, err error) {
	sp, err := q.spans(ctx)
	if err != nil {
		return false, err
	}
	again := q.adjust(&sp)
	for p, r := range again {
		if err := q.readIn(ctx, sp.parts[p], r[0], r[1], unbounded()); err != nil {
			return false, err
		}
		q.mu.Lock()
		q.index.reread(p)
		q.mu.Unlock()
	}
	budget := &backlog.Budget{Bytes: passBytes}
	complete = true
	for p, s := range sp.parts {
		q.mu.Lock()
		at := q.index.parts[p].next
		q.mu.Unlock()
		if at >= s.End {
			continue
		}
		if budget.Bytes <= 0 {
			return false, nil
		}
		next, err := q.reader.Scan(ctx, s, at, budget, q.count(p))
		q.mu.Lock()
		q.index.read(p, next)
		q.mu.Unlock()
		if err != nil {
			return false, unavailable(err)
		}
		complete = complete && (next >= s.End || budget.Bytes > 0)
	}
	if complete {
		err = q.seekOpen(ctx, &sp)
	}
	return complete, err
}

// adjust fits the index to what the topic holds now; a topic that was made anew
// has a new one. It returns the ranges by partition that must be read again.
func (q *queue) adjust(sp *spans) map[int][2]int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	anew := q.index == nil || q.index.life != sp.life || len(q.index.parts) > len(sp.parts)
	for p := 0; !anew && p < len(q.index.parts); p++ {
		anew = q.index.parts[p].next > sp.parts[p].End // no topic gets shorter
	}
	if anew {
		q.index = newIndex(q.group, sp.life, len(sp.parts))
	}
	q.index.grow(len(sp.parts))
	again := map[int][2]int64{}
	for p, s := range sp.parts {
		if from, to := q.index.bounds(p, s.Start, s.End); from < to {
			again[p] = [2]int64{from, to}
		}
	}
	return again
}

func unbounded() *backlog.Budget { return &backlog.Budget{Bytes: int(^uint(0) >> 1)} }

// readIn counts a range of offsets again.
func (q *queue) readIn(ctx context.Context, s backlog.Span, from, to int64, b *backlog.Budget) error {
	s.End = min(s.End, to)
	_, err := q.reader.Scan(ctx, s, from, b, q.count(s.Partition))
	return unavailableOrNil(err)
}

func unavailableOrNil(err error) error {
	if err == nil {
		return nil
	}
	return unavailable(err)
}

func (q *queue) count(partition int) func(*record.Record) error {
	return func(r *record.Record) error {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.index.add(&q.printer, partition, r)
		return nil
	}
}

// fresh brings the index up to date, for freshTime at most; what is left is read
// on afterwards. Its error is why nothing can be read at all.
func (q *queue) fresh(ctx context.Context) error {
	deadline := time.NewTimer(freshTime)
	defer deadline.Stop()
	q.mu.Lock()
	want := q.begun + 1
	q.mu.Unlock()
	for late := false; ; {
		select {
		case q.kick <- struct{}{}:
		default:
		}
		q.mu.Lock()
		done, problem, changed := q.ended >= want && (q.complete || q.problem != nil), q.problem, q.changed
		ready := q.index != nil
		q.mu.Unlock()
		if done {
			return problem
		}
		select {
		case <-changed:
		case <-deadline.C:
			if ready {
				return nil
			}
			if late {
				return refuse(KindUnavailable, "the brokers have not told what %s holds within %v: try again", q.topic, freshTime+firstTime)
			}
			late = true
			deadline.Reset(firstTime)
		case <-ctx.Done():
			return refuse(KindUnavailable, "%s is still being read: try again: %w", q.topic, context.Cause(ctx))
		}
	}
}

// scanned says how far the index is. The lock must be held.
func (q *queue) scanned() Scan {
	records, read, all := q.index.progress()
	s := Scan{Complete: read >= all, Records: records}
	if !s.Complete {
		s.Note = fmt.Sprintf("%d of about %d records have been read so far: ask again in a moment", read, all)
	} else if q.index.others > 0 {
		s.Note = fmt.Sprintf("%d records of other groups, or of none, are not counted", q.index.others)
	}
	return s
}

// seekOpen finds the oldest open record of each partition, as far as seekBytes
// allows; the next pass goes on from there.
func (q *queue) seekOpen(ctx context.Context, sp *spans) error {
	budget := &backlog.Budget{Bytes: seekBytes}
	for p, s := range sp.parts {
		q.mu.Lock()
		part := q.index.parts[p]
		at, have := part.open, part.oldest
		q.mu.Unlock()
		if have != nil {
			open, err := q.isOpen(ctx, have.id)
			if err != nil {
				return nil // the state cannot be read: others say so
			}
			if open {
				continue
			}
			at = have.id.Offset + 1
		}
		var found *oldest
		next, err := q.reader.Scan(ctx, s, at, budget, func(r *record.Record) error {
			var g glance
			if g.look(r); !g.known || string(g.group) != q.group {
				return nil
			}
			l := q.printer.letter(sp.life, q.topic, int32(p), r)
			open, err := q.isOpen(ctx, l.id)
			if err != nil || !open {
				return err
			}
			found = &oldest{l.id, l.came}
			return errEnough
		})
		if err != nil && !errors.Is(err, errEnough) {
			return unavailable(err)
		}
		q.mu.Lock()
		part.open, part.oldest = next, found
		q.index.gen++
		q.mu.Unlock()
	}
	return nil
}

// errEnough ends a scan that has found what it looked for.
var errEnough = errors.New("enough")

func (q *queue) isOpen(ctx context.Context, id state.ID) (open bool, err error) {
	err = q.log.Read(ctx, func(v *state.View) {
		r, known := v.Record(id)
		open = !known || r.Status.Open()
	})
	return open, err
}

// retention is the DLQ's, 0 = for ever. What cannot be read counts as for ever.
func (q *queue) retention(ctx context.Context) time.Duration {
	q.mu.Lock()
	s := q.setting
	q.mu.Unlock()
	if !s.read.IsZero() && time.Since(s.read) < settingTTL {
		return s.retention
	}
	s = setting{read: time.Now()}
	res, err := q.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: q.topic, ConfigNames: []string{topology.RetentionMS},
	}}})
	if err == nil {
		for _, r := range res.Resources {
			for _, e := range r.ConfigEntries {
				if e.ConfigName == topology.RetentionMS {
					s.retention = retentionOf(e.ConfigValue)
				}
			}
		}
	}
	q.mu.Lock()
	q.setting = s
	q.mu.Unlock()
	return s.retention
}

// effect does something that others see; hook, where a test has set one, may
// keep it from happening, or from being known.
func (q *queue) effect(what string, do func() error) error {
	if q.hook == nil {
		return do()
	}
	return q.hook(what, do)
}
