package dlq

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
)

// jobID is the id of the job that an Idempotency-Key, or else a plan, begins.
func jobID(group, key, digest string) string {
	text := "plan\x00" + group + "\x00" + digest
	if key != "" {
		text = "key\x00" + group + "\x00" + key
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:10])
}

// jobOf is a job as it is shown.
func jobOf(v *state.View, e *state.JobEntry) Job {
	var j Job
	if json.Unmarshal(e.Body, &j) != nil {
		j.Note = "another version wrote this job: it cannot be shown"
	}
	t := v.Tally(e.ID)
	j.ID, j.Digest, j.Succeeded, j.Failed = e.ID, e.Digest, t.Succeeded, t.FailedAgain
	j.Runner = daemonOf(e.Runner)
	if e.Cancel != nil && !e.Ended {
		j.Note = "is being cancelled by " + e.Cancel.By
	}
	return j
}

// daemonOf is the daemon's name in a process' name.
func daemonOf(process string) string {
	if i := strings.LastIndexByte(process, '#'); i >= 0 {
		return process[:i]
	}
	return process
}

// jobBody is a job as it is written.
func jobBody(j Job) json.RawMessage {
	j.ID, j.Digest, j.Runner, j.Succeeded, j.Failed = "", "", "", 0, 0 // known otherwise
	b, err := json.Marshal(j)
	if err != nil {
		return json.RawMessage("{}") // numbers, texts and times only
	}
	return b
}

// job is one job of this queue, false if there is none.
func (q *queue) job(ctx context.Context, id string) (j Job, e state.JobEntry, ok bool, err error) {
	err = q.log.Read(ctx, func(v *state.View) {
		if e, ok = v.Job(id); ok && e.Group == q.group {
			j = jobOf(v, &e)
		} else {
			ok = false
		}
	})
	return j, e, ok, unavailableOrNil(err)
}

// Jobs is a page of jobs.
func (s *Service) Jobs(ctx context.Context, query JobQuery) (JobPage, error) {
	limit, err := pageLimit(query.Limit)
	if err != nil {
		return JobPage{}, err
	}
	var at struct {
		Began int64
		ID    string
	}
	if err := readCursor(query.Cursor, &at); err != nil {
		return JobPage{}, err
	}
	qs, err := s.queuesOf(query.Topic)
	if err != nil {
		return JobPage{}, err
	}
	page := JobPage{Jobs: []Job{}}
	for _, q := range qs {
		err := q.log.Read(ctx, func(v *state.View) {
			for e := range v.Jobs {
				if e.Group != q.group {
					continue
				}
				j := jobOf(v, e)
				if began := j.Began.UnixMilli(); query.Cursor == "" || began < at.Began || began == at.Began && j.ID > at.ID {
					page.Jobs = append(page.Jobs, j)
				}
			}
		})
		if err != nil {
			return JobPage{}, unavailable(err)
		}
	}
	slices.SortFunc(page.Jobs, func(a, b Job) int {
		return cmp.Or(cmp.Compare(b.Began.UnixMilli(), a.Began.UnixMilli()), cmp.Compare(a.ID, b.ID))
	})
	if len(page.Jobs) > limit {
		page.Jobs = page.Jobs[:limit]
		last := page.Jobs[limit-1]
		at.Began, at.ID = last.Began.UnixMilli(), last.ID
		page.Cursor = cursorOf(at)
	}
	return page, nil
}

// Job is one job.
func (s *Service) Job(ctx context.Context, id string) (Job, error) {
	_, j, err := s.findJob(ctx, id)
	return j, err
}

// findJob looks twice: another daemon may have begun it a moment ago.
func (s *Service) findJob(ctx context.Context, id string) (*queue, Job, error) {
	for _, late := range []bool{false, true} {
		for _, q := range s.queues {
			if late {
				if err := q.log.Sync(ctx); err != nil {
					return nil, Job{}, unavailable(err)
				}
			}
			j, _, ok, err := q.job(ctx, id)
			if err != nil {
				return nil, Job{}, err
			}
			if ok {
				return q, j, nil
			}
		}
	}
	return nil, Job{}, refuse(KindNotFound, "there is no job %.64q: see the list of jobs", id)
}

// cancelWait is how long Cancel waits for the job's end.
const cancelWait = 3 * time.Second

// Cancel ends a job: nothing more is sent; its Note says what was.
func (s *Service) Cancel(ctx context.Context, id, reason string, a Actor) (Job, error) {
	reason = strings.TrimSpace(reason)
	q, j, err := s.findJob(ctx, id)
	switch {
	case err != nil:
		return Job{}, err
	case reason == "" || len(reason) > MaxReason:
		return Job{}, refuse(KindInvalid, "cancelling a job needs a reason of 1 to %d bytes", MaxReason)
	case !a.Role.Includes(RoleOperator):
		return Job{}, denied(a, RoleOperator, "cancelling a job")
	case j.By != a.Name && !a.Role.Includes(RoleAdmin):
		return Job{}, denied(a, RoleAdmin, "cancelling a job of "+j.By)
	case j.Status.Ended():
		return j, refuse(KindConflict, "job %s is %s already: see its note", id, j.Status)
	}
	if err := s.note(ctx, q, AuditEntry{Actor: a, Action: "cancel", Subject: id, Reason: reason, Result: "begun", Records: j.Records}); err != nil {
		return j, err
	}
	err = q.log.Update(ctx, "cancel", func(v *state.View) []state.Put {
		e, ok := v.Job(id)
		if !ok || e.Ended || e.Cancel != nil {
			return nil
		}
		next := e.Job
		next.V, next.After, next.Writer, next.Seq = 1, e.Version, s.me, s.number()
		next.Cancel = &state.Cancel{By: a.Name, Reason: reason, At: time.Now().UnixMilli()}
		return []state.Put{{Key: "job/" + id, Value: next}}
	})
	if err != nil {
		return j, unavailable(err)
	}
	wait, cancel := context.WithTimeout(ctx, cancelWait)
	defer cancel()
	j, err = q.awaitJob(wait, id)
	if err != nil && ctx.Err() == nil {
		err = nil // it ends a little later
	}
	return j, err
}

// awaitJob waits until a job has ended. It returns the job as it is in any case.
func (q *queue) awaitJob(ctx context.Context, id string) (Job, error) {
	var last Job
	for {
		changed := q.log.Changed()
		j, _, ok, err := q.job(ctx, id)
		if err != nil {
			return last, err
		}
		if !ok {
			return last, refuse(KindGone, "job %s is not kept any more", id)
		}
		if last = j; j.Status.Ended() {
			return j, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return last, refuse(KindUnavailable, "job %s goes on: ask for it again: %w", id, context.Cause(ctx))
		}
	}
}

func denied(a Actor, least Role, what string) error {
	return refuse(KindDenied, "%s is for the role %s, and %s has %s: ask one who has it", what, least, a.Name, cmp.Or(string(a.Role), "none"))
}
