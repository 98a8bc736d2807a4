package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"syscall"
	"time"

	"github.com/kconsume/kconsume/engine/topics"
	"github.com/segmentio/kafka-go"
)

// offsets are what is to be committed: by topic and partition.
type offsets map[string]map[int]int64

func (o offsets) set(topic string, partition int32, offset int64) {
	if o[topic] == nil {
		o[topic] = map[int]int64{}
	}
	o[topic][int(partition)] = offset
}

// planCommit commits what is settled, at most once an interval and one request
// at a time, and returns when the next commit is due.
func (l *loop) planCommit(now time.Time) time.Time {
	if l.gen == nil || l.committing || l.ending != nil {
		return time.Time{}
	}
	if now.Before(l.nextCommit) {
		return l.nextCommit
	}
	l.commit(now)
	return l.nextCommit
}

// commit starts a commit of everything that is settled and reports whether
// there was anything.
func (l *loop) commit(now time.Time) bool {
	l.nextCommit = now.Add(l.cfg.CommitInterval)
	o := l.settled()
	if len(o) == 0 {
		return false
	}
	l.committing = true
	g := l.gen
	l.task(func(context.Context) event {
		done, err := commitOffsets(g.commit, o)
		return &committed{gen: g, done: done, err: err}
	})
	return true
}

// settled are the offsets that may be committed and are not known to be.
func (l *loop) settled() offsets {
	o := offsets{}
	for p := range l.owned {
		if at := p.track.committable(); at > p.committed && !p.anew {
			o.set(p.stage.Topic, p.lane.id, at)
		}
	}
	return o
}

// committed is a commit's result: what was committed, and what went wrong.
type committed struct {
	gen  *generation
	done offsets
	err  error
}

func (c *committed) apply(l *loop) {
	l.committing = false
	for topic, parts := range c.done {
		for id, offset := range parts {
			if p := l.byTopic[topicPartition{topic, int32(id)}]; p != nil && offset > p.committed && offset <= p.track.committable() {
				p.committed = offset
			}
		}
	}
	c.gen.doubt = c.gen.doubt || unanswered(c.err)
	reason := commitReason(c.err)
	l.met.Commits.WithLabelValues(reason).Inc()
	if c.gen != l.gen {
		return
	}
	switch {
	case c.err == nil:
		l.problems.set("commit", "")
	case generationOver(c.err):
		// The next generation tells what is still ours.
	default:
		l.problems.set("commit", fmt.Sprintf("cannot commit: %v: it is tried again%s", plainly(c.err), topics.OnGroup(l.cfg.Group, topics.ReadFrom).Advice(l.cluster.client, c.err)))
	}
}

// commitOffsets commits in one request and, since the client shows the first
// error only, partition by partition where that failed.
func commitOffsets(commit func(map[string]map[int]int64) error, o offsets) (done offsets, err error) {
	if err = commit(o); err == nil {
		return o, nil
	}
	if _, fromBroker := errors.AsType[kafka.Error](err); !fromBroker || generationOver(err) {
		return nil, err
	}
	done = offsets{}
	for topic, parts := range o {
		for id, offset := range parts {
			one := commit(offsets{topic: {id: offset}})
			if one == nil {
				done.set(topic, int32(id), offset)
				continue
			}
			if err = fmt.Errorf("%s/%d: %w", topic, id, one); generationOver(one) {
				return done, err
			}
		}
	}
	return done, err
}

// unanswered reports that a commit's outcome is open: nobody refused it, and its
// connection may still carry it.
func unanswered(err error) bool {
	if _, answered := errors.AsType[kafka.Error](err); err == nil || answered {
		return false
	}
	return !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE)
}

// generationOver reports that this generation may commit no more.
func generationOver(err error) bool {
	return errors.Is(err, kafka.IllegalGeneration) || errors.Is(err, kafka.UnknownMemberId) || errors.Is(err, kafka.RebalanceInProgress)
}

// commitOK is the result of a commit that succeeded.
const commitOK = "ok"

// commitReason is the bounded word for a commit's result.
func commitReason(err error) string {
	switch {
	case err == nil:
		return commitOK
	case generationOver(err):
		return "generation_over"
	}
	if _, ok := errors.AsType[kafka.Error](err); ok {
		return "broker"
	}
	return "network"
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }
