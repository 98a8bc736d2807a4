package console

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kconsume/kconsume/admin/dlq"
)

type groupsData struct {
	Topic   string
	Summary *dlq.Summary
	Page    dlq.GroupPage
	Open    bool // only those with an open record are shown
	Next    string
	Peak    int64 // the highest bar of all sparklines
}

func (h *console) groups(w http.ResponseWriter, r *http.Request) {
	d := groupsData{Topic: r.PathValue("topic"), Open: r.URL.Query().Get("all") == ""}
	f := dlq.Filter{Cursor: r.URL.Query().Get("cursor")}
	if d.Open {
		for _, s := range dlq.Statuses() {
			if s.Open() {
				f.Statuses = append(f.Statuses, s)
			}
		}
	}
	var err error
	if d.Page, err = h.cfg.DLQ.Groups(r.Context(), d.Topic, f); err != nil {
		h.fail(w, r, err)
		return
	}
	if all, err := h.cfg.DLQ.Summaries(r.Context()); err == nil {
		if i := slices.IndexFunc(all, func(s dlq.Summary) bool { return s.Topic == d.Topic }); i >= 0 {
			d.Summary = &all[i]
		}
	}
	for _, g := range d.Page.Groups {
		d.Peak = max(d.Peak, slices.Max(g.Spark[:]))
	}
	if d.Page.Cursor != "" {
		q := r.URL.Query()
		q.Set("cursor", d.Page.Cursor)
		d.Next = "?" + q.Encode()
	}
	v := h.view(r, d.Topic, d.Topic, &d)
	v.Refresh = 10
	h.show(w, http.StatusOK, "groups.html", v)
}

type messagesData struct {
	Topic  string
	Page   dlq.MessagePage
	Filter filter
	Next   string
	Group  *dlq.Group // where one fingerprint is shown
}

// filter is a selection as a form has it.
type filter struct {
	Status, Fingerprint, Class, Handler, Key string
	HasKey                                   bool
}

// Active reports whether anything is left out.
func (f filter) Active() bool { return f != filter{} }

func readFilter(q url.Values) filter {
	return filter{
		Status: q.Get("status"), Fingerprint: q.Get("fingerprint"), Class: q.Get("class"),
		Handler: strings.TrimSpace(q.Get("handler")), Key: q.Get("key"), HasKey: q.Get("key") != "",
	}
}

func (f filter) selection() (dlq.Selection, error) {
	s := dlq.Selection{Fingerprint: f.Fingerprint, Class: f.Class, Handler: f.Handler}
	if f.HasKey {
		s.Key = &f.Key
	}
	if f.Status != "" {
		if !slices.Contains(dlq.Statuses(), dlq.Status(f.Status)) {
			return s, &dlq.Error{Kind: dlq.KindInvalid, Text: "status " + strconv.Quote(f.Status) + ": choose one of the list"}
		}
		s.Statuses = []dlq.Status{dlq.Status(f.Status)}
	}
	return s, nil
}

