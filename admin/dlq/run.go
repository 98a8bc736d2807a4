package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
)

// Bounds of a chunk: what is claimed at once.
const (
	chunkRecords = 100
	chunkBytes   = 4 << 20
)

// quietTime is how long after a lease's end, or after a write whose end is not
// known, something may still arrive: longer than a write may take.
const quietTime = 15 * time.Second

var (
	errStopping  = errors.New("the daemon stops")
	errUnknown   = errors.New("whether copies were written is not known yet")
	errCancelled = errors.New("cancelled")
)

// endedError is why a job cannot go on.
type endedError struct{ note string }

func (e *endedError) Error() string { return e.note }

// runner works on one job. One goroutine uses it.
//
// A replay goes chunk by chunk, in the order of partition and offset: read the
// dead letters, note where the target ends, claim, read the log past the claims,
// send what is ours, record it as sent. A runner that begins finds what the one
// before it left: claims of this job without a record of being sent are looked
// for in the target before anything else.
type runner struct {
	q      *queue
	lease  *lease
	logger *slog.Logger
	entry  state.JobEntry // as it was at the beginning
	job    Job
	ids    []state.ID
	life   string
	next   time.Time // the rate allows no further record before

	at      int // index into ids: what lies before has been dealt with
	skipped map[string]int
	// done and unsure are what the log says, as of the last report.
	done, unsure int
}

// run works until the job has ended, ctx ends (errStopping), or something fails
// that may pass.
func (r *runner) run(ctx context.Context) error {
	r.at, r.skipped = 0, map[string]int{}
	if err := r.sameLife(ctx); err != nil {
		return r.finish(err)
	}
	if r.job.Action == ActionReplay {
		if err := r.recover(ctx); err != nil {
			return r.finish(err)
		}
	}
	for r.at < len(r.ids) {
		if err := r.mayGoOn(ctx); err != nil {
			return r.finish(err)
		}
		var err error
		if r.job.Action == ActionReplay {
			err = r.replay(ctx)
		} else {
			err = r.act(ctx)
		}
		if err == nil {
			err = r.report(ctx, "")
		}
		if err != nil {
			return r.finish(err)
		}
	}
	return r.finish(nil)
}

// mayGoOn looks for what ends a job between two chunks.
func (r *runner) mayGoOn(ctx context.Context) error {
	if ctx.Err() != nil {
		return cause(ctx)
	}
	cancelled := false
	err := r.q.log.Read(ctx, func(v *state.View) {
		e, _ := v.Job(r.lease.id)
		cancelled = e.Cancel != nil
	})
	if err == nil && cancelled {
		err = errCancelled
	}
	return err
}

// cause tells a stop from a lost lease.
func cause(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, errLost) || errors.Is(err, state.ErrStopped) {
		return err
	}
	return errStopping
}

// sameLife refuses a topic that was made anew.
func (r *runner) sameLife(ctx context.Context) error {
	sp, err := r.q.spans(ctx)
	if err != nil {
		return err
	}
	if sp.lifeText() != r.life {
		return &endedError{fmt.Sprintf("topic %s was made anew: its dead letters are others", r.q.topic)}
	}
	return nil
}

// finish ends the job, or passes on an error that does not end it.
func (r *runner) finish(why error) error {
	status, note := JobDone, ""
	var end *endedError
	switch {
	case why == nil:
	case errors.Is(why, errCancelled):
		status = JobCancelled
	case errors.As(why, &end):
		status, note = JobFailed, end.note
	default:
		return why
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*renewTime)
	defer cancel()
	if status != JobDone {
		if err := r.releaseAll(ctx); err != nil {
			return err
		}
	}
	return r.report(ctx, status, note)
}

// releaseAll frees what the job has claimed and not sent.
func (r *runner) releaseAll(ctx context.Context) error {
	return r.q.log.Update(ctx, "release", func(v *state.View) []state.Put {
		var puts []state.Put
		for _, id := range r.ids {
			if rec, ok := v.Record(id); ok && rec.Status == StatusClaimed && rec.Job == r.lease.id {
				puts = append(puts, r.put(id, &rec, state.Release, "the job ended before it was sent"))
			}
		}
		return puts[:min(len(puts), chunkRecords)]
	})
}

// report writes the job's progress, with its end if there is one.
func (r *runner) report(ctx context.Context, status JobStatus, notes ...string) error {
	if err := r.q.log.Read(ctx, r.count); err != nil {
		return err
	}
	return r.lease.write(ctx, func(j *state.Job) {
		r.job.Done, r.job.Uncertain, r.job.Skipped = r.done, r.unsure, 0
		for _, n := range r.skipped {
			r.job.Skipped += n
		}
		if status == "" {
			status = JobRunning
		}
		r.job.Status = status
		if status.Ended() {
			j.Ended = true
			r.job.Ended = time.Now().UTC()
		}
		r.job.Note = r.note(j.Cancel, notes...)
		j.Body = jobBody(r.job)
	})
}

// count reads from the log what has been done, by this runner and those before.
func (r *runner) count(v *state.View) {
	r.done, r.unsure = 0, 0
	for _, id := range r.ids {
		rec, ok := v.Record(id)
		switch {
		case !ok || rec.Job != r.lease.id:
		case r.job.Action != ActionReplay:
			if rec.Act == r.job.Action.act() {
				r.done++
			}
		case rec.Status == StatusUncertain:
			r.unsure++
		case rec.Status != StatusNew && rec.Status != StatusClaimed:
			r.done++
		}
	}
}

