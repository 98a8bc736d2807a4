package console

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/kconsume/kconsume/admin/dlq"
)

// plan makes a plan of a form and shows it: nothing is done yet.
func (h *console) plan(w http.ResponseWriter, r *http.Request) {
	topic := r.PathValue("topic")
	req, err := planOf(r)
	if err == nil {
		err = h.allowed(r, dlq.RoleOperator)
	}
	var p dlq.Plan
	if err == nil {
		actor, _ := h.cfg.ActorOf(r.Context())
		p, err = h.cfg.DLQ.Plan(r.Context(), topic, req, actor)
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	http.Redirect(w, r, "/plans/"+url.PathEscape(p.Digest), http.StatusSeeOther)
}

// planOf reads the form of a plan: its filter, or the records that were ticked.
func planOf(r *http.Request) (dlq.PlanRequest, error) {
	if err := r.ParseForm(); err != nil {
		return dlq.PlanRequest{}, &dlq.Error{Kind: dlq.KindInvalid, Text: "the form cannot be read: go back and try again"}
	}
	sel, err := readFilter(r.PostForm).selection()
	if err != nil {
		return dlq.PlanRequest{}, err
	}
	if ticked := r.PostForm["position"]; len(ticked) > 0 {
		sel = dlq.Selection{}
		for _, text := range ticked {
			at, err := dlq.ParsePosition(text)
			if err != nil {
				return dlq.PlanRequest{}, err
			}
			sel.Positions = append(sel.Positions, at)
		}
	}
	req := dlq.PlanRequest{
		Action: dlq.Action(r.PostFormValue("action")), Selection: sel, Target: r.PostFormValue("target"),
		Canary: r.PostFormValue("canary") != "", Force: r.PostFormValue("force") != "", Reason: r.PostFormValue("reason"),
	}
	for _, n := range []struct {
		name string
		set  func(float64)
	}{{"limit", func(f float64) { req.Selection.Limit = int(f) }}, {"rate", func(f float64) { req.Rate = f }}} {
		text := r.PostFormValue(n.name)
		if text == "" {
			continue
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || f < 0 || f > 1<<31 {
			return req, &dlq.Error{Kind: dlq.KindInvalid, Text: n.name + " " + strconv.Quote(text) + ": write a number"}
		}
		n.set(f)
	}
	return req, nil
}

func (h *console) showPlan(w http.ResponseWriter, r *http.Request) {
	p, err := h.cfg.DLQ.PlanOf(r.Context(), r.PathValue("digest"))
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.show(w, http.StatusOK, "plan.html", h.view(r, "Plan", p.Topic, &p))
}

// apply begins what a plan says. A second press of the button is the same job:
// the plan's digest is the key.
func (h *console) apply(w http.ResponseWriter, r *http.Request) {
	digest := r.PathValue("digest")
	err := h.allowed(r, dlq.RoleOperator)
	var j dlq.Job
	if err == nil {
		actor, _ := h.cfg.ActorOf(r.Context())
		j, err = h.cfg.DLQ.Apply(r.Context(), digest, "console-"+digest, actor)
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	http.Redirect(w, r, "/jobs/"+url.PathEscape(j.ID), http.StatusSeeOther)
}

type jobsData struct {
	Page dlq.JobPage
	Next string
}

func (h *console) jobs(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	page, err := h.cfg.DLQ.Jobs(r.Context(), dlq.JobQuery{Cursor: q.Get("cursor")})
	if err != nil {
		h.fail(w, r, err)
		return
	}
	d := jobsData{Page: page}
	if page.Cursor != "" {
		q.Set("cursor", page.Cursor)
		d.Next = "?" + q.Encode()
	}
	v := h.view(r, "Jobs", "jobs", &d)
	v.Refresh = 5
	h.show(w, http.StatusOK, "jobs.html", v)
}

type jobData struct {
	dlq.Job
	Percent  int
	ETA      time.Duration // 0 = not known
	MayStop  bool
	WhyNot   string
	Pending  int // sent, and how it ended is not known
	Outcomes bool
}

func (h *console) job(w http.ResponseWriter, r *http.Request) {
	j, err := h.cfg.DLQ.Job(r.Context(), r.PathValue("id"))
	if err != nil {
		h.fail(w, r, err)
		return
	}
	d := jobData{Job: j, Outcomes: j.Action == dlq.ActionReplay, Pending: max(0, j.Done-j.Succeeded-j.Failed-j.Skipped-j.Uncertain)}
	if j.Records > 0 {
		d.Percent = 100 * j.Done / j.Records
	}
	if took := time.Since(j.Began); j.Done > 0 && !j.Status.Ended() {
		d.ETA = time.Duration(float64(took) / float64(j.Done) * float64(j.Records-j.Done)).Round(time.Second)
	}
	v := h.view(r, "Job "+j.ID, "jobs", &d)
	if d.MayStop = v.May(string(dlq.RoleOperator)); !d.MayStop {
		d.WhyNot = "needs the role operator"
	}
	if !j.Status.Ended() || d.Outcomes && d.Pending > 0 {
		v.Refresh = 1
	}
	h.show(w, http.StatusOK, "job.html", v)
}

func (h *console) cancel(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	err := h.allowed(r, dlq.RoleOperator)
	if err == nil {
		actor, _ := h.cfg.ActorOf(r.Context())
		_, err = h.cfg.DLQ.Cancel(r.Context(), id, r.PostFormValue("reason"), actor)
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	http.Redirect(w, r, "/jobs/"+url.PathEscape(id)+"?done=cancel", http.StatusSeeOther)
}
