package operate

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/test/kcat"
	"github.com/kconsume/kconsume/test/operate/lab"
	kafkago "github.com/segmentio/kafka-go"
)

// A DLQ that is deleted and made anew has other records at the same places:
// nothing that was done before is applied to them. Its state topic stays.
func TestMadeAnew(t *testing.T) {
	for _, running := range []bool{true, false} {
		t.Run(map[bool]string{true: "while_running", false: "while_stopped"}[running], func(t *testing.T) {
			t.Parallel()
			s := newScene(t, fmt.Sprintf("anew-%v", running), 1)
			d := lab.Start(t, lab.Options{Bin: bin, Bootstrap: s.bootstrap, Group: s.group, Topic: s.topic, Handler: lab.Gate})
			api := d.As(lab.OperatorToken)
			s.fail(3)
			old := s.threeNew(api)
			s.act(api, 0, "discard", "x")
			s.act(api, 1, "resolve", "done by hand")
			open(t, d.Gate)
			p := s.plan(api, dlq.PlanRequest{Reason: "the table is free"})
			if j := s.settled(s.apply(api, p.Digest).ID, api); j.Succeeded != 1 {
				t.Fatalf("%+v", j)
			}
			// A plan that is not applied: to restore what was discarded.
			stale := s.plan(api, dlq.PlanRequest{Action: dlq.ActionRestore, Reason: "it was worth something"})
			if stale.Records != 2 {
				t.Fatalf("%+v", stale)
			}

			if !running {
				d.Stop(t)
			}
			s.anew()
			closed(t, d.Gate)
			if !running {
				d.Begin(t)
			}
			s.fail(3)
			fresh := s.threeNew(api)
			for i, m := range fresh {
				if m.Position != old[i].Position || m.Identity == old[i].Identity || m.ID == old[i].ID || m.State.By != "" {
					t.Errorf("record %d was %+v and is %+v", i, old[i], m)
				}
			}
			var all struct{ DLQs []dlq.Summary }
			api.Get(t, "/v1/dlq", &all)
			if sum := all.DLQs[0]; sum.Counts[dlq.StatusNew] != 3 || sum.Records != 3 || !sum.Oldest.Equal(fresh[0].Time) {
				t.Errorf("the summary says %+v, the oldest is of %v", sum, fresh[0].Time)
			}
			s.earlier(api, old)
			for _, m := range old {
				got := api.Do(t, http.MethodPost, s.at(m.Position)+"/restore", map[string]string{"reason": "back", "identity": m.Identity})
				if got.Status != http.StatusGone || !strings.Contains(got.Problem().Detail, "earlier topic") {
					t.Errorf("restore of the old %v: %v", m.Position, got)
				}
				if got := api.Do(t, http.MethodGet, s.at(m.Position)+"?identity="+m.Identity, nil); got.Status != http.StatusGone {
					t.Errorf("the old %v: %v", m.Position, got)
				}
			}
			if got := api.Do(t, http.MethodPost, "/v1/plans/"+stale.Digest+"/apply", nil); got.Status != http.StatusConflict || !strings.Contains(got.Problem().Detail, "anew") {
				t.Errorf("a plan of before: %v", got)
			}
			if st := s.statuses(api); st[dlq.StatusNew] != 3 || len(st) != 1 {
				t.Errorf("by now they are %v", st)
			}

			open(t, d.Gate)
			var simple struct{ Replayed int }
			api.Want(t, http.StatusOK, http.MethodPost, "/v1/dlq/"+s.dlq+"/replay?limit=10", nil, &simple)
			if simple.Replayed != 3 {
				t.Errorf("%d were replayed", simple.Replayed)
			}
			lab.Until(t, "the new ones are handled", func() bool { return s.statuses(api)[dlq.StatusSucceeded] == 3 })
			log, err := os.ReadFile(d.Log)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range fresh {
				if n := strings.Count(string(log), m.ID+"\n"); n != 1 {
					t.Errorf("%s was handled %d times", m.ID, n)
				}
			}
		})
	}
}

