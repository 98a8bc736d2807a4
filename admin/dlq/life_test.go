package dlq

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
	"github.com/kconsume/kconsume/admin/export"
	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/plugin"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

func all(*kgo.Record) bool  { return true }
func none(*kgo.Record) bool { return false }

// wantErr fails the test unless err is of a kind, one line, and says something.
func wantErr(t *testing.T, err error, k Kind, says string) {
	t.Helper()
	if err == nil || KindOf(err) != k || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v (%s), want %s: …%s…", err, KindOf(err), k, says)
	}
}

func TestSimpleReplay(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		w.bury(7, nil)
		d := w.daemon("a")
		defer d.end()
		n, j, err := d.Replay(w.t.Context(), "t.dlq", 5, "", ada)
		if err != nil || n != 5 || j.Status != JobDone {
			w.t.Fatalf("%d, %+v, %v", n, j, err)
		}
		var values []string
		for _, m := range d.list() {
			if m.State.Status == StatusReplayed {
				values = append(values, m.Position.String())
			}
		}
		if got := strings.Join(values, " "); got != "0:0 0:1 0:2 0:3 1:0" {
			w.t.Errorf("the oldest by partition and offset are not %s", got)
		}
		copies := w.read("t.replay")
		if len(copies) != 5 {
			w.t.Fatalf("%d copies", len(copies))
		}
		for _, c := range copies {
			h := headersOf(c)
			if h[history.HeaderReplayCount] != "1" || h[history.HeaderAttempts] != "0" || h[history.HeaderErrorClass] != "" {
				w.t.Errorf("copy %s has %v", c.Value, h)
			}
		}
		if n := w.handle("t.replay", all); n != 5 {
			w.t.Errorf("%d handled", n)
		}
		if got := d.statuses(); !same(got, map[Status]int{StatusNew: 2, StatusSucceeded: 5}) {
			w.t.Errorf("%v", got)
		}
		if j, _ := d.Job(w.t.Context(), j.ID); j.Succeeded != 5 || j.Done != 5 || j.Runner != "a" || j.By != ada.Name {
			w.t.Errorf("%+v", j)
		}
		if n, _, err := d.Replay(w.t.Context(), "t.dlq", 10, "", ada); n != 2 || err != nil {
			w.t.Errorf("the rest: %d, %v", n, err)
		}
		if n, j, err := d.Replay(w.t.Context(), "t.dlq", 10, "", ada); n != 0 || err != nil || j.ID != "" {
			w.t.Errorf("nothing left: %d, %+v, %v", n, j, err)
		}
	})
}

func TestReplayRefusals(t *testing.T) {
	for text, ok := range map[string]bool{"": true, "1": true, "100": true, "0": false, "-1": false, "101": false, "10.5": false, "x": false, " 5": false} {
		if _, err := ParseReplayLimit(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		} else if !ok {
			wantErr(t, err, KindInvalid, "1 to 100")
		}
	}
	inWorld(t, 1, func(w *world) {
		d := w.daemon("a")
		defer d.end()
		for _, n := range []int{0, -1, 101} {
			_, _, err := d.Replay(w.t.Context(), "t.dlq", n, "", ada)
			wantErr(w.t, err, KindInvalid, "1 to 100")
		}
		_, _, err := d.Replay(w.t.Context(), "u.dlq", 1, "", ada)
		wantErr(w.t, err, KindNotFound, "u.dlq")
		_, _, err = d.Replay(w.t.Context(), "t.dlq", 1, "", guest)
		wantErr(w.t, err, KindDenied, "operator")
	})
}

