package dlq

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
	"github.com/kconsume/kconsume/engine/backlog"
	"github.com/kconsume/kconsume/engine/topics"
)

func TestNeedless(t *testing.T) {
	now := time.UnixMilli(2e12)
	long, lately := now.Add(-cleanJobs-time.Hour), now.Add(-2*staleAfter)
	life := topics.ID{1}
	sp := &spans{life: life, parts: []backlog.Span{{Start: 10, End: 20}}}
	v := state.NewView()
	offset := int64(0)
	put := func(at time.Time, key string, value any) {
		b, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		v.Apply(state.Entry{Offset: offset, Time: at, Key: key, Value: b})
		offset++
	}
	rec := func(at time.Time, life string, after int64) state.Rec {
		return state.Rec{V: 1, Act: state.Resolve, Status: state.Resolved, After: after, Life: life, At: at.UnixMilli()}
	}
	put(lately, "rec/0/9/aa", rec(lately, state.Life(life), -1))  // expired
	put(lately, "rec/0/10/aa", rec(lately, state.Life(life), -1)) // there
	put(lately, "rec/0/11/aa", rec(long, "other", -1))            // of a topic long ago
	put(lately, "rec/0/12/aa", rec(lately, "other", -1))          // of a topic lately
	put(lately, "rec/7/1/aa", rec(long, state.Life(life), -1))    // a partition that is not there
	put(lately, "rec/0/13/aa", rec(lately, state.Life(life), -1)) // a later one of it did not count
	put(lately, "rec/0/13/aa", state.Rec{V: 1, Act: state.Claim, Status: state.Claimed, After: -1, Job: "lost"})
	put(lately, "plan/old", state.Plan{V: 1, After: -1, Expires: now.Add(-time.Minute).UnixMilli()})
	put(lately, "plan/busy", state.Plan{V: 1, After: -1, Expires: now.Add(-time.Minute).UnixMilli()})
	put(lately, "plan/good", state.Plan{V: 1, After: -1, Expires: now.Add(time.Minute).UnixMilli()})
	put(lately, "job/runs", state.Job{V: 1, After: -1, Digest: "busy"})
	put(long, "job/old", state.Job{V: 1, After: -1, Ended: true})
	put(lately, "job/ended", state.Job{V: 1, After: -1, Ended: true})
	put(lately, "out/j/0/9/bb", state.Out{Version: 1, Status: string(state.Succeeded), At: long.UnixMilli()})
	put(lately, "out/j/0/9/cc", state.Out{Version: 1, Status: string(state.Succeeded), At: lately.UnixMilli()})
	put(lately, "out/j/0/10/aa", state.Out{Version: 1, Status: string(state.Succeeded), At: long.UnixMilli()})
	put(now, "audit/1", struct{}{})
	got := map[string]bool{}
	for _, p := range needless(v, sp, now) {
		got[p.Key] = p.Value == nil
	}
	want := map[string]bool{"rec/0/9/aa": true, "rec/0/11/aa": true, "rec/0/13/aa": false, "plan/old": true, "job/old": true, "out/j/0/9/bb": true}
	if !maps.Equal(got, want) {
		t.Errorf("got %v\nwant %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// Without its state topic nothing is done, and everything goes on once it is
// there.
func TestStateTopicMissing(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.bury(2, nil)
		w.remove("t.dlq.state")
		d := w.daemon("a")
		defer d.end()
		time.Sleep(time.Second)
		_, err := d.Groups(w.t.Context(), "t.dlq", Filter{})
		wantErr(w.t, err, KindUnavailable, "kconsume topics apply")
		_, _, err = d.Replay(w.t.Context(), "t.dlq", 1, "", ada)
		wantErr(w.t, err, KindUnavailable, "kconsume topics apply")
		w.create("t.dlq.state", 1)
		time.Sleep(10 * time.Second)
		if n, _, err := d.Replay(w.t.Context(), "t.dlq", 1, "", ada); n != 1 || err != nil {
			w.t.Errorf("%d, %v", n, err)
		}
		// Made anew while it runs, and longer at once: what it said is forgotten.
		w.anew("t.dlq.state", 1)
		for i := range 50 {
			w.put(fmt.Sprint("unknown/", i), i)
		}
		time.Sleep(10 * time.Second)
		if got := d.statuses(); !same(got, map[Status]int{StatusNew: 2}) {
			w.t.Errorf("%v", got)
		}
	})
}

func TestTimelineOfMany(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.bury(1, nil)
		d := w.daemon("a")
		defer d.end()
		for i := range maxTimeline {
			a := []Action{ActionDiscard, ActionRestore}[i%2]
			if _, err := d.Act(w.t.Context(), "t.dlq", Ref{}, a, "x", ada); err != nil {
				w.t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		det, err := d.Message(w.t.Context(), "t.dlq", Ref{}, true)
		if err != nil || len(det.Timeline) != maxTimeline+2 || det.Timeline[len(det.Timeline)-1].What != "restore" || string(det.Payload.Value) != "v0" {
			w.t.Fatalf("%d entries, %v", len(det.Timeline), err)
		}
		if _, err := d.Act(w.t.Context(), "t.dlq", Ref{}, ActionResolve, "x", ada); err != nil {
			w.t.Fatal(err)
		}
		det, err = d.Message(w.t.Context(), "t.dlq", Ref{}, false)
		if err != nil || !slices.ContainsFunc(det.Timeline, func(e TimelineEntry) bool { return e.What == "incomplete" }) || det.Payload != nil {
			w.t.Errorf("%+v, %v", det.Timeline, err)
		}
	})
}
