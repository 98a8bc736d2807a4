package operate

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/test/operate/lab"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What is asked wrongly is refused with what would be right, by everybody.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := newScene(t, "bad", 2)
	s.letters(0, 20, handled())
	d, _ := s.start()
	olga := d.As(lab.OperatorToken)
	lab.Until(t, "the state is read", func() bool {
		return olga.Do(t, http.MethodGet, "/v1/jobs", nil).Status == http.StatusOK
	})
	dlqPath := "/v1/dlq/" + s.dlq
	const get, post = http.MethodGet, http.MethodPost
	reason := map[string]string{"reason": "x"}
	for _, one := range []struct {
		name         string
		token        string
		method, path string
		body         any
		header       []string
		status       int
		says         string
	}{
		{"limit 0", "", post, dlqPath + "/replay?limit=0", nil, nil, 400, "1 to 100"},
		{"limit -1", "", post, dlqPath + "/replay?limit=-1", nil, nil, 400, "1 to 100"},
		{"limit 101", "", post, dlqPath + "/replay?limit=101", nil, nil, 400, "1 to 100"},
		{"limit 10.5", "", post, dlqPath + "/replay?limit=10.5", nil, nil, 400, "1 to 100"},
		{"limit x", "", post, dlqPath + "/replay?limit=x", nil, nil, 400, "1 to 100"},
		{"limit empty", "", post, dlqPath + "/replay?limit=", nil, nil, 400, "1 to 100"},
		{"limit twice", "", post, dlqPath + "/replay?limit=1&limit=2", nil, nil, 400, "twice"},
		{"limit misspelt", "", post, dlqPath + "/replay?limi=1", nil, nil, 400, "limit"},
		{"limit huge", "", post, dlqPath + "/replay?limit=99999999999999999999", nil, nil, 400, "1 to 100"},
		{"a body", "", post, dlqPath + "/replay", "limit=5", nil, 400, "no body"},
		{"key with a blank", "", post, dlqPath + "/replay", nil, []string{"Idempotency-Key", "a b"}, 400, "Idempotency-Key"},
		{"unknown topic", "", post, "/v1/dlq/nothing.dlq/replay", nil, nil, 404, "nothing.dlq"},
		{"the main topic", "", post, "/v1/dlq/" + s.topic + "/replay", nil, nil, 404, s.topic},
		{"groups of an unknown topic", "", get, "/v1/dlq/nothing.dlq/groups", nil, nil, 404, "nothing.dlq"},
		{"unknown digest", "", post, "/v1/plans/0123456789abcdef/apply", nil, nil, 404, "plan again"},
		{"unknown job", "", get, "/v1/jobs/nothing", nil, nil, 404, "list of jobs"},
		{"page of 0", "", get, dlqPath + "/messages?limit=0", nil, nil, 400, "1 to 500"},
		{"page of 501", "", get, dlqPath + "/messages?limit=501", nil, nil, 400, "1 to 500"},
		{"bad cursor", "", get, dlqPath + "/messages?cursor=zzz", nil, nil, 400, "cursor"},
		{"bad status", "", get, dlqPath + "/messages?status=lost", nil, nil, 400, "new"},
		{"bad time", "", get, dlqPath + "/messages?since=yesterday", nil, nil, 400, "2006-01-02T15:04:05Z"},
		{"bad position", "", get, dlqPath + "/messages/x/1", nil, nil, 400, "PARTITION:OFFSET"},
		{"negative offset", "", get, dlqPath + "/messages/0/-1", nil, nil, 400, "PARTITION:OFFSET"},
		{"no such offset", "", get, dlqPath + "/messages/0/999", nil, nil, 404, "0:999"},
		{"no such partition", "", get, dlqPath + "/messages/7/0", nil, nil, 404, "7:0"},
		{"no reason", "", post, dlqPath + "/messages/0/0/discard", map[string]string{"reason": " "}, nil, 400, "reason"},
		{"restore of a new one", "", post, dlqPath + "/messages/0/0/restore", reason, nil, 409, "new"},
		{"plan of an unknown action", "", post, dlqPath + "/plans", `{"action":"delete","selection":{}}`, nil, 400, "discard"},
		{"plan with a slip", "", post, dlqPath + "/plans", `{"action":"replay","selection":{"fingreprint":"x"}}`, nil, 400, "fingreprint"},
		{"plan into the DLQ", "", post, dlqPath + "/plans", `{"action":"replay","selection":{},"target":"` + s.dlq + `"}`, nil, 400, "source"},
		{"plan of no JSON", "", post, dlqPath + "/plans", `action=replay`, nil, 400, "body"},
		{"plan of another type", "", post, dlqPath + "/plans", `{}`, []string{"Content-Type", "text/plain"}, 415, "application/json"},
		{"too large a body", "", post, dlqPath + "/plans", `{"reason":"` + strings.Repeat("x", 1<<20) + `"}`, nil, 413, "bytes"},
		{"DELETE", "", http.MethodDelete, dlqPath + "/messages/0/0", nil, nil, 405, "DELETE"},
		{"GET of a replay", "", get, dlqPath + "/replay", nil, nil, 405, "GET"},
		{"nobody", "-", post, dlqPath + "/replay", nil, nil, 401, "Bearer"},
		{"a wrong token", "wrong-token-wrong-token-wrong-token-wrong", post, dlqPath + "/replay", nil, nil, 401, "admin-tokens"},
		{"a viewer", lab.ViewerToken, post, dlqPath + "/replay", nil, nil, 403, "operator"},
		{"a viewer's payload", lab.ViewerToken, get, dlqPath + "/messages?payload=true", nil, nil, 403, "reader"},
		{"a viewer's export", lab.ViewerToken, get, dlqPath + "/export", nil, nil, 403, "reader"},
		{"a reader's discard", lab.ReaderToken, post, dlqPath + "/messages/0/0/discard", reason, nil, 403, "operator"},
		{"another site's page", "", post, dlqPath + "/replay", nil, []string{"Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"}, 403, "site"},
	} {
		t.Run(strings.ReplaceAll(one.name, " ", "_"), func(t *testing.T) {
			api := &lab.API{URL: d.URL, Token: lab.OperatorToken}
			if one.token != "" {
				api.Token = strings.TrimPrefix(one.token, "-")
			}
			got := api.Do(t, one.method, one.path, one.body, one.header...)
			p := got.Problem()
			if got.Status != one.status || !strings.Contains(p.Detail, one.says) || p.Status != one.status || p.Type == "" || p.Title == "" ||
				!strings.HasPrefix(got.Header.Get("Content-Type"), "application/problem+json") {
				t.Errorf("%s %.200s: %.400s, want %d and %q", one.method, one.path, got, one.status, one.says)
			}
		})
	}
	if st := s.statuses(olga); st[dlq.StatusNew] != 20 || len(st) != 1 {
		t.Errorf("after all that the dead letters are %v", st)
	}
	if n := len(s.copies(s.topic+".replay", "X-Record-Id")); n != 0 {
		t.Errorf("%d copies were sent", n)
	}
}