// Key, value and own headers of a copy are the record's, byte for byte.
func TestCopiesAreTheRecord(t *testing.T) {
	own := []plugin.Header{{Key: "a", Value: nil}, {Key: "a", Value: []byte{}}, {Key: "b\xff", Value: []byte{0, 255}}}
	for _, target := range []string{"replay", "source"} {
		inWorld(t, 2, func(w *world) {
			w.bury(4, func(i int, d *dead) {
				d.headers = own
				d.key = [][]byte{nil, {}, []byte("k\xff"), []byte("k")}[i]
				d.value = []string{"", "v\x00", "x", "y"}[i]
			})
			before := w.read("t.dlq")
			d := w.daemon("a")
			defer d.end()
			j := d.wait(d.apply(d.plan(PlanRequest{Action: ActionReplay, Target: target}, ada).Digest).ID)
			topic := map[string]string{"replay": "t.replay", "source": "t"}[target]
			if j.Done != 4 || j.Target != topic {
				w.t.Fatalf("%+v", j)
			}
			copies := w.read(topic)
			if len(copies) != len(before) {
				w.t.Fatalf("%d copies of %d", len(copies), len(before))
			}
			for i, c := range copies {
				b := before[i]
				if c.Partition != b.Partition || !bytes.Equal(c.Key, b.Key) || (c.Key == nil) != (b.Key == nil) || !bytes.Equal(c.Value, b.Value) || (c.Value == nil) != (b.Value == nil) {
					w.t.Errorf("copy %d: %q=%q, of %q=%q", i, c.Key, c.Value, b.Key, b.Value)
				}
				for k, h := range own {
					got := c.Headers[k]
					if got.Key != h.Key || !bytes.Equal(got.Value, h.Value) || (got.Value == nil) != (h.Value == nil) {
						w.t.Errorf("copy %d: header %d is %q=%v", i, k, got.Key, got.Value)
					}
				}
				hb, hc := headersOf(b), headersOf(c)
				for _, name := range []string{history.HeaderGroup, history.HeaderRecordID, history.HeaderOrigTopic, history.HeaderOrigOffset, history.HeaderFirstFailure} {
					if hc[name] != hb[name] {
						w.t.Errorf("copy %d: %s is %q, was %q", i, name, hc[name], hb[name])
					}
				}
				if job, id, ok := state.ParseReplayID(hc[history.HeaderReplayID]); !ok || job != j.ID || id.Offset != b.Offset {
					w.t.Errorf("copy %d: replay id %q", i, hc[history.HeaderReplayID])
				}
			}
			if after := w.read("t.dlq"); len(after) != len(before) {
				w.t.Errorf("the DLQ has %d records, had %d", len(after), len(before))
			}
		})
	}
}

func TestPlan(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		w.bury(12, func(i int, d *dead) {
			switch {
			case i < 4:
				d.class, d.message = "permanent", fmt.Sprintf("no product %d", i)
			case i == 4:
				d.group = "other"
			case i == 5:
				d.origin = "elsewhere"
			case i == 6:
				d.replays = 3
			case i == 7:
				d.class = "oversize"
			case i == 8:
				d.handler = "orders@2"
			}
		})
		d := w.daemon("a", func(c *Config) { c.HandlerVersion = func() string { return "orders@1" } })
		defer d.end()
		p := d.plan(PlanRequest{Action: ActionReplay}, ada)
		if p.Records != 8 || p.Target != "t.replay" || p.Statuses[StatusNew] != 8 || len(p.First) != 8 {
			w.t.Errorf("%+v", p)
		}
		if len(p.Excluded) != 3 || p.Excluded[0].Records != 1 {
			w.t.Errorf("excluded %+v", p.Excluded)
		}
		if got := fmt.Sprint(p.Errors); got != "[{permanent: no product # 4} {transient: gateway # down 4}]" {
			w.t.Errorf("errors %v", got)
		}
		if len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "7 of 8 failed in orders@1") {
			w.t.Errorf("warnings %q", p.Warnings)
		}
		if again := d.plan(PlanRequest{Action: ActionReplay}, ada); again.Digest != p.Digest {
			w.t.Error("the same plan has another digest")
		}
		if got, err := d.PlanOf(w.t.Context(), p.Digest); err != nil || got.Records != 8 {
			w.t.Errorf("%+v, %v", got, err)
		}
		key := "k3"
		for _, c := range []struct {
			name string
			sel  Selection
			want int
		}{
			{"positions", Selection{Positions: []Position{{1, 0}, {0, 0}, {0, 0}, {0, 99}, {7, 0}}}, 2},
			{"fingerprint", Selection{Fingerprint: Fingerprint("permanent", "no product #")}, 4},
			{"key", Selection{Key: &key}, 1},
			{"class", Selection{Class: "permanent"}, 4},
			{"handler", Selection{Handler: "orders"}, 8},
			{"handler's version", Selection{Handler: "orders@2"}, 1},
			{"since", Selection{Since: time.Now().Add(time.Hour)}, 0},
			{"until", Selection{Until: time.Now().Add(time.Hour)}, 8},
			{"limit", Selection{Limit: 3}, 3},
			{"status", Selection{Statuses: []Status{StatusSucceeded}}, 0},
		} {
			if p := d.plan(PlanRequest{Action: ActionReplay, Selection: c.sel}, ada); p.Records != c.want {
				w.t.Errorf("by %s: %d records, want %d (excluded %v)", c.name, p.Records, c.want, p.Excluded)
			}
		}
		for name, r := range map[string]PlanRequest{
			"1 to":          {Action: ActionReplay, Selection: Selection{Limit: -1}},
			"use new":       {Action: ActionReplay, Selection: Selection{Statuses: []Status{"old"}}},
			"replay or":     {Action: ActionReplay, Target: "elsewhere"},
			"records per":   {Action: ActionReplay, Rate: -1},
			"use replay":    {Action: "explode"},
			"needs a":       {Action: ActionDiscard},
			"for a replay":  {Action: ActionDiscard, Reason: "x", Canary: true},
			"not told apar": {Action: ActionReplay, Selection: Selection{Fingerprint: "other"}},
		} {
			_, err := d.Plan(w.t.Context(), "t.dlq", r, ada)
			wantErr(w.t, err, KindInvalid, name)
		}
		_, err := d.Plan(w.t.Context(), "t.dlq", PlanRequest{Action: ActionReplay, Force: true, Reason: "x"}, ada)
		wantErr(w.t, err, KindDenied, "admin")
		_, err = d.Plan(w.t.Context(), "t.dlq", PlanRequest{Action: ActionReplay}, guest)
		wantErr(w.t, err, KindDenied, "operator")
	})
}

