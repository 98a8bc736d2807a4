package dlq

import (
	"context"
	"strings"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
)

// Act resolves, discards or restores one dead letter and returns it as it is then.
func (s *Service) Act(ctx context.Context, topic string, r Ref, action Action, reason string, a Actor) (Message, error) {
	q, err := s.queueOf(topic)
	if err != nil {
		return Message{}, err
	}
	reason = strings.TrimSpace(reason)
	switch {
	case action != ActionResolve && action != ActionDiscard && action != ActionRestore:
		return Message{}, refuse(KindInvalid, "action %q: use resolve, discard or restore", string(action))
	case reason == "" || len(reason) > MaxReason:
		return Message{}, refuse(KindInvalid, "%s needs a reason of 1 to %d bytes", action, MaxReason)
	case !a.Role.Includes(RoleOperator):
		return Message{}, denied(a, RoleOperator, string(action))
	}
	sp, err := q.spans(ctx)
	if err != nil {
		return Message{}, err
	}
	l, err := q.one(ctx, &sp, r)
	if err != nil {
		return Message{}, err
	}
	if err := q.log.Sync(ctx); err != nil {
		return Message{}, unavailable(err)
	}
	st, known, _, err := q.status(ctx, l.id)
	if err != nil {
		return Message{}, err
	}
	if err := actable(r.Position, st, known, action); err != nil {
		return Message{}, err
	}
	err = s.note(ctx, q, AuditEntry{Actor: a, Action: string(action), Subject: r.Position.String(), Reason: reason, Result: "begun", Records: 1})
	if err != nil {
		return Message{}, err
	}
	if err := s.write(ctx, q, l, sp.lifeText(), action, reason, a); err != nil {
		return Message{}, err
	}
	st, known, out, err := q.status(ctx, l.id)
	return l.message(q.topic, st, known, out, false), err
}

// actable refuses an action on a record that is in a status it is not for.
func actable(p Position, r state.Record, known bool, action Action) error {
	status := StatusNew
	if known {
		status = r.Status
	}
	if state.Legal(status, action.act()) {
		return nil
	}
	switch status {
	case StatusClaimed:
		return refuse(KindConflict, "%v is claimed by job %s of %s: wait for it, or cancel it", p, r.Job, r.By)
	case StatusNew:
		return refuse(KindConflict, "%v is new: there is nothing to restore", p)
	}
	return refuse(KindConflict, "%v is %s: %s is not for that", p, status, action)
}

// write writes an action on one record, unless somebody was faster.
func (s *Service) write(ctx context.Context, q *queue, l *letter, life string, action Action, reason string, a Actor) error {
	act, now := action.act(), time.Now().UnixMilli()
	var failed error
	err := q.log.Update(ctx, string(act), func(v *state.View) []state.Put {
		rec, known := v.Record(l.id)
		if known && rec.Act == act && rec.By == a.Name && rec.At == now && rec.Daemon == s.cfg.Daemon {
			return nil
		}
		if failed = actable(l.position(), rec, known, action); failed != nil {
			return nil
		}
		after := int64(-1)
		if known {
			after = rec.Version
		}
		status := map[state.Act]Status{state.Resolve: StatusResolved, state.Discard: StatusDiscarded, state.Restore: StatusNew}[act]
		next := q.recOf(l, life, after, act, status)
		next.At, next.Daemon, next.By, next.Reason = now, s.cfg.Daemon, a.Name, reason
		return []state.Put{{Key: l.id.Key(), Value: next}}
	})
	if err != nil {
		return unavailable(err)
	}
	return failed
}

// one is the dead letter at a place, or why it cannot be had.
func (q *queue) one(ctx context.Context, sp *spans, r Ref) (*letter, error) {
	p := r.Position
	if p.Partition < 0 || p.Offset < 0 {
		return nil, refuse(KindInvalid, "position %v: partition and offset count from 0", p)
	}
	var got *letter
	if err := q.at(ctx, sp, []Position{p}, func(l *letter) { got = l }); err != nil {
		return nil, err
	}
	if got != nil && (r.Identity == "" || r.Identity == got.id.Identity) {
		return got, nil
	}
	earlier := false
	err := q.log.Read(ctx, func(v *state.View) {
		for id, rec := range v.Records {
			if id.Partition == p.Partition && id.Offset == p.Offset && rec.Life != sp.lifeText() && (r.Identity == "" || r.Identity == id.Identity) {
				earlier = true
			}
		}
	})
	switch {
	case err != nil:
		return nil, unavailable(err)
	case earlier:
		return nil, refuse(KindGone, "%v belongs to an earlier topic named %s: nothing can be done about it any more", p, q.topic)
	case got != nil:
		return nil, refuse(KindGone, "another record is at %v by now: look at it again", p)
	case int(p.Partition) < len(sp.parts) && p.Offset < sp.parts[p.Partition].Start:
		return nil, refuse(KindGone, "%v is expired: the retention of %s has deleted it", p, q.topic)
	}
	return nil, refuse(KindNotFound, "there is no dead letter of group %s at %v of %s: see the list of messages", q.group, p, q.topic)
}
