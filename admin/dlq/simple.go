package dlq

import (
	"context"
)

// Replay sends the oldest new dead letters again, by partition and offset, and
// returns when that is done: how many were sent, by which job. The job goes on
// when ctx ends. limit is 1 to MaxReplay.
func (s *Service) Replay(ctx context.Context, topic string, limit int, idempotencyKey string, a Actor) (int, Job, error) {
	q, err := s.queueOf(topic)
	switch {
	case err != nil:
		return 0, Job{}, err
	case limit < 1 || limit > MaxReplay:
		return 0, Job{}, refuse(KindInvalid, "limit %d: use a whole number from 1 to %d", limit, MaxReplay)
	case !a.Role.Includes(RoleOperator):
		return 0, Job{}, denied(a, RoleOperator, "a replay")
	}
	if err := checkKey(idempotencyKey); err != nil {
		return 0, Job{}, err
	}
	j, ok, err := Job{}, false, error(nil)
	if idempotencyKey != "" {
		if j, ok, err = s.jobOfKey(ctx, idempotencyKey); err != nil {
			return 0, Job{}, err
		}
		if ok && (j.Topic != topic || j.Action != ActionReplay) {
			return 0, j, refuse(KindConflict, "the Idempotency-Key belongs to job %s, which is another request: use another key", j.ID)
		}
	}
	if !ok {
		if j, err = s.replayNew(ctx, q, limit, idempotencyKey, a); err != nil || j.ID == "" {
			return 0, j, err
		}
	}
	j, err = q.awaitJob(ctx, j.ID)
	if err == nil && j.Done == 0 && j.Status != JobDone {
		err = refuse(KindConflict, "nothing was sent: job %s %s: %s", j.ID, j.Status, j.Note)
	}
	if err == nil && j.Done == 0 && j.Records > 0 {
		err = refuse(KindConflict, "nothing was sent: %s: see job %s", j.Note, j.ID)
	}
	return j.Done, j, err
}

// replayNew plans and begins a simple replay. A job without an id says that
// there is nothing to send.
func (s *Service) replayNew(ctx context.Context, q *queue, limit int, key string, a Actor) (Job, error) {
	m, err := s.make(ctx, q, PlanRequest{Action: ActionReplay, Selection: Selection{Limit: limit}, Rate: DefaultRate}, a)
	if err != nil || m.plan.Records == 0 {
		return Job{}, err
	}
	if err := s.keepPlan(ctx, q, m); err != nil {
		return Job{}, err
	}
	return s.begin(ctx, q, &m.plan, jobID(q.group, key, m.plan.Digest), key != "", a)
}