func TestApplyOnce(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		w.bury(4, nil)
		d := w.daemon("a")
		defer d.end()
		p := d.plan(PlanRequest{Action: ActionReplay, Selection: Selection{Limit: 2}}, ada)
		j, err := d.Apply(w.t.Context(), p.Digest, "key", ada)
		if err != nil {
			w.t.Fatal(err)
		}
		d.wait(j.ID)
		if again, err := d.Apply(w.t.Context(), p.Digest, "key", ada); err != nil || again.ID != j.ID || again.Done != 2 {
			w.t.Errorf("with the key: %+v, %v", again, err)
		}
		_, err = d.Apply(w.t.Context(), p.Digest, "", ada)
		wantErr(w.t, err, KindConflict, "applied already, by job "+j.ID)
		_, err = d.Apply(w.t.Context(), p.Digest, "another", ada)
		wantErr(w.t, err, KindConflict, "applied already")
		q := d.plan(PlanRequest{Action: ActionReplay, Selection: Selection{Limit: 1}}, ada)
		_, err = d.Apply(w.t.Context(), q.Digest, "key", ada)
		wantErr(w.t, err, KindConflict, "another plan")
		_, err = d.Apply(w.t.Context(), "feed", "", ada)
		wantErr(w.t, err, KindNotFound, "plan again")
		if n := len(w.read("t.replay")); n != 2 {
			w.t.Errorf("%d copies", n)
		}
		n, first, err := d.Replay(w.t.Context(), "t.dlq", 1, "simple", ada)
		m, second, err2 := d.Replay(w.t.Context(), "t.dlq", 1, "simple", ada)
		if err != nil || err2 != nil || n != 1 || m != 1 || first.ID != second.ID {
			w.t.Errorf("%d %v, %d %v", n, err, m, err2)
		}
		if n := len(w.read("t.replay")); n != 3 {
			w.t.Errorf("%d copies", n)
		}
	})
}

// Of four clicks at once, two at each of two daemons, one begins the job.
func TestFourClicks(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		w.bury(10, nil)
		a, b := w.daemon("a"), w.daemon("b")
		defer a.end()
		defer b.end()
		p := a.plan(PlanRequest{Action: ActionReplay}, ada)
		errs := make([]error, 4)
		var clicks sync.WaitGroup
		for i, d := range []*daemon{a, b, a, b} {
			clicks.Go(func() { _, errs[i] = d.Apply(w.t.Context(), p.Digest, "", ada) })
		}
		clicks.Wait()
		begun := 0
		for _, err := range errs {
			if err == nil {
				begun++
			} else {
				wantErr(w.t, err, KindConflict, "")
			}
		}
		if begun != 1 {
			w.t.Errorf("%d were told that they began it: %v", begun, errs)
		}
		time.Sleep(time.Minute)
		if n := len(w.read("t.replay")); n != 10 {
			w.t.Errorf("%d copies", n)
		}
	})
}

