package admin

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/kconsume/kconsume/admin/dlq"
)

// dlqRoutes are the paths of DLQ operations.
func (a *api) dlqRoutes(mux *http.ServeMux) {
	const (
		one     = "/v1/dlq/{topic}"
		message = one + "/messages/{partition}/{offset}"
	)
	viewer, reader, operator := dlq.RoleViewer, dlq.RoleReader, dlq.RoleOperator
	a.handle(mux, "/v1/dlq", route{get: a.summaries, role: viewer})
	a.handle(mux, one+"/groups", route{get: a.groups, role: viewer})
	a.handle(mux, one+"/messages", route{get: a.messages, role: viewer})
	a.handle(mux, message, route{get: a.message, role: viewer})
	a.handle(mux, one+"/export", route{get: a.export, role: reader, long: true})
	a.handle(mux, one+"/replay", route{post: a.replay, role: operator, long: true})
	a.handle(mux, one+"/plans", route{post: a.plan, role: operator})
	for _, action := range []dlq.Action{dlq.ActionResolve, dlq.ActionDiscard, dlq.ActionRestore} {
		a.handle(mux, message+"/"+string(action), route{post: a.act(action), role: operator})
	}
	a.handle(mux, "/v1/plans/{digest}", route{get: a.planOf, role: viewer})
	a.handle(mux, "/v1/plans/{digest}/apply", route{post: a.apply, role: operator})
	a.handle(mux, "/v1/jobs", route{get: a.jobs, role: viewer})
	a.handle(mux, "/v1/jobs/{id}", route{get: a.job, role: viewer})
	a.handle(mux, "/v1/jobs/{id}/cancel", route{post: a.cancel, role: operator})
	a.handle(mux, "/v1/audit", route{get: a.audit, role: viewer})
}

// answer writes what a call of the service brought.
func (a *api) answer(w http.ResponseWriter, status int, v any, err error) {
	if err == nil {
		a.json(w, status, v)
		return
	}
	a.refuse(w, err)
}

func (a *api) refuse(w http.ResponseWriter, err error) {
	if e, ok := errors.AsType[*requestError](err); ok {
		a.problem(w, e.status, e.text)
		return
	}
	kind := dlq.KindOf(err)
	status := kind.HTTPStatus()
	a.write(w, status, "application/problem+json", Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: err.Error(), Kind: string(kind),
	})
}

func (a *api) summaries(w http.ResponseWriter, r *http.Request) {
	all, err := a.cfg.DLQ.Summaries(r.Context())
	a.answer(w, http.StatusOK, struct {
		DLQs []dlq.Summary `json:"dlqs"`
	}{append([]dlq.Summary{}, all...)}, err)
}

func (a *api) groups(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r, "status", "limit", "cursor")
	f := dlq.Filter{Statuses: q.statuses(), Limit: q.limit(), Cursor: q.text("cursor")}
	if q.err != nil {
		a.refuse(w, q.err)
		return
	}
	page, err := a.cfg.DLQ.Groups(r.Context(), r.PathValue("topic"), f)
	a.answer(w, http.StatusOK, page, err)
}

func (a *api) messages(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r, append(selectionNames(), "limit", "cursor", "payload", "order", "earlier")...)
	ask := dlq.Query{
		Selection: q.selection(), Limit: q.limit(), Cursor: q.text("cursor"), Payload: q.flag("payload"),
		Oldest: q.choice("order", "newest", "oldest") == "oldest", Earlier: q.flag("earlier"),
	}
	if q.err == nil && ask.Payload {
		q.err = mayRead(r)
	}
	if q.err != nil {
		a.refuse(w, q.err)
		return
	}
	page, err := a.cfg.DLQ.Messages(r.Context(), r.PathValue("topic"), ask)
	a.answer(w, http.StatusOK, page, err)
}

func (a *api) message(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r, "payload", "identity")
	ref := q.ref(r)
	payload := q.flag("payload")
	if q.err == nil && payload {
		q.err = mayRead(r)
	}
	if q.err != nil {
		a.refuse(w, q.err)
		return
	}
	m, err := a.cfg.DLQ.Message(r.Context(), r.PathValue("topic"), ref, payload)
	a.answer(w, http.StatusOK, m, err)
}

// mayRead refuses payloads to those who may only see that there are records.
func mayRead(r *http.Request) error {
	actor, _ := ActorOf(r.Context())
	if !actor.Role.Includes(dlq.RoleReader) {
		return &requestError{http.StatusForbidden, "payloads need the role reader: " + actor.Name + " is " + string(actor.Role)}
	}
	return nil
}

func (a *api) export(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r, append(selectionNames(), "limit")...)
	sel := q.selection()
	sel.Limit = q.number("limit", 0, 1, dlq.MaxPlan)
	if q.err != nil {
		a.refuse(w, q.err)
		return
	}
	out := &lateHeader{w: w, kind: "application/jsonl"}
	_, err := a.cfg.DLQ.Export(r.Context(), r.PathValue("topic"), sel, out)
	switch {
	case err != nil && !out.begun:
		a.refuse(w, err)
	case err != nil:
		a.logger.Warn("an export ended early", "topic", r.PathValue("topic"), "error", err)
		panic(http.ErrAbortHandler) // the caller sees that it is cut off
	case !out.begun:
		_, _ = out.Write(nil)
	}
}

// lateHeader sends the header with the first byte: until then the answer can
// still be an error.
type lateHeader struct {
	w     http.ResponseWriter
	kind  string
	begun bool
}

func (l *lateHeader) Write(b []byte) (int, error) {
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", l.kind)
		l.w.WriteHeader(http.StatusOK)
	}
	return l.w.Write(b)
}