// fail writes records to the main topic: each becomes a dead letter.
func (s *scene) fail(n int) {
	s.t.Helper()
	var all []kcat.Record
	for i := range n {
		all = append(all, kcat.Record{Key: fmt.Append(nil, i), Value: fmt.Appendf(nil, "order %d", i)})
	}
	kcat.Produce(s.t, s.bootstrap, s.topic, 0, all)
}

// threeNew waits for three new dead letters, at 0, 1 and 2.
func (s *scene) threeNew(api *lab.API) (all []dlq.Message) {
	s.t.Helper()
	lab.Until(s.t, "three dead letters have come", func() bool {
		got := api.Do(s.t, http.MethodGet, "/v1/dlq/"+s.dlq+"/messages?order=oldest", nil)
		var page dlq.MessagePage
		if got.Status != http.StatusOK { // the topic is being made
			return false
		}
		decodeAs(s.t, got, http.StatusOK, &page)
		all = page.Messages
		return len(all) == 3
	})
	for i, m := range all {
		if m.State.Status != dlq.StatusNew || m.Offset != int64(i) {
			s.t.Fatalf("record %d is %+v", i, m)
		}
	}
	return all
}

func (s *scene) at(p dlq.Position) string {
	return fmt.Sprintf("/v1/dlq/%s/messages/%d/%d", s.dlq, p.Partition, p.Offset)
}

func (s *scene) act(api *lab.API, offset int64, action, reason string) {
	s.t.Helper()
	api.Want(s.t, http.StatusOK, http.MethodPost, s.at(dlq.Position{Offset: offset})+"/"+action, map[string]string{"reason": reason}, nil)
}

// earlier checks that the list and the audit still know what was before.
func (s *scene) earlier(api *lab.API, old []dlq.Message) {
	s.t.Helper()
	var page dlq.MessagePage
	api.Get(s.t, "/v1/dlq/"+s.dlq+"/messages?earlier=true", &page)
	got := map[string]dlq.Status{}
	for _, m := range page.Earlier {
		if !m.State.Earlier {
			s.t.Errorf("%v is not said to be of an earlier topic", m.Position)
		}
		got[m.Identity] = m.State.Status
	}
	want := []dlq.Status{dlq.StatusDiscarded, dlq.StatusResolved, dlq.StatusSucceeded}
	for i, m := range old {
		if got[m.Identity] != want[i] {
			s.t.Errorf("the old %v is %q, want %s", m.Position, got[m.Identity], want[i])
		}
	}
	var audit dlq.AuditPage
	api.Get(s.t, "/v1/audit?"+url.Values{"topic": {s.dlq}}.Encode(), &audit)
	var did []string
	for _, e := range audit.Entries {
		did = append(did, e.Action)
	}
	for _, action := range []string{"discard", "resolve", "replay"} {
		if !slices.Contains(did, action) {
			s.t.Errorf("the audit does not know of %s: %q", action, did)
		}
	}
}

// anew deletes the DLQ and makes it again at once.
func (s *scene) anew() {
	s.t.Helper()
	ctx, c := wait(s.t), s.client()
	res, err := c.DeleteTopics(ctx, &kafkago.DeleteTopicsRequest{Topics: []string{s.dlq}})
	if err != nil || res.Errors[s.dlq] != nil {
		s.t.Fatal(err, res)
	}
	for {
		res, err := c.CreateTopics(ctx, &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{lab.DLQ(s.topic, s.partitions)}})
		if err == nil && res.Errors[s.dlq] == nil {
			return
		}
		if ctx.Err() != nil {
			s.t.Fatal(err, res)
		}
		time.Sleep(20 * time.Millisecond) // the old one is still being deleted
	}
}

func open(t *testing.T, gate string) {
	t.Helper()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func closed(t *testing.T, gate string) {
	t.Helper()
	if err := os.Remove(gate); err != nil {
		t.Fatal(err)
	}
}