// Cancelling a slow job ends it at once, and nothing more is sent.
func TestCancelSlow(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.bury(5, nil)
		d := w.daemon("a")
		defer d.end()
		j := d.apply(d.plan(PlanRequest{Action: ActionReplay, Rate: minRate}, ada).Digest)
		time.Sleep(time.Second)
		got, err := d.Cancel(w.t.Context(), j.ID, "stop", ada)
		if err != nil || got.Status != JobCancelled || got.Done != 1 {
			w.t.Errorf("%+v, %v", got, err)
		}
		time.Sleep(10 * time.Minute)
		if n := len(w.read("t.replay")); n != 1 {
			w.t.Errorf("%d copies", n)
		}
	})
}

func TestPlanOutOfDate(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.bury(3, nil)
		d := w.daemon("a")
		defer d.end()
		grown := d.plan(PlanRequest{Action: ActionReplay}, ada)
		fixed := d.plan(PlanRequest{Action: ActionReplay, Selection: Selection{Until: time.Now().Add(time.Minute)}}, ada)
		time.Sleep(2 * time.Minute)
		w.bury(1, nil)
		_, err := d.Apply(w.t.Context(), grown.Digest, "", ada)
		wantErr(w.t, err, KindConflict, "1 more records match")
		if _, err := d.Act(w.t.Context(), "t.dlq", Ref{Position: Position{0, 1}}, ActionDiscard, "junk", ada); err != nil {
			w.t.Fatal(err)
		}
		_, err = d.Apply(w.t.Context(), fixed.Digest, "", ada)
		wantErr(w.t, err, KindConflict, "1 of its records")
		if _, err := d.Act(w.t.Context(), "t.dlq", Ref{Position: Position{0, 1}}, ActionRestore, "sorry", ada); err != nil {
			w.t.Fatal(err)
		}
		_, err = d.Apply(w.t.Context(), fixed.Digest, "", ada)
		wantErr(w.t, err, KindConflict, "something was done")
		old := d.plan(PlanRequest{Action: ActionReplay}, ada)
		time.Sleep(planLife)
		_, err = d.Apply(w.t.Context(), old.Digest, "", ada)
		if k := KindOf(err); k != KindGone && k != KindNotFound {
			w.t.Errorf("an old plan: %v", err)
		}
		if n := len(w.read("t.replay")); n != 0 {
			w.t.Errorf("%d copies", n)
		}
	})
}

func TestCanary(t *testing.T) {
	for _, ok := range []bool{true, false} {
		inWorld(t, 2, func(w *world) {
			w.bury(9, nil)
			d := w.daemon("a")
			defer d.end()
			j := d.apply(d.plan(PlanRequest{Action: ActionReplay, Canary: true}, ada).Digest)
			time.Sleep(time.Minute)
			if n := len(w.read("t.replay")); n != 1 {
				w.t.Fatalf("%d copies before the canary's outcome", n)
			}
			if got, _ := d.Job(w.t.Context(), j.ID); got.Status != JobCanary {
				w.t.Errorf("%+v", got)
			}
			w.handle("t.replay", func(*kgo.Record) bool { return ok })
			got := d.wait(j.ID)
			if ok && (got.Status != JobDone || got.Done != 9 || len(w.read("t.replay")) != 9) {
				w.t.Errorf("%+v", got)
			}
			if !ok && (got.Status != JobFailed || got.Done != 1 || len(w.read("t.replay")) != 1 || !strings.Contains(got.Note, "canary 0:0 failed again")) {
				w.t.Errorf("%+v", got)
			}
		})
	}
}

