package dlq

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine/topology"
)

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

// A call that comes again with its key is the same job, at whichever daemon and
// however far the first one is by then.
func TestClicksWithAKey(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		a, b := w.daemon("a"), w.daemon("b")
		defer a.end()
		defer b.end()
		for round := range 20 {
			w.bury(5, nil)
			p := a.plan(PlanRequest{Action: ActionReplay}, ada)
			key := fmt.Sprint("click-", round)
			jobs, errs := make([]Job, 4), make([]error, 4)
			var clicks sync.WaitGroup
			for i, d := range []*daemon{a, b, a, b} {
				clicks.Go(func() {
					time.Sleep(time.Duration(i*round) * time.Millisecond)
					jobs[i], errs[i] = d.Apply(w.t.Context(), p.Digest, key, ada)
				})
			}
			clicks.Wait()
			for i := range jobs {
				if errs[i] != nil || jobs[i].ID != jobs[0].ID {
					w.t.Errorf("round %d, click %d: %q, %v; want %q", round, i, jobs[i].ID, errs[i], jobs[0].ID)
				}
			}
			time.Sleep(time.Minute)
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

// Copies never go into a DLQ, nor into a state topic.
func TestNoReplayIntoADLQ(t *testing.T) {
	top, err := topology.New(topology.Config{Group: "g", Topics: []string{"t", "u"}, RetryTopic: topology.DefaultRetryTopic, DLQTopic: topology.DefaultDLQTopic})
	if err != nil {
		t.Fatal(err)
	}
	lines := top.Lines
	for _, source := range []string{"u.dlq", "u.dlq.state", "t.dlq"} {
		line := lines[0]
		line.Topic = source
		_, err := targetOf(&PlanRequest{Action: ActionReplay, Target: targetSource}, &line, lines)
		wantErr(t, err, KindInvalid, "nothing is replayed into one")
	}
	if got, err := targetOf(&PlanRequest{Action: ActionReplay, Target: targetSource}, &lines[0], lines); got != "t" || err != nil {
		t.Error(got, err)
	}
}