// replayAnswer is what the simple replay tells.
type replayAnswer struct {
	Replayed int    `json:"replayed"`
	Job      string `json:"job,omitempty"` // "" = there was nothing to do
}

func (a *api) replay(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r, "limit")
	if err := empty(r); err != nil {
		a.refuse(w, err)
		return
	}
	if q.err != nil {
		a.refuse(w, q.err)
		return
	}
	limit, err := dlq.ParseReplayLimit(q.text("limit"))
	if err == nil && q.given("limit") && q.text("limit") == "" {
		err = &requestError{http.StatusBadRequest, "limit is empty: use a whole number from 1 to " + strconv.Itoa(dlq.MaxReplay)}
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	key, err := idempotencyKey(r)
	if err != nil {
		a.refuse(w, err)
		return
	}
	actor, _ := ActorOf(r.Context())
	n, job, err := a.cfg.DLQ.Replay(r.Context(), r.PathValue("topic"), limit, key, actor)
	a.answer(w, http.StatusOK, replayAnswer{n, job.ID}, err)
}

// planRequest reads what a plan is asked for. What must be named is not taken
// for its zero: that would be all records, or the very first one.
func planRequest(r *http.Request) (dlq.PlanRequest, error) {
	var ask struct {
		dlq.PlanRequest
		Selection *struct {
			dlq.Selection
			Positions []struct {
				Partition *int32 `json:"partition"`
				Offset    *int64 `json:"offset"`
			} `json:"positions"`
		} `json:"selection"`
	}
	if err := body(r, &ask); err != nil {
		return dlq.PlanRequest{}, err
	}
	if ask.Selection == nil {
		return dlq.PlanRequest{}, badRequest("there is no selection: name the records that are meant; {} means all that the action is for")
	}
	ask.PlanRequest.Selection = ask.Selection.Selection
	for _, p := range ask.Selection.Positions {
		if p.Partition == nil || p.Offset == nil {
			return dlq.PlanRequest{}, badRequest("a position needs its partition and its offset")
		}
		ask.PlanRequest.Selection.Positions = append(ask.PlanRequest.Selection.Positions, dlq.Position{Partition: *p.Partition, Offset: *p.Offset})
	}
	return ask.PlanRequest, nil
}

func (a *api) plan(w http.ResponseWriter, r *http.Request) {
	ask, err := planRequest(r)
	if err != nil {
		a.refuse(w, err)
		return
	}
	actor, _ := ActorOf(r.Context())
	p, err := a.cfg.DLQ.Plan(r.Context(), r.PathValue("topic"), ask, actor)
	a.answer(w, http.StatusCreated, p, err)
}

func (a *api) planOf(w http.ResponseWriter, r *http.Request) {
	p, err := a.cfg.DLQ.PlanOf(r.Context(), r.PathValue("digest"))
	a.answer(w, http.StatusOK, p, err)
}

func (a *api) apply(w http.ResponseWriter, r *http.Request) {
	err := empty(r)
	var key string
	if err == nil {
		key, err = idempotencyKey(r)
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	actor, _ := ActorOf(r.Context())
	j, err := a.cfg.DLQ.Apply(r.Context(), r.PathValue("digest"), key, actor)
	a.answer(w, http.StatusAccepted, j, err)
}

// actRequest is why something is done to a record.
type actRequest struct {
	Reason string `json:"reason"`
	// Identity, if given, must be the record's own.
	Identity string `json:"identity,omitempty"`
}

func (a *api) act(action dlq.Action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := newQuery(r)
		ref := q.ref(r)
		var ask actRequest
		if q.err == nil {
			q.err = body(r, &ask)
		}
		if q.err != nil {
			a.refuse(w, q.err)
			return
		}
		ref.Identity = ask.Identity
		actor, _ := ActorOf(r.Context())
		m, err := a.cfg.DLQ.Act(r.Context(), r.PathValue("topic"), ref, action, ask.Reason, actor)
		a.answer(w, http.StatusOK, m, err)
	}
}

func (a *api) jobs(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r, "topic", "limit", "cursor")
	ask := dlq.JobQuery{Topic: q.text("topic"), Limit: q.limit(), Cursor: q.text("cursor")}
	if q.err != nil {
		a.refuse(w, q.err)
		return
	}
	page, err := a.cfg.DLQ.Jobs(r.Context(), ask)
	a.answer(w, http.StatusOK, page, err)
}

func (a *api) job(w http.ResponseWriter, r *http.Request) {
	j, err := a.cfg.DLQ.Job(r.Context(), r.PathValue("id"))
	a.answer(w, http.StatusOK, j, err)
}

func (a *api) cancel(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Reason string `json:"reason"`
	}
	if err := body(r, &ask); err != nil {
		a.refuse(w, err)
		return
	}
	actor, _ := ActorOf(r.Context())
	j, err := a.cfg.DLQ.Cancel(r.Context(), r.PathValue("id"), ask.Reason, actor)
	a.answer(w, http.StatusOK, j, err)
}

func (a *api) audit(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r, "topic", "actor", "action", "since", "until", "limit", "cursor")
	ask := dlq.AuditQuery{
		Topic: q.text("topic"), Actor: q.text("actor"), Action: q.text("action"),
		Since: q.time("since"), Until: q.time("until"), Limit: q.limit(), Cursor: q.text("cursor"),
	}
	if q.err != nil {
		a.refuse(w, q.err)
		return
	}
	page, err := a.cfg.DLQ.Audit(r.Context(), ask)
	a.answer(w, http.StatusOK, page, err)
}