func TestCancel(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		w.bury(40, nil)
		d := w.daemon("a")
		defer d.end()
		j := d.apply(d.plan(PlanRequest{Action: ActionReplay, Rate: 1}, ada).Digest)
		time.Sleep(10 * time.Second)
		_, err := d.Cancel(w.t.Context(), j.ID, " ", ada)
		wantErr(w.t, err, KindInvalid, "reason")
		_, err = d.Cancel(w.t.Context(), j.ID, "x", Actor{Name: "eve", Role: RoleOperator})
		wantErr(w.t, err, KindDenied, "admin")
		got, err := d.Cancel(w.t.Context(), j.ID, "wrong fix", admin)
		if err != nil || got.Status != JobCancelled || got.Done < 9 || got.Done > 12 {
			w.t.Fatalf("%+v, %v", got, err)
		}
		if want := fmt.Sprintf("cancelled by %s: wrong fix; %d of 40 were sent and stay sent", admin.Name, got.Done); got.Note != want {
			w.t.Errorf("%q, want %q", got.Note, want)
		}
		time.Sleep(time.Minute)
		if n := len(w.read("t.replay")); n != got.Done {
			w.t.Errorf("%d copies, %d said", n, got.Done)
		}
		if s := d.statuses(); s[StatusNew] != 40-got.Done {
			w.t.Errorf("%v", s)
		}
		_, err = d.Cancel(w.t.Context(), j.ID, "again", admin)
		wantErr(w.t, err, KindConflict, "cancelled already")
		_, err = d.Cancel(w.t.Context(), "none", "x", admin)
		wantErr(w.t, err, KindNotFound, "no job")
	})
}

func TestRate(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		w.bury(50, nil)
		d := w.daemon("a")
		defer d.end()
		began := time.Now()
		d.wait(d.apply(d.plan(PlanRequest{Action: ActionReplay, Rate: 5}, ada).Digest).ID)
		if took := time.Since(began); took < 9*time.Second || took > 12*time.Second {
			w.t.Errorf("50 records at 5/s took %v", took)
		}
	})
}

// A record that fails again comes back with its count; the third replay is the
// last one.
func TestGuard(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.bury(1, nil)
		d := w.daemon("a")
		defer d.end()
		for round := range MaxReplays {
			if n, _, err := d.Replay(w.t.Context(), "t.dlq", 10, "", ada); n != 1 || err != nil {
				w.t.Fatalf("round %d: %d, %v", round, n, err)
			}
			if w.handle("t.replay", none) != 1 {
				w.t.Fatal("no copy came")
			}
		}
		p := d.plan(PlanRequest{Action: ActionReplay}, ada)
		if p.Records != 0 || len(p.Excluded) != 2 || !strings.Contains(fmt.Sprint(p.Excluded), "replayed 3 times") {
			w.t.Errorf("%+v", p)
		}
		_, err := d.Apply(w.t.Context(), p.Digest, "", ada)
		wantErr(w.t, err, KindConflict, "nothing to do")
		_, err = d.Plan(w.t.Context(), "t.dlq", PlanRequest{Action: ActionReplay, Force: true}, admin)
		wantErr(w.t, err, KindInvalid, "reason")
		forced := d.plan(PlanRequest{Action: ActionReplay, Force: true, Reason: "repaired"}, admin)
		if forced.Records != 1 {
			w.t.Fatalf("%+v", forced)
		}
		_, err = d.Apply(w.t.Context(), forced.Digest, "", ada)
		wantErr(w.t, err, KindDenied, "admin")
		if j, err := d.Apply(w.t.Context(), forced.Digest, "", admin); err != nil || d.wait(j.ID).Done != 1 {
			w.t.Error(err)
		}
		w.handle("t.replay", all)
		d.sync()
		det, err := d.Message(w.t.Context(), "t.dlq", Ref{Position: Position{0, 3}}, false)
		if err != nil || det.Replays != 3 || det.State.Status != StatusSucceeded {
			w.t.Errorf("%+v, %v", det, err)
		}
		var what []string
		for _, e := range det.Timeline {
			what = append(what, e.What)
		}
		if got := strings.Join(what, " "); got != "first_failed earlier dead claim sent succeeded" {
			w.t.Errorf("timeline: %s", got)
		}
		first, err := d.Message(w.t.Context(), "t.dlq", Ref{Position: Position{0, 0}}, false)
		if err != nil || first.State.Again == nil || *first.State.Again != (Position{0, 1}) || first.State.Status != StatusFailedAgain {
			w.t.Errorf("%+v, %v", first.State, err)
		}
	})
}

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

