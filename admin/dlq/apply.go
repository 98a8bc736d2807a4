package dlq

import (
	"context"
	"encoding/json"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
)

// maxKey bounds an Idempotency-Key, in bytes.
const maxKey = 256

// Plan says what an action would do, and does nothing.
func (s *Service) Plan(ctx context.Context, topic string, r PlanRequest, a Actor) (Plan, error) {
	q, err := s.queueOf(topic)
	if err != nil {
		return Plan{}, err
	}
	if !a.Role.Includes(RoleOperator) {
		return Plan{}, denied(a, RoleOperator, "a plan")
	}
	m, err := s.make(ctx, q, r, a)
	if err != nil {
		return Plan{}, err
	}
	return m.plan, s.keepPlan(ctx, q, m)
}

// made is a plan and what it is about.
type made struct {
	plan   Plan
	life   string
	salt   string
	chosen chosen
}

// make makes a plan and writes nothing.
func (s *Service) make(ctx context.Context, q *queue, r PlanRequest, a Actor) (*made, error) {
	if err := r.normalise(a); err != nil {
		return nil, err
	}
	target, err := targetOf(&r, &q.line, s.cfg.Lines)
	if err != nil {
		return nil, err
	}
	sp, err := q.spans(ctx)
	if err != nil {
		return nil, err
	}
	if err := q.log.Sync(ctx); err != nil {
		return nil, unavailable(err)
	}
	c, scan, err := q.choose(ctx, &sp, &r)
	if err != nil {
		return nil, err
	}
	handler := ""
	if s.cfg.HandlerVersion != nil {
		handler = s.cfg.HandlerVersion()
	}
	m := &made{plan: c.plan(q.topic, target, handler, r, a, time.Now(), scan), life: sp.lifeText(), chosen: c}
	m.plan.Digest = c.digest(m.life, q.group, target, "", &r)
	err = q.log.Read(ctx, func(v *state.View) { m.fresh(v, q.group) })
	return m, unavailableOrNil(err)
}

// fresh gives the plan another digest where the one it has belongs to a plan
// that was applied and did nothing.
func (m *made) fresh(v *state.View, group string) {
	for {
		p, ok := v.Plan(m.plan.Digest)
		if !ok || p.Applied == "" {
			return
		}
		if j, ok := v.Job(p.Applied); ok && !j.Ended {
			return
		}
		m.salt += p.Applied[:min(8, len(p.Applied))]
		m.plan.Digest = m.chosen.digest(m.life, group, m.plan.Target, m.salt, &m.plan.Request)
	}
}

// keepPlan writes a plan into the state. One that was made before and is not
// applied yet begins its hour anew.
func (s *Service) keepPlan(ctx context.Context, q *queue, m *made) error {
	body, err := json.Marshal(m.plan)
	if err != nil {
		return unavailable(err)
	}
	wrote := false
	return unavailableOrNil(q.log.Update(ctx, "plan", func(v *state.View) []state.Put {
		p, ok := v.Plan(m.plan.Digest)
		if ok && (p.Applied != "" || wrote || p.Expires >= m.plan.Expires.UnixMilli()) {
			return nil
		}
		wrote = ok
		return []state.Put{{Key: "plan/" + m.plan.Digest, Value: state.Plan{
			V: 1, After: p.Version, Life: m.life, Group: q.group, Expires: m.plan.Expires.UnixMilli(), Salt: m.salt, Body: body,
			Records: state.Pack(m.chosen.ids()),
		}}}
	}))
}

// PlanOf is a plan that was made before; it is gone after an hour.
func (s *Service) PlanOf(ctx context.Context, digest string) (Plan, error) {
	_, p, _, err := s.findPlan(ctx, digest)
	return p, err
}

