package dlq

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/admin/export"
	"github.com/kconsume/kconsume/plugin"
	"github.com/segmentio/kafka-go"
)

func TestActs(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.bury(3, nil)
		d := w.daemon("a")
		defer d.end()
		at := func(o int64) Ref { return Ref{Position: Position{0, o}} }
		act := func(o int64, a Action, want Status) {
			w.t.Helper()
			m, err := d.Act(w.t.Context(), "t.dlq", at(o), a, "because", ada)
			if err != nil || m.State.Status != want || m.State.Reason != "because" || m.State.By != ada.Name {
				w.t.Errorf("%s: %+v, %v", a, m.State, err)
			}
		}
		act(0, ActionDiscard, StatusDiscarded)
		act(0, ActionRestore, StatusNew)
		act(1, ActionResolve, StatusResolved)
		_, err := d.Act(w.t.Context(), "t.dlq", at(1), ActionDiscard, "x", ada)
		wantErr(w.t, err, KindConflict, "is resolved")
		_, err = d.Act(w.t.Context(), "t.dlq", at(2), ActionRestore, "x", ada)
		wantErr(w.t, err, KindConflict, "is new")
		_, err = d.Act(w.t.Context(), "t.dlq", at(2), ActionResolve, "", ada)
		wantErr(w.t, err, KindInvalid, "reason")
		_, err = d.Act(w.t.Context(), "t.dlq", at(2), ActionReplay, "x", ada)
		wantErr(w.t, err, KindInvalid, "use resolve")
		_, err = d.Act(w.t.Context(), "t.dlq", at(9), ActionResolve, "x", ada)
		wantErr(w.t, err, KindNotFound, "no dead letter")
		_, err = d.Act(w.t.Context(), "t.dlq", at(2), ActionResolve, "x", guest)
		wantErr(w.t, err, KindDenied, "operator")
		_, err = d.Act(w.t.Context(), "t.dlq", Ref{Position{0, 2}, "feed"}, ActionResolve, "x", ada)
		wantErr(w.t, err, KindGone, "another record")
		// Many at once.
		p := d.plan(PlanRequest{Action: ActionDiscard, Reason: "old"}, ada)
		if p.Records != 2 {
			w.t.Fatalf("%+v", p)
		}
		if j := d.wait(d.apply(p.Digest).ID); j.Done != 2 || j.Status != JobDone {
			w.t.Errorf("%+v", j)
		}
		if got := d.statuses(); !same(got, map[Status]int{StatusDiscarded: 2, StatusResolved: 1}) {
			w.t.Errorf("%v", got)
		}
		if j := d.wait(d.apply(d.plan(PlanRequest{Action: ActionRestore, Reason: "wrong"}, ada).Digest).ID); j.Done != 3 {
			w.t.Errorf("%+v", j)
		}
		if got := d.statuses(); !same(got, map[Status]int{StatusNew: 3}) {
			w.t.Errorf("%v", got)
		}
	})
}

// Whatever is done, the audit said so before.
func TestAuditComesFirst(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.bury(2, nil)
		d := w.daemon("a")
		defer d.end()
		if _, err := d.Act(w.t.Context(), "t.dlq", Ref{Position: Position{0, 0}}, ActionDiscard, "junk", ada); err != nil {
			w.t.Fatal(err)
		}
		if _, _, err := d.Replay(w.t.Context(), "t.dlq", 5, "", ada); err != nil {
			w.t.Fatal(err)
		}
		audits := 0
		for _, r := range w.read("t.dlq.state") {
			switch {
			case strings.HasPrefix(string(r.Key), "audit/"):
				audits++
			case strings.HasPrefix(string(r.Key), "rec/0/0/") && audits < 1, strings.HasPrefix(string(r.Key), "rec/0/1/") && audits < 2, strings.HasPrefix(string(r.Key), "job/") && audits < 2:
				w.t.Errorf("%s comes after %d audit entries", r.Key, audits)
			}
		}
		page, err := d.Audit(w.t.Context(), AuditQuery{Limit: 1})
		if err != nil || len(page.Entries) != 1 || page.Entries[0].Action != "replay" || page.Cursor == "" {
			w.t.Fatalf("%+v, %v", page, err)
		}
		page, err = d.Audit(w.t.Context(), AuditQuery{Limit: 1, Cursor: page.Cursor})
		if e := page.Entries; err != nil || len(e) != 1 || e[0].Action != "discard" || e[0].Reason != "junk" || e[0].Actor != ada || e[0].Subject != "0:0" || page.Cursor != "" {
			w.t.Errorf("%+v, %v", page, err)
		}
		if page, _ := d.Audit(w.t.Context(), AuditQuery{Action: "discard", Topic: "t.dlq", Actor: ada.Name}); len(page.Entries) != 1 {
			w.t.Errorf("%+v", page)
		}
		// Nothing is done where the audit cannot be written.
		d.on(func(what string, do func() error) error {
			if what == "audit" {
				return kafka.TopicAuthorizationFailed
			}
			return do()
		})
		_, err = d.Act(w.t.Context(), "t.dlq", Ref{Position: Position{0, 0}}, ActionRestore, "x", ada)
		wantErr(w.t, err, KindUnavailable, "Authorization")
		if got := d.statuses(); got[StatusDiscarded] != 1 {
			w.t.Errorf("%v", got)
		}
	})
}

func TestExportReadsBack(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		w.bury(5, func(i int, d *dead) {
			d.key = [][]byte{nil, {}, {0xff}, []byte("k"), []byte("k")}[i]
			d.headers = []plugin.Header{{Key: "a", Value: nil}, {Key: "a", Value: []byte{}}}
		})
		d := w.daemon("a")
		defer d.end()
		var out bytes.Buffer
		n, err := d.Export(w.t.Context(), "t.dlq", Selection{}, &out)
		if err != nil || n != 5 {
			w.t.Fatal(n, err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		for i, want := range w.read("t.dlq") {
			got, err := export.Parse([]byte(lines[i]))
			if err != nil || got.Offset != want.Offset || got.Partition != want.Partition || !bytes.Equal(got.Key, want.Key) || (got.Key == nil) != (want.Key == nil) || len(got.Headers) != len(want.Headers) {
				w.t.Errorf("%+v, %v", got, err)
			}
			var about Message
			if err := json.Unmarshal(got.About, &about); err != nil || about.State.Status != StatusNew || about.Class != "transient" {
				w.t.Errorf("%s: %v", got.About, err)
			}
		}
		out.Reset()
		if n, err := d.Export(w.t.Context(), "t.dlq", Selection{Positions: []Position{{1, 0}, {0, 1}}, Limit: 1}, &out); n != 1 || err != nil {
			w.t.Error(n, err)
		}
	})
}