func TestExpired(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.bury(6, nil)
		d := w.daemon("a")
		defer d.end()
		if n, _, err := d.Replay(w.t.Context(), "t.dlq", 2, "", ada); n != 2 || err != nil {
			w.t.Fatal(n, err)
		}
		w.handle("t.replay", all)
		p := d.plan(PlanRequest{Action: ActionReplay, Rate: 1}, ada)
		j := d.apply(p.Digest)
		time.Sleep(500 * time.Millisecond)
		if err := w.cluster.DeleteRecords("t.dlq", 0, 5); err != nil {
			w.t.Fatal(err)
		}
		got := d.wait(j.ID)
		if got.Status != JobDone || got.Done+got.Skipped != 4 || got.Skipped < 1 || !strings.Contains(got.Note, "is expired") {
			w.t.Errorf("%+v", got)
		}
		_, err := d.Message(w.t.Context(), "t.dlq", Ref{Position: Position{0, 0}}, false)
		wantErr(w.t, err, KindGone, "expired")
		_, err = d.Act(w.t.Context(), "t.dlq", Ref{Position: Position{0, 0}}, ActionRestore, "x", ada)
		wantErr(w.t, err, KindGone, "expired")
		s, err := d.Summaries(w.t.Context())
		if err != nil || s[0].Records != 1 || s[0].Counts[StatusReplayed] != 1 {
			w.t.Errorf("%+v, %v", s, err)
		}
		time.Sleep(3 * cleanEvery)
		left := map[string]bool{}
		for _, r := range w.read("t.dlq.state") {
			left[string(r.Key)] = r.Value != nil
		}
		for key, there := range left {
			if there && strings.HasPrefix(key, "rec/") && !strings.HasPrefix(key, "rec/0/5/") {
				w.t.Errorf("%s is kept", key)
			}
		}
	})
}

func TestTargetRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		err     error
		first   int // sends that are refused
		status  JobStatus
		done    int
		skipped int
		note    string
	}{
		{"one is too large", kafka.MessageSizeTooLarge, 2, JobDone, 3, 1, "t.replay refuses it"},
		{"all are not allowed", kafka.TopicAuthorizationFailed, 99, JobFailed, 0, 4, "allow this user"},
		{"it does not exist", kafka.UnknownTopicOrPartition, 99, JobFailed, 0, 4, "topics apply"},
	} {
		inWorld(t, 1, func(w *world) {
			w.bury(4, nil)
			d := w.daemon("a")
			defer d.end()
			n := 0
			d.on(func(what string, do func() error) error {
				if what == "send" {
					if n++; n <= c.first {
						return c.err
					}
				}
				return do()
			})
			j := d.wait(d.apply(d.plan(PlanRequest{Action: ActionReplay}, ada).Digest).ID)
			if j.Status != c.status || j.Done != c.done || j.Skipped != c.skipped || !strings.Contains(j.Note, c.note) {
				w.t.Errorf("%s: %+v", c.name, j)
			}
			if got := d.statuses(); got[StatusNew] != 4-c.done || got[StatusReplayed] != c.done {
				w.t.Errorf("%s: %v", c.name, got)
			}
			if got := len(w.read("t.replay")); got != c.done {
				w.t.Errorf("%s: %d copies", c.name, got)
			}
			// It can be tried again.
			d.on(nil)
			if n, _, err := d.Replay(w.t.Context(), "t.dlq", 10, "", ada); n != 4-c.done || err != nil {
				w.t.Errorf("%s: again %d, %v", c.name, n, err)
			}
		})
	}
}

// A write whose end is not known is looked up: what arrived is not sent again.
func TestUnknownWrites(t *testing.T) {
	for _, arrived := range []bool{true, false} {
		inWorld(t, 2, func(w *world) {
			w.bury(10, nil)
			d := w.daemon("a")
			defer d.end()
			n := 0
			d.on(func(what string, do func() error) error {
				if n++; what == "send" && n%2 == 0 {
					if arrived {
						if err := do(); err != nil {
							return err
						}
					}
					return context.DeadlineExceeded
				}
				return do()
			})
			j := d.wait(d.apply(d.plan(PlanRequest{Action: ActionReplay}, ada).Digest).ID)
			if j.Status != JobDone || j.Done != 10 {
				w.t.Errorf("%+v", j)
			}
			seen := map[string]int{}
			for _, r := range w.read("t.replay") {
				seen[headersOf(r)[history.HeaderRecordID]]++
			}
			for id, n := range seen {
				if n != 1 {
					w.t.Errorf("%s was sent %d times", id, n)
				}
			}
			if len(seen) != 10 {
				w.t.Errorf("%d records were sent", len(seen))
			}
		})
	}
}