// findPlan looks twice: another daemon may have made it a moment ago.
func (s *Service) findPlan(ctx context.Context, digest string) (*queue, Plan, state.PlanEntry, error) {
	for _, late := range []bool{false, true} {
		for _, q := range s.queues {
			if late {
				if err := q.log.Sync(ctx); err != nil {
					return nil, Plan{}, state.PlanEntry{}, unavailable(err)
				}
			}
			var e state.PlanEntry
			var ok bool
			if err := q.log.Read(ctx, func(v *state.View) { e, ok = v.Plan(digest) }); err != nil {
				return nil, Plan{}, e, unavailable(err)
			}
			if !ok || e.Group != q.group {
				continue
			}
			var p Plan
			if err := json.Unmarshal(e.Body, &p); err != nil {
				return nil, p, e, refuse(KindGone, "plan %.64s was made by another version: plan again: %w", digest, err)
			}
			return q, p, e, nil
		}
	}
	return nil, Plan{}, state.PlanEntry{}, refuse(KindNotFound, "there is no plan %.64q: plans are kept for %v: plan again", digest, planLife)
}

// Apply begins what a plan says, and returns its job at once. With the key of
// an earlier call it is that call's job; without one a plan can be applied once.
func (s *Service) Apply(ctx context.Context, digest, idempotencyKey string, a Actor) (Job, error) {
	if err := checkKey(idempotencyKey); err != nil {
		return Job{}, err
	}
	if !a.Role.Includes(RoleOperator) {
		return Job{}, denied(a, RoleOperator, "applying a plan")
	}
	if idempotencyKey != "" { // its plan may be gone by now
		if j, ok, err := s.jobOfKey(ctx, idempotencyKey); err != nil || ok {
			if ok && j.Digest != digest {
				err = refuse(KindConflict, "the Idempotency-Key belongs to job %s of another plan: use another key", j.ID)
			}
			return j, err
		}
	}
	q, p, e, err := s.findPlan(ctx, digest)
	if err != nil {
		return Job{}, err
	}
	id := jobID(q.group, idempotencyKey, digest)
	if e.Applied != "" && e.Applied != id {
		return Job{}, refuse(KindConflict, "plan %s is applied already, by job %s: plan again", digest, e.Applied)
	}
	if j, _, ok, err := q.job(ctx, id); err != nil || ok {
		if ok && idempotencyKey == "" {
			err = refuse(KindConflict, "plan %s is applied already, by job %s: plan again", digest, id)
		}
		return j, err
	}
	if err := s.stillTrue(ctx, q, &p, &e, a); err != nil {
		// What is not true any more may be this very call's doing, which came
		// by another daemon: its job stands in the log before its claims.
		if j, _, ok, again := q.job(ctx, id); again == nil && ok && idempotencyKey != "" {
			return j, nil
		}
		return Job{}, err
	}
	return s.begin(ctx, q, &p, id, idempotencyKey != "", a)
}

func checkKey(key string) error {
	if len(key) > maxKey {
		return refuse(KindInvalid, "the Idempotency-Key has %d bytes: use %d at most", len(key), maxKey)
	}
	return nil
}

// jobOfKey is the job that an Idempotency-Key began.
func (s *Service) jobOfKey(ctx context.Context, key string) (Job, bool, error) {
	for _, q := range s.queues {
		if j, _, ok, err := q.job(ctx, jobID(q.group, key, "")); err != nil || ok {
			return j, ok, err
		}
	}
	return Job{}, false, nil
}

