package engine

import (
	"context"
	"time"
)

// frozen guards against a member that was stopped and goes on (a suspended
// machine, SIGSTOP, a starved one): while it stood still the group may have
// given its partitions to another. Heartbeats cannot tell in time, but the
// coordinator can: nothing is delivered or forwarded until it has accepted a
// commit. The owner loop alone uses it.
//
// What was on its way to a broker or to the handler when the process froze
// cannot be called back.
type frozen struct {
	turned  time.Time // the loop's last turn
	suspect bool
	times   int // that it stood still
	askAt   time.Time
}

const (
	turnEvery   = time.Second // the loop turns at least this often
	askAgain    = 500 * time.Millisecond
	freezeParts = 3 // a turn that took more than this part of a session is a freeze
)

// step notes a turn of the loop and returns when to ask again.
func (l *loop) stepFrozen(now time.Time) time.Time {
	f := &l.frozen
	if !f.turned.IsZero() && now.Sub(f.turned) > turnEvery+l.cfg.SessionTimeout/freezeParts {
		f.suspect = true // also between two generations: the next one may be over by now
		f.times++        // an answer to what was asked before says nothing now
		l.log.Warn("this process stood still: nothing is delivered until the group confirms that its partitions are still ours",
			"for", now.Sub(f.turned).Round(time.Millisecond).String())
	}
	f.turned = now
	if !f.suspect || l.committing || l.gen == nil {
		return time.Time{}
	}
	if now.Before(f.askAt) {
		return f.askAt
	}
	f.askAt = now.Add(askAgain)
	l.committing = true // one at a time: two could arrive in the wrong order (I4)
	g, o, times := l.gen, l.committableOne(), f.times
	l.task(func(context.Context) event {
		err := g.commit(o)
		if err != nil {
			o = nil
		}
		return &confirmed{committed{gen: g, done: o, err: err}, times}
	})
	return time.Time{}
}

// committableOne is what may be committed of one partition: enough to ask the
// coordinator whether this generation still holds. What is known to be committed
// would not do: an earlier commit may have arrived without our knowing (I4).
func (l *loop) committableOne() offsets {
	o := offsets{}
	for p := range l.owned {
		if p.committed >= 0 && !p.anew {
			o.set(p.stage.Topic, p.lane.id, p.track.committable())
			return o
		}
	}
	return o
}

// confirmed is the coordinator's answer.
type confirmed struct {
	committed
	times int // that we had stood still when we asked
}

func (c *confirmed) apply(l *loop) {
	c.committed.apply(l)
	if c.err == nil && c.gen == l.gen && c.times == l.frozen.times {
		l.frozen.suspect = false
	}
}
