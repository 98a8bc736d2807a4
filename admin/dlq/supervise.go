package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
)

const (
	maxJobs    = 8 // of a DLQ at once in this process
	superEvery = time.Second
	retryJob   = 2 * time.Second // after something failed that may pass
	takeJitter = 2 * time.Second // so that daemons do not all take a job over at once
)

// supervisor starts the jobs that are this process' own or nobody's. One
// goroutine uses it.
type supervisor struct {
	s       *Service
	q       *queue
	running map[string]bool
	after   map[string]time.Time // not before, by job
	seen    map[string]sighting
	ended   chan string
	jobs    sync.WaitGroup
}

// sighting is when this process first saw a job's present entry.
type sighting struct {
	version int64
	at      time.Time
	jitter  time.Duration
}

// supervise runs jobs until ctx ends, and waits for them.
func (s *Service) supervise(ctx context.Context, q *queue) {
	v := &supervisor{s: s, q: q, running: map[string]bool{}, after: map[string]time.Time{}, seen: map[string]sighting{}, ended: make(chan string)}
	tick := time.NewTicker(superEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		changed := q.log.Changed()
		for _, e := range v.due(ctx) {
			v.start(ctx, e)
		}
		select {
		case <-changed:
		case <-tick.C:
		case id := <-v.ended:
			v.stopped(id)
		case <-ctx.Done():
		}
	}
	go func() { v.jobs.Wait(); close(v.ended) }()
	for id := range v.ended {
		v.stopped(id)
	}
}

func (v *supervisor) stopped(id string) {
	delete(v.running, id)
	v.after[id] = time.Now().Add(retryJob)
}

// due are the jobs to be started now.
func (v *supervisor) due(ctx context.Context) []state.JobEntry {
	short, cancel := context.WithTimeout(ctx, superEvery)
	defer cancel()
	now := time.Now()
	var due []state.JobEntry
	// What cannot be read now can be the next time; the log says why.
	_ = v.q.log.Read(short, func(view *state.View) {
		for e := range view.Jobs {
			if e.Ended {
				delete(v.seen, e.ID)
				delete(v.after, e.ID)
				continue
			}
			if e.Group == v.q.group && !v.running[e.ID] && now.After(v.after[e.ID]) && v.free(e, now) {
				due = append(due, *e)
			}
		}
	})
	return due[:min(len(due), maxJobs-len(v.running))]
}

// free reports whether a job is ours to run: it is this process' own, was given
// up, or has not been renewed for its lease's time.
func (v *supervisor) free(e *state.JobEntry, now time.Time) bool {
	if e.Runner == v.s.me || e.Runner == "" {
		return true
	}
	got, ok := v.seen[e.ID]
	if !ok || got.version != e.Version {
		v.seen[e.ID] = sighting{e.Version, now, rand.N(takeJitter)}
		return false
	}
	return now.Sub(got.at) >= time.Duration(e.Lease)*time.Millisecond+got.jitter
}

func (v *supervisor) start(ctx context.Context, e state.JobEntry) {
	v.running[e.ID] = true
	v.jobs.Go(func() {
		v.s.work(ctx, v.q, e)
		v.ended <- e.ID
	})
}

// work runs one job as long as it is ours.
func (s *Service) work(ctx context.Context, q *queue, e state.JobEntry) {
	log := s.cfg.Logger.With("job", e.ID, "topic", q.topic)
	l := newLease(q.log, s.cfg.Logger, e.ID, s.me, s.number)
	if err := s.own(ctx, q, l, &e); err != nil {
		if !errors.Is(err, errLost) && ctx.Err() == nil {
			log.Warn("a job cannot be taken over", "error", err)
		}
		return
	}
	r, err := q.runner(ctx, l, s)
	if err == nil {
		err = s.runKept(ctx, l, r)
	}
	switch {
	case err == nil:
		log.Info("a job has ended", "status", r.job.Status, "done", r.done, "records", len(r.ids))
	case errors.Is(err, errLost), errors.Is(err, state.ErrStopped):
		log.Warn("a job is not worked on any more", "error", err)
	case ctx.Err() != nil, errors.Is(err, errStopping):
		s.giveUp(l)
	default:
		log.Warn("a job cannot go on now: it is tried again", "error", err)
	}
}

// own makes sure that the job is ours, and says in the audit if it was another's.
func (s *Service) own(ctx context.Context, q *queue, l *lease, e *state.JobEntry) error {
	if e.Runner == s.me {
		return l.write(ctx, func(*state.Job) {})
	}
	actor := Actor{Name: "daemon " + s.cfg.Daemon, Via: "lease", Role: RoleOperator}
	err := s.note(ctx, q, AuditEntry{Actor: actor, Action: "take over", Subject: "job " + e.ID, Reason: "its lease has ended", Result: "begun"})
	if err != nil {
		return err
	}
	return l.take(ctx)
}

// runKept runs a job while its lease is renewed.
func (s *Service) runKept(ctx context.Context, l *lease, r *runner) error {
	work, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	var kept sync.WaitGroup
	kept.Go(func() { l.keep(keeping, lost) })
	defer kept.Wait()
	defer stop()
	err := r.run(work)
	if cause := context.Cause(work); err != nil && cause != nil && (errors.Is(cause, errLost) || errors.Is(cause, state.ErrStopped)) {
		err = cause
	}
	return err
}

// giveUp lets others go on at once.
func (s *Service) giveUp(l *lease) {
	ctx, cancel := context.WithTimeout(context.Background(), renewTime)
	defer cancel()
	if err := l.write(ctx, func(j *state.Job) { j.Runner = "" }); err != nil && !errors.Is(err, errLost) {
		s.cfg.Logger.Info("a job was not given up: others take it over when its lease ends", "job", l.id, "error", err)
	}
}

// runner reads what a job needs to go on.
func (q *queue) runner(ctx context.Context, l *lease, s *Service) (*runner, error) {
	r := &runner{q: q, lease: l, logger: s.cfg.Logger}
	var plan state.PlanEntry
	ok := false
	err := q.log.Read(ctx, func(v *state.View) {
		r.entry, _ = v.Job(l.id)
		plan, ok = v.Plan(r.entry.Digest)
	})
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(r.entry.Body, &r.job); err != nil || !ok {
		return r, r.finish(&endedError{"its plan is not kept any more: plan again"})
	}
	if r.ids, err = state.Unpack(plan.Records); err != nil {
		return r, r.finish(&endedError{err.Error()})
	}
	r.life = plan.Life
	return r, nil
}
