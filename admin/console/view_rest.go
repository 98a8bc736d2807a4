package console

import (
	"net/http"

	"github.com/kconsume/kconsume/admin/dlq"
)

type auditData struct {
	Page          dlq.AuditPage
	Next          string
	Topic, Action string
}

func (h *console) audit(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	d := auditData{Topic: q.Get("topic"), Action: q.Get("action")}
	var err error
	if d.Page, err = h.cfg.DLQ.Audit(r.Context(), dlq.AuditQuery{Topic: d.Topic, Action: d.Action, Cursor: q.Get("cursor")}); err != nil {
		h.fail(w, r, err)
		return
	}
	if d.Page.Cursor != "" {
		q.Set("cursor", d.Page.Cursor)
		d.Next = "?" + q.Encode()
	}
	h.show(w, http.StatusOK, "audit.html", h.view(r, "Audit", "audit", &d))
}

type systemData struct {
	Status   status
	Settings []Setting
	Roles    []roleRow
}

// roleRow is what a role allows, and whether it is the one of who looks.
type roleRow struct {
	Role   dlq.Role
	Allows string
	Has    bool
}

func (h *console) system(w http.ResponseWriter, r *http.Request) {
	s, err := h.readStatus(r.Context())
	if err != nil {
		h.fail(w, r, err)
		return
	}
	d := systemData{Status: s}
	if h.cfg.Settings != nil {
		d.Settings = h.cfg.Settings()
	}
	v := h.view(r, "System", "system", &d)
	for _, one := range []roleRow{
		{Role: dlq.RoleViewer, Allows: "numbers, groups, jobs, the audit"},
		{Role: dlq.RoleReader, Allows: "keys, values and headers; export"},
		{Role: dlq.RoleOperator, Allows: "replay, resolve, discard, restore, cancel"},
		{Role: dlq.RoleAdmin, Allows: "replay beyond the guard"},
	} {
		one.Has = v.May(string(one.Role))
		d.Roles = append(d.Roles, one)
	}
	v.Group = s.Group
	h.show(w, http.StatusOK, "system.html", v)
}

type loginData struct {
	Next   string
	Failed bool
}

func (h *console) login(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	h.show(w, http.StatusOK, "login.html", h.view(r, "Sign in", "", &loginData{q.Get("next"), q.Get("failed") != ""}))
}
