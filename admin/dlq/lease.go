package dlq

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
)

// Times of a lease. Whoever holds it sends nothing once leaseUse has passed
// since it began the last renewal that counted; others wait for leaseTime.
const (
	leaseTime  = 20 * time.Second
	leaseUse   = 15 * time.Second
	renewEvery = 5 * time.Second
	renewTime  = 5 * time.Second // that one renewal may take
)

// errLost is that another daemon has the job now.
var errLost = errors.New("another daemon has taken the job over")

// lease is the right to work on a job. It is safe for concurrent use.
type lease struct {
	log    *state.Log
	logger *slog.Logger
	id     string // the job's
	me     string // this process

	next func() int64 // numbers for this process' entries

	turn chan struct{} // holds one token: whose turn it is to write

	mu   sync.Mutex
	sure time.Time // when the last renewal that counted was begun
}

func newLease(log *state.Log, logger *slog.Logger, id, me string, next func() int64) *lease {
	l := &lease{log: log, logger: logger, id: id, me: me, next: next, turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l
}

// begin waits for the turn to write; end gives it on.
func (l *lease) begin(ctx context.Context) (end func(), err error) {
	select {
	case <-l.turn:
		return func() { l.turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// write changes the job's entry, which renews the lease. errLost says that it is
// another's, or has ended.
func (l *lease) write(ctx context.Context, change func(*state.Job)) error {
	end, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	seq := l.next()
	began, lost := time.Now(), false
	err = l.log.Update(ctx, "job", func(v *state.View) []state.Put {
		j, ok := v.Job(l.id)
		switch {
		case !ok:
			lost = true
			return nil
		case j.Writer == l.me && j.Seq == seq:
			return nil
		case j.Runner != l.me || j.Ended:
			lost = true
			return nil
		}
		began = time.Now()
		next := j.Job
		change(&next)
		next.V, next.After, next.Writer, next.Seq = 1, j.Version, l.me, seq
		return []state.Put{{Key: "job/" + l.id, Value: next}}
	})
	if err == nil && lost {
		err = errLost
	}
	if err == nil {
		l.confirm(began)
	}
	return err
}

// take takes the job over, or reports errLost if somebody else was faster.
func (l *lease) take(ctx context.Context) error {
	end, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	began, mine, wrote := time.Now(), false, false
	err = l.log.Update(ctx, "take", func(v *state.View) []state.Put {
		j, ok := v.Job(l.id)
		if mine = ok && j.Runner == l.me && !j.Ended; mine || !ok || j.Ended || wrote {
			return nil
		}
		wrote, began = true, time.Now()
		next := j.Job
		next.V, next.After, next.Runner, next.Writer, next.Seq = 1, j.Version, l.me, l.me, l.next()
		return []state.Put{{Key: "job/" + l.id, Value: next}}
	})
	if err == nil && !mine {
		err = errLost
	}
	if err == nil {
		l.confirm(began)
	}
	return err
}

func (l *lease) confirm(began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sure = began
}

// holds reports whether something may be sent now, by the clock that runs on and
// by the wall's, so that a host that slept notices.
func (l *lease) holds() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	wall := now.Round(0).Sub(l.sure.Round(0))
	return !l.sure.IsZero() && now.Sub(l.sure) < leaseUse && wall < leaseUse && wall > -leaseUse
}

// keep renews the lease until ctx ends, and ends work once it is lost.
func (l *lease) keep(ctx context.Context, lost context.CancelCauseFunc) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		one, cancel := context.WithTimeout(ctx, renewTime)
		err := l.write(one, func(*state.Job) {})
		cancel()
		switch {
		case errors.Is(err, errLost), errors.Is(err, state.ErrStopped):
			lost(err)
			return
		case err != nil && ctx.Err() == nil:
			l.logger.Warn("the lease of a job could not be renewed", "job", l.id, "error", err)
		}
	}
}