// stillTrue makes the plan again and compares.
func (s *Service) stillTrue(ctx context.Context, q *queue, p *Plan, e *state.PlanEntry, a Actor) error {
	if time.Now().UnixMilli() >= e.Expires {
		return refuse(KindGone, "plan %s is older than %v: plan again", p.Digest, planLife)
	}
	if p.Records == 0 {
		return refuse(KindConflict, "plan %s has no records: there is nothing to do", p.Digest)
	}
	sp, err := q.spans(ctx)
	if err != nil {
		return err
	}
	if sp.lifeText() != e.Life {
		return refuse(KindConflict, "topic %s was made anew since the plan: plan again", q.topic)
	}
	r := p.Request
	if err := r.normalise(a); err != nil {
		return err
	}
	if err := q.log.Sync(ctx); err != nil {
		return unavailable(err)
	}
	now, _, err := q.choose(ctx, &sp, &r)
	if err != nil {
		return err
	}
	if now.digest(e.Life, q.group, p.Target, e.Salt, &r) == p.Digest {
		return nil
	}
	ids, err := state.Unpack(e.Records)
	if err != nil {
		return refuse(KindGone, "plan %s: %w", p.Digest, err)
	}
	return outdated(p.Digest, ids, &now)
}

// begin begins a plan's job, one at a time in this process: of two requests at
// once the second must see what the first did.
func (s *Service) begin(ctx context.Context, q *queue, p *Plan, id string, keyed bool, a Actor) (Job, error) {
	select {
	case <-q.beginning:
		defer func() { q.beginning <- struct{}{} }()
	case <-ctx.Done():
		return Job{}, unavailable(context.Cause(ctx))
	}
	applied := refuse(KindConflict, "plan %s is applied already, by job %s: plan again", p.Digest, id)
	j, _, ok, err := q.job(ctx, id)
	switch {
	case err != nil:
		return Job{}, err
	case ok && keyed:
		return j, nil
	case ok:
		return j, applied
	}
	err = s.note(ctx, q, AuditEntry{
		Actor: a, Action: string(p.Request.Action), Subject: "plan " + p.Digest + " as job " + id, Reason: p.Request.Reason, Result: "begun", Records: p.Records,
	})
	if err != nil {
		return Job{}, err
	}
	if err := q.markApplied(ctx, p.Digest, id); err != nil {
		return Job{}, err
	}
	mine, err := s.writeJob(ctx, q, p, id, a)
	if err != nil {
		return Job{}, err
	}
	if j, _, _, err = q.job(ctx, id); err == nil && !mine && !keyed {
		err = applied
	}
	return j, err
}

// markApplied says in a plan which job does it, if none does yet.
func (q *queue) markApplied(ctx context.Context, digest, id string) error {
	applied := ""
	err := q.log.Update(ctx, "apply", func(v *state.View) []state.Put {
		e, ok := v.Plan(digest)
		if applied = e.Applied; !ok || applied != "" {
			return nil
		}
		next := e.Plan
		next.V, next.After, next.Applied = 1, e.Version, id
		return []state.Put{{Key: "plan/" + digest, Value: next}}
	})
	switch {
	case err != nil:
		return unavailable(err)
	case applied == "":
		return refuse(KindGone, "plan %s is not kept any more: plan again", digest)
	case applied != id:
		return refuse(KindConflict, "plan %s is applied already, by job %s: plan again", digest, applied)
	}
	return nil
}

// writeJob writes a new job, which the supervisor sees and starts. mine is false
// where another daemon was faster.
func (s *Service) writeJob(ctx context.Context, q *queue, p *Plan, id string, a Actor) (mine bool, err error) {
	j := Job{
		Topic: q.topic, Action: p.Request.Action, Target: p.Target, Status: JobRunning, Reason: p.Request.Reason, By: a.Name,
		Began: time.Now().UTC(), Records: p.Records, Rate: p.Request.Rate, Canary: p.Request.Canary,
	}
	wrote := false
	err = q.log.Update(ctx, "begin", func(v *state.View) []state.Put {
		if e, ok := v.Job(id); ok {
			mine = wrote && e.Origin == s.me
			return nil
		}
		wrote = true
		return []state.Put{{Key: "job/" + id, Value: state.Job{
			V: 1, After: -1, Group: q.group, Digest: p.Digest, Origin: s.me, Runner: s.me, Writer: s.me, Seq: s.number(), Lease: leaseTime.Milliseconds(), Body: jobBody(j),
		}}}
	})
	return mine, unavailableOrNil(err)
}