// A plan whose DLQ has grown or changed since, and a record that somebody else
// was faster with.
func TestOutOfDate(t *testing.T) {
	t.Parallel()
	s := newScene(t, "stale", 2)
	s.letters(0, 4, handled())
	a, _ := s.start()
	b, _ := s.start()
	olga, otto := a.As(lab.OperatorToken), b.As(lab.SecondToken)
	stale := func(what, says string, p dlq.Plan) {
		t.Helper()
		got := olga.Do(t, http.MethodPost, "/v1/plans/"+p.Digest+"/apply", nil)
		if got.Status != http.StatusConflict || !strings.Contains(got.Problem().Detail, says) || !strings.Contains(got.Problem().Detail, "plan again") {
			t.Errorf("%s: %v", what, got)
		}
	}
	p := s.plan(olga, dlq.PlanRequest{Reason: "all"})
	s.letters(4, 2, handled())
	stale("the DLQ has grown", "2 more", p)
	p = s.plan(olga, dlq.PlanRequest{Reason: "all"})
	s.act(otto, 0, "discard", "nobody misses it")
	stale("one was discarded", "not to be had", p)

	// The second operator on the same record.
	got := olga.Do(t, http.MethodPost, s.at(dlq.Position{})+"/resolve", map[string]string{"reason": "done"})
	if got.Status != http.StatusConflict || !strings.Contains(got.Problem().Detail, "discarded") {
		t.Errorf("resolve of what another one discarded: %v", got)
	}
	// A job is its owner's: another operator does not end it. Its end is told with what stays sent.
	slow := s.plan(olga, dlq.PlanRequest{Reason: "slowly", Rate: 0.01})
	j := s.apply(olga, slow.Digest)
	lab.Until(t, "one is sent", func() bool { return s.statuses(otto)[dlq.StatusSucceeded] == 1 })
	other := otto.Do(t, http.MethodPost, "/v1/jobs/"+j.ID+"/cancel", map[string]string{"reason": "not mine"})
	if other.Status != http.StatusForbidden || !strings.Contains(other.Problem().Detail, "olga") {
		t.Errorf("another operator's cancel: %v", other)
	}
	var ended dlq.Job
	olga.Want(t, http.StatusOK, http.MethodPost, "/v1/jobs/"+j.ID+"/cancel", map[string]string{"reason": "too slow"}, &ended)
	ended = s.ended(j.ID, otto)
	if ended.Status != dlq.JobCancelled || !strings.Contains(ended.Note, "too slow") || !strings.Contains(ended.Note, "1 of 5 were sent and stay sent") {
		t.Errorf("cancelled: %+v", ended)
	}
	if st := s.statuses(otto); st[dlq.StatusSucceeded] != 1 || st[dlq.StatusNew] != 4 || st[dlq.StatusDiscarded] != 1 {
		t.Errorf("after the cancel they are %v", st)
	}
}

