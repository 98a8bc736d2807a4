package dlq

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine/history"
	"github.com/segmentio/kafka-go"
)

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
				if what != "send" {
					return do()
				}
				if n++; n%2 == 1 {
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
			if s, err := d.Summaries(ctx); err != nil || s[0].Records != 3 {
				w.t.Errorf("%+v, %v", s, err)
			}
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