func (h *console) messages(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	d := messagesData{Topic: r.PathValue("topic"), Filter: readFilter(q)}
	sel, err := d.Filter.selection()
	if err == nil {
		d.Page, err = h.cfg.DLQ.Messages(r.Context(), d.Topic, dlq.Query{Selection: sel, Cursor: q.Get("cursor"), Earlier: q.Get("earlier") != ""})
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	if d.Page.Cursor != "" {
		q.Set("cursor", d.Page.Cursor)
		d.Next = "?" + q.Encode()
	}
	if d.Filter.Fingerprint != "" {
		d.Group = h.groupOf(r, d.Topic, d.Filter.Fingerprint)
	}
	h.show(w, http.StatusOK, "messages.html", h.view(r, "Messages of "+d.Topic, d.Topic, &d))
}

// groupOf is one of the first groups; nil = it is not among them.
func (h *console) groupOf(r *http.Request, topic, fingerprint string) *dlq.Group {
	page, err := h.cfg.DLQ.Groups(r.Context(), topic, dlq.Filter{Limit: dlq.MaxPage})
	if err != nil {
		return nil // the page is whole without it
	}
	if i := slices.IndexFunc(page.Groups, func(g dlq.Group) bool { return g.Fingerprint == fingerprint }); i >= 0 {
		return &page.Groups[i]
	}
	return nil
}

type messageData struct {
	dlq.Detail
	Payload *payload // nil = it may not be read
	Actions []action
}

// action is what can be done to a record now.
type action struct {
	Name   dlq.Action
	Reason string // why it cannot be done; "" = it can
}

func (h *console) message(w http.ResponseWriter, r *http.Request) {
	topic := r.PathValue("topic")
	at, err := dlq.ParsePosition(r.PathValue("partition") + ":" + r.PathValue("offset"))
	if err != nil {
		h.fail(w, r, err)
		return
	}
	v := h.view(r, topic+" "+at.String(), topic, nil)
	mayRead := v.May(string(dlq.RoleReader))
	detail, err := h.cfg.DLQ.Message(r.Context(), topic, dlq.Ref{Position: at, Identity: r.URL.Query().Get("identity")}, mayRead)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	d := messageData{Detail: detail, Actions: actions(&detail, v.May(string(dlq.RoleOperator)))}
	if mayRead && detail.Message.Payload != nil {
		d.Payload = showPayload(detail.Message.Payload, r.URL.Query().Get("as"))
	}
	v.Data = &d
	h.show(w, http.StatusOK, "message.html", v)
}

// actions are those a record may be put through, and why not the others: a
// button that is not to be pressed says why.
func actions(d *dlq.Detail, operator bool) []action {
	st := d.State.Status
	out := []action{{Name: dlq.ActionReplay}, {Name: dlq.ActionResolve}, {Name: dlq.ActionDiscard}, {Name: dlq.ActionRestore}}
	for i := range out {
		closed := st == dlq.StatusResolved || st == dlq.StatusDiscarded
		switch a := &out[i]; {
		case d.State.Earlier:
			a.Reason = "it belongs to an earlier topic of this name"
		case !operator:
			a.Reason = "needs the role operator"
		case a.Name == dlq.ActionRestore && !closed && st != dlq.StatusUncertain:
			a.Reason = "only what was resolved, discarded or is uncertain can be restored"
		case a.Name == dlq.ActionRestore:
		case closed:
			a.Reason = "it is " + string(st) + ": restore it first"
		case a.Name == dlq.ActionReplay && st != dlq.StatusNew:
			a.Reason = "only a new one can be sent again: this one is " + string(st)
		case st == dlq.StatusClaimed || st == dlq.StatusReplayed:
			a.Reason = "it is on its way: wait for how that ends"
		}
	}
	return out
}

// act resolves, discards or restores one record.
func (h *console) act(w http.ResponseWriter, r *http.Request) {
	topic := r.PathValue("topic")
	at, err := dlq.ParsePosition(r.PathValue("partition") + ":" + r.PathValue("offset"))
	if err == nil {
		err = h.allowed(r, dlq.RoleOperator)
	}
	name := dlq.Action(r.PostFormValue("action"))
	if err == nil && (name != dlq.ActionResolve && name != dlq.ActionDiscard && name != dlq.ActionRestore) {
		err = &dlq.Error{Kind: dlq.KindInvalid, Text: "there is no action " + strconv.Quote(string(name)) + ": use the buttons of the page"}
	}
	if err == nil {
		actor, _ := h.cfg.ActorOf(r.Context())
		_, err = h.cfg.DLQ.Act(r.Context(), topic, dlq.Ref{Position: at, Identity: r.PostFormValue("identity")}, name, r.PostFormValue("reason"), actor)
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	http.Redirect(w, r, r.URL.Path+"?done="+url.QueryEscape(string(name)), http.StatusSeeOther)
}

// allowed refuses what the role of who asks does not allow.
func (h *console) allowed(r *http.Request, needs dlq.Role) error {
	actor, _ := h.cfg.ActorOf(r.Context())
	if !actor.Role.Includes(needs) {
		return &dlq.Error{Kind: dlq.KindDenied, Text: "this needs the role " + string(needs) + ": " + actor.Name + " is " + string(actor.Role)}
	}
	return nil
}
