package dlq

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/plugin"
	"github.com/twmb/franz-go/pkg/kgo"
)

func all(*kgo.Record) bool { return true }

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

// A record that fails again comes back with its count; the third round
// is stopped.
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
		if p.Records != 0 || len(p.Excluded) != 2 || !strings.Contains(fmt.Sprint(p.Excluded), fmt.Sprintf("replayed %d times", MaxReplays)) {
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
		det, err := d.Message(w.t.Context(), "t.dlq", Ref{Position: Position{0, MaxReplays}}, false)
		if err != nil || det.Replays != MaxReplays || det.State.Status != StatusSucceeded {
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
