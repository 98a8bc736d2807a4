package engine

import (
	"context"
	"time"
)

// frozen guards against a member that was stopped and goes on (a suspended
// machine, SIGSTOP, a starved one): while it stood still the group may have
// given its partitions to another. Heartbeats cannot tell in time, but the
// coordinator can: nothing is delivered or forwarded until it has accepted a
// commit of what was committed already. The owner loop alone uses it.
//
// What was on its way to a broker or to the handler when the process froze
// cannot be called back.
type frozen struct {
	turned  time.Time // the loop's last turn
	suspect bool
	asking  bool
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
	if !f.turned.IsZero() && now.Sub(f.turned) > turnEvery+l.cfg.SessionTimeout/freezeParts && l.gen != nil && !f.suspect {
		f.suspect = true
		l.log.Warn("this process stood still: nothing is delivered until the group confirms that its partitions are still ours",
			"for", now.Sub(f.turned).Round(time.Millisecond).String())
	}
	f.turned = now
	if !f.suspect || f.asking || l.gen == nil {
		return time.Time{}
	}
	if now.Before(f.askAt) {
		return f.askAt
	}
	f.asking, f.askAt = true, now.Add(askAgain)
	g, o := l.gen, l.committedNow()
	l.task(func(context.Context) event { return &confirmed{g, g.commit(o)} })
	return time.Time{}
}

// committedNow are the offsets that are committed, of one partition: enough to
// ask the coordinator whether this generation still holds.
func (l *loop) committedNow() offsets {
	o := offsets{}
	for p := range l.owned {
		if p.committed >= 0 {
			o.set(p.stage.Topic, p.lane.id, p.committed)
			return o
		}
	}
	return o
}

// confirmed is the coordinator's answer.
type confirmed struct {
	gen *generation
	err error
}

func (c *confirmed) apply(l *loop) {
	l.frozen.asking = false
	if c.err == nil && c.gen == l.gen {
		l.frozen.suspect = false
	}
}
