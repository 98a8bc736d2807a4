package operate

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/test/kcat"
	"github.com/kconsume/kconsume/test/operate/lab"
)

// Records that fail again come back as new dead letters with their history, and
// after as many rounds as the guard allows they are refused, by all ways.
func TestFailsAgain(t *testing.T) {
	t.Parallel()
	const records = 6
	s := newScene(t, "again", 2)
	s.letters(0, records, refused())
	d, _ := s.start()
	olga, root := d.As(lab.OperatorToken), d.As(lab.AdminToken)
	latest := map[string]dlq.Position{} // by record id
	for round := 1; round <= dlq.MaxReplays; round++ {
		p := s.plan(olga, dlq.PlanRequest{Reason: fmt.Sprintf("round %d", round)})
		if p.Records != records || len(p.Excluded) > 0 && round == 1 {
			t.Fatalf("round %d: %+v", round, p)
		}
		j := s.settled(s.apply(olga, p.Digest).ID, olga)
		if j.Failed != records || j.Succeeded != 0 || j.Status != dlq.JobDone {
			t.Fatalf("round %d: %+v", round, j)
		}
		for _, m := range s.messages(olga, url.Values{"status": {"failed_again"}}) {
			if m.Replays == round-1 && (m.State.Again == nil || m.State.Job != j.ID) {
				t.Errorf("round %d: %v failed again, and it is not said as what: %+v", round, m.Position, m.State)
			}
		}
		fresh := s.messages(olga, url.Values{"status": {"new"}})
		if len(fresh) != records {
			t.Fatalf("round %d: %d new ones", round, len(fresh))
		}
		for _, m := range fresh {
			if m.Replays != round || m.Class != "permanent" || m.Handler != "probe@1" || m.FirstFailed.IsZero() || !strings.Contains(m.Error, "no such customer") {
				t.Errorf("round %d: %+v", round, m)
			}
			if before, ok := latest[m.ID]; ok && before == m.Position {
				t.Errorf("%s is still at %v", m.ID, before)
			}
			latest[m.ID] = m.Position
			var detail dlq.Detail
			olga.Get(t, fmt.Sprintf("/v1/dlq/%s/messages/%d/%d", s.dlq, m.Partition, m.Offset), &detail)
			if !tells(detail.Timeline, "earlier") || !tells(detail.Timeline, "first_failed") {
				t.Errorf("round %d: the timeline of %v is %+v", round, m.Position, detail.Timeline)
			}
		}
	}
	if len(latest) != records {
		t.Errorf("%d record ids, want %d: a record keeps its id", len(latest), records)
	}

	// The guard.
	p := s.plan(olga, dlq.PlanRequest{Reason: "once more"})
	guarded := false
	for _, c := range p.Excluded {
		guarded = guarded || c.Records == records && strings.Contains(c.What, "force") && strings.Contains(c.What, fmt.Sprint(dlq.MaxReplays))
	}
	if p.Records != 0 || !guarded {
		t.Errorf("beyond the guard: %+v", p)
	}
	var simple struct{ Replayed *int }
	olga.Want(t, http.StatusOK, http.MethodPost, "/v1/dlq/"+s.dlq+"/replay?limit=100", nil, &simple)
	if simple.Replayed == nil || *simple.Replayed != 0 {
		t.Errorf("the simple form sent %v", simple.Replayed)
	}
	if got := olga.Do(t, http.MethodPost, "/v1/plans/"+p.Digest+"/apply", nil); got.Status != http.StatusConflict {
		t.Errorf("a plan without records was applied: %v", got)
	}

	// Force needs an admin and a reason.
	path, ask := "/v1/dlq/"+s.dlq+"/plans", dlq.PlanRequest{Action: dlq.ActionReplay, Force: true, Reason: "the customer exists now"}
	if got := olga.Do(t, http.MethodPost, path, ask); got.Status != http.StatusForbidden || !strings.Contains(got.Problem().Detail, "admin") {
		t.Errorf("force by an operator: %v", got)
	}
	if got := root.Do(t, http.MethodPost, path, dlq.PlanRequest{Action: dlq.ActionReplay, Force: true}); got.Status != http.StatusBadRequest || !strings.Contains(got.Problem().Detail, "reason") {
		t.Errorf("force without a reason: %v", got)
	}
	var forced dlq.Plan
	root.Want(t, http.StatusCreated, http.MethodPost, path, ask, &forced)
	if forced.Records != records {
		t.Fatalf("forced: %+v", forced)
	}
	if got := olga.Do(t, http.MethodPost, "/v1/plans/"+forced.Digest+"/apply", nil); got.Status != http.StatusForbidden {
		t.Errorf("an operator applied what only an admin may force: %v", got)
	}
	j := s.settled(s.apply(root, forced.Digest).ID, root)
	if j.Failed != records {
		t.Errorf("forced: %+v", j)
	}
	for _, r := range kcat.Consume(t, s.bootstrap, s.topic+".replay") {
		if n := headerOf(r, "X-Replay-Count"); n == "" || n > fmt.Sprint(dlq.MaxReplays+1) {
			t.Errorf("X-Replay-Count is %q", n)
		}
	}
}

func tells(timeline []dlq.TimelineEntry, what string) bool {
	for _, e := range timeline {
		if e.What == what {
			return true
		}
	}
	return false
}