// note is what a person should know about the job.
func (r *runner) note(c *state.Cancel, notes ...string) string {
	var parts []string
	if c != nil && r.job.Status == JobCancelled {
		parts = append(parts, fmt.Sprintf("cancelled by %s: %s", c.By, c.Reason))
	}
	for _, n := range notes {
		if n != "" {
			parts = append(parts, n)
		}
	}
	if r.job.Status == JobCancelled || r.job.Status == JobFailed {
		verb := "were sent and stay sent"
		if r.job.Action != ActionReplay {
			verb = "were done and stay done"
		}
		parts = append(parts, fmt.Sprintf("%d of %d %s", r.done, len(r.ids), verb))
	}
	if r.unsure > 0 {
		parts = append(parts, fmt.Sprintf("%d are uncertain: see whether they were handled, then resolve or restore them", r.unsure))
	}
	for _, c := range few(counts(r.skipped)) {
		parts = append(parts, fmt.Sprintf("%d left out: %s", c.Records, c.What))
	}
	return cutText(strings.Join(parts, "; "), 4*MaxReason)
}

// put is an entry that follows a record's present one and keeps what it says.
func (r *runner) put(id state.ID, rec *state.Record, act state.Act, reason string) state.Put {
	next := rec.Rec
	next.V, next.Act, next.After, next.At, next.Daemon, next.Reason = 1, act, rec.Version, time.Now().UnixMilli(), daemonOf(r.lease.me), reason
	switch act {
	case state.Release:
		next.Status = StatusNew
	case state.Unsure:
		next.Status = StatusUncertain
	case state.Sent:
		next.Status = StatusReplayed
	}
	return state.Put{Key: id.Key(), Value: next}
}

// pace waits until the rate allows n more records, or something ends the job.
func (r *runner) pace(ctx context.Context, n int) error {
	now := time.Now()
	if wait := r.next.Sub(now); wait > 0 {
		if err := r.sleep(ctx, wait); err != nil {
			return err
		}
		now = r.next
	}
	r.next = now.Add(time.Duration(float64(n) / r.job.Rate * float64(time.Second)))
	return nil
}

func (r *runner) sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		changed := r.q.log.Changed()
		if err := r.mayGoOn(ctx); err != nil {
			return err
		}
		select {
		case <-t.C:
			return nil
		case <-changed:
		case <-ctx.Done():
			return cause(ctx)
		}
	}
}

// chunk is how many records are claimed at once: half a second's worth.
func (r *runner) chunk() int {
	if r.job.Rate <= 0 {
		return chunkRecords
	}
	return max(1, min(chunkRecords, int(math.Ceil(r.job.Rate/2))))
}

// act resolves, discards or restores the next records.
func (r *runner) act(ctx context.Context) error {
	act := r.job.Action.act()
	ids := r.ids[r.at:min(len(r.ids), r.at+chunkRecords)]
	letters, err := r.read(ctx, ids)
	if err != nil {
		return err
	}
	why := map[state.ID]string{}
	err = r.q.log.Update(ctx, string(act), func(v *state.View) []state.Put {
		clear(why)
		var puts []state.Put
		for _, id := range ids {
			rec, known := v.Record(id)
			l, there := letters[id]
			switch {
			case known && rec.Act == act && rec.Job == r.lease.id:
			case !known && !there:
				why[id] = "is expired"
			case known && !state.Legal(rec.Status, act), !known && !state.Legal(StatusNew, act):
				why[id] = "is " + string(cmp.Or(rec.Status, StatusNew))
			default:
				puts = append(puts, r.acted(id, &rec, known, l, act))
			}
		}
		return puts
	})
	if err != nil {
		return err
	}
	for _, w := range why {
		r.skipped[w]++
	}
	r.at += len(ids)
	return nil
}

// acted is what an act of a job on a record says.
func (r *runner) acted(id state.ID, rec *state.Record, known bool, l *letter, act state.Act) state.Put {
	next := state.Rec{V: 1, After: -1, Life: r.life, Group: r.q.group}
	if known {
		next.After, next.Came, next.Print = rec.Version, rec.Came, rec.Print
	}
	if l != nil {
		next.Came, next.Print = l.came, l.print
	}
	next.Act, next.At, next.Job, next.By, next.Reason, next.Daemon = act, time.Now().UnixMilli(), r.lease.id, r.job.By, r.job.Reason, daemonOf(r.lease.me)
	next.Status = map[state.Act]Status{state.Resolve: StatusResolved, state.Discard: StatusDiscarded, state.Restore: StatusNew}[act]
	return state.Put{Key: id.Key(), Value: next}
}

// read reads dead letters that are still what the plan meant.
func (r *runner) read(ctx context.Context, ids []state.ID) (map[state.ID]*letter, error) {
	sp, err := r.q.spans(ctx)
	if err != nil {
		return nil, err
	}
	if sp.lifeText() != r.life {
		return nil, &endedError{fmt.Sprintf("topic %s was made anew: its dead letters are others", r.q.topic)}
	}
	wants := make([]Position, len(ids))
	for i, id := range ids {
		wants[i] = Position{id.Partition, id.Offset}
	}
	out := map[state.ID]*letter{}
	err = r.q.at(ctx, &sp, wants, func(l *letter) { out[l.id] = l })
	return out, err
}

// leave counts records that are left out, by why.
func (r *runner) leave(why map[string]int) {
	for w, n := range why {
		r.skipped[w] += n
	}
}