// Where the part of the target that would tell is gone, a person decides.
func TestUncertain(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.bury(3, nil)
		d := w.daemon("a")
		defer d.end()
		// An ordinary copy lies in the target, so that there is something to delete.
		if n, _, err := d.Replay(w.t.Context(), "t.dlq", 1, "", ada); n != 1 || err != nil {
			w.t.Fatal(n, err)
		}
		lost := false
		d.on(func(what string, do func() error) error {
			if what != "send" || lost {
				return do()
			}
			lost = true
			if err := do(); err != nil {
				return err
			}
			if err := w.cluster.DeleteRecords("t.replay", 0, 3); err != nil {
				w.t.Error(err)
			}
			return context.DeadlineExceeded
		})
		j := d.wait(d.apply(d.plan(PlanRequest{Action: ActionReplay}, ada).Digest).ID)
		if j.Uncertain != 2 || !strings.Contains(j.Note, "uncertain") || d.statuses()[StatusUncertain] != 2 {
			w.t.Errorf("%+v %v", j, d.statuses())
		}
		// The engine may tell after all; a person may too.
		m := d.list()
		w.outcome(m[1].State.ReplayID, StatusSucceeded, nil)
		if _, err := d.Act(w.t.Context(), "t.dlq", Ref{Position: m[2].Position}, ActionRestore, "the ledger has it not", ada); err != nil {
			w.t.Error(err)
		}
		if got := d.statuses(); !same(got, map[Status]int{StatusReplayed: 1, StatusSucceeded: 1, StatusNew: 1}) {
			w.t.Errorf("%v", got)
		}
	})
}

// A DLQ that was made anew has new records, whatever their offsets are.
func TestDLQMadeAnew(t *testing.T) {
	for _, restart := range []bool{true, false} {
		inWorld(t, 1, func(w *world) {
			ctx := w.t.Context()
			w.bury(3, nil)
			d := w.daemon("a")
			act := func(o int64, a Action) {
				if _, err := d.Act(ctx, "t.dlq", Ref{Position: Position{0, o}}, a, "x", ada); err != nil {
					w.t.Fatal(err)
				}
			}
			act(0, ActionDiscard)
			act(1, ActionResolve)
			if n, _, err := d.Replay(ctx, "t.dlq", 1, "", ada); n != 1 || err != nil {
				w.t.Fatal(n, err)
			}
			w.handle("t.replay", all)
			if got := d.statuses(); !same(got, map[Status]int{StatusDiscarded: 1, StatusResolved: 1, StatusSucceeded: 1}) {
				w.t.Fatalf("%v", got)
			}
			plan := d.plan(PlanRequest{Action: ActionRestore, Reason: "x"}, ada)
			old := d.list()
			if restart {
				d.end()
			}
			w.anew("t.dlq", 1)
			if restart {
				d = w.daemon("a")
			}
			defer func() { d.end() }()
			// Nothing is there yet, and what was done belongs to another topic.
			_, err := d.Act(ctx, "t.dlq", Ref{Position: Position{0, 0}}, ActionRestore, "x", ada)
			wantErr(w.t, err, KindGone, "earlier topic")
			began := time.Now()
			time.Sleep(time.Hour)
			w.bury(3, nil)
			if got := d.statuses(); !same(got, map[Status]int{StatusNew: 3}) {
				w.t.Errorf("%v", got)
			}
			s, err := d.Summaries(ctx)
			if err != nil || s[0].Counts[StatusNew] != 3 || s[0].Records != 3 || s[0].Oldest.Before(began) {
				w.t.Errorf("%+v, %v", s, err)
			}
			_, err = d.Act(ctx, "t.dlq", Ref{Position{0, 0}, old[0].Identity}, ActionRestore, "x", ada)
			wantErr(w.t, err, KindGone, "earlier topic")
			_, err = d.Apply(ctx, plan.Digest, "", ada)
			if k := KindOf(err); k != KindConflict && k != KindGone {
				w.t.Errorf("the old plan: %v", err)
			}
			page, err := d.Messages(ctx, "t.dlq", Query{Earlier: true})
			if err != nil || len(page.Messages) != 3 || len(page.Earlier) != 3 || !page.Earlier[0].State.Earlier {
				w.t.Errorf("%+v, %v", page, err)
			}
			if n, _, err := d.Replay(ctx, "t.dlq", 10, "", ada); n != 3 || err != nil {
				w.t.Errorf("%d, %v", n, err)
			}
		})
	}
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