// Records that the brokers have deleted are gone, and it is said so; a plan with
// one of them sends the others.
func TestExpired(t *testing.T) {
	t.Parallel()
	s := newScene(t, "expired", 1)
	s.letters(0, 10, handled())
	d, _ := s.start()
	olga := d.As(lab.OperatorToken)
	s.plan(olga, dlq.PlanRequest{Reason: "to see that all is there"})
	s.act(olga, 2, "discard", "soon gone")
	if n := s.empty(s.dlq, 6); n != 6 {
		t.Fatalf("%d records were deleted", n)
	}
	for _, path := range []string{"", "/resolve", "/restore"} {
		method, body := http.MethodPost, any(map[string]string{"reason": "x"})
		if path == "" {
			method, body = http.MethodGet, nil
		}
		got := olga.Do(t, method, s.at(dlq.Position{Offset: 2})+path, body)
		if got.Status != http.StatusGone || !strings.Contains(got.Problem().Detail, "expired") {
			t.Errorf("%s %s: %v", method, path, got)
		}
	}
	p := s.plan(olga, dlq.PlanRequest{Reason: "some", Selection: dlq.Selection{Positions: []dlq.Position{{Offset: 3}, {Offset: 7}}}})
	if p.Records != 1 || len(p.Excluded) != 1 || !strings.Contains(p.Excluded[0].What, "not there") {
		t.Errorf("%+v", p)
	}
	all := s.plan(olga, dlq.PlanRequest{Reason: "all"})
	if j := s.settled(s.apply(olga, all.Digest).ID, olga); j.Succeeded != 4 {
		t.Errorf("%+v", j)
	}
}

// A target that refuses one record refuses that one: the others are sent, and it
// is new again, with the setting to change.
func TestTargetRefuses(t *testing.T) {
	t.Parallel()
	s := newScene(t, "refuses", 1)
	large := lab.Letters{Topic: s.topic, Group: s.group, Partitions: 1, First: 0, N: 1, Failures: handled(), Size: 6000}
	if err := large.Write(t.Context(), s.bootstrap); err != nil {
		t.Fatal(err)
	}
	s.letters(1, 5, handled())
	d, _ := s.start()
	olga := d.As(lab.OperatorToken)
	s.plan(olga, dlq.PlanRequest{Reason: "the topics are there by then"})
	client, err := kgo.NewClient(kgo.SeedBrokers(s.bootstrap))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	set := func(bytes string) {
		t.Helper()
		res, err := kadm.NewClient(client).AlterTopicConfigs(wait(t), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &bytes}}, s.topic+".replay")
		if err != nil || res[0].Err != nil {
			t.Fatal(err, fmt.Sprint(res))
		}
	}
	set("2000")
	p := s.plan(olga, dlq.PlanRequest{Reason: "all"})
	j := s.settled(s.apply(olga, p.Digest).ID, olga)
	if j.Status != dlq.JobDone || j.Done != 5 || j.Succeeded != 5 || j.Skipped != 1 || !strings.Contains(j.Note, "max.message.bytes") {
		t.Errorf("%+v", j)
	}
	if st := s.statuses(olga); st[dlq.StatusNew] != 1 || st[dlq.StatusSucceeded] != 5 {
		t.Errorf("they are %v", st)
	}
	set("1048576")
	again := s.plan(olga, dlq.PlanRequest{Reason: "the topic takes it now"})
	if j := s.settled(s.apply(olga, again.Digest).ID, olga); j.Done != 1 || j.Succeeded != 1 {
		t.Errorf("%+v", j)
	}
	if more := twice(s.copies(s.topic+".replay", "X-Record-Id")); len(more) > 0 {
		t.Errorf("sent twice: %q", more)
	}
}
