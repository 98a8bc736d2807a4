package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/admin/dlq"
)

// What a job came to decides the exit code: a job that failed or was cancelled,
// or one with records of which nobody can tell.
func TestJobsWatchExitCodes(t *testing.T) {
	for _, one := range []struct {
		job  dlq.Job
		code int
		says string
	}{
		{dlq.Job{Status: dlq.JobDone, Done: 3, Succeeded: 3}, 0, ""},
		{dlq.Job{Status: dlq.JobDone, Action: dlq.ActionDiscard, Done: 3}, 0, ""},
		{dlq.Job{Status: dlq.JobDone, Done: 2, Succeeded: 2, Uncertain: 1}, 1, "dlq list t.dlq --status uncertain"},
		{dlq.Job{Status: dlq.JobFailed, Note: "the canary 0:1 failed again"}, 1, "the canary 0:1 failed again"},
		{dlq.Job{Status: dlq.JobCancelled, Note: "cancelled by ada: wrong one"}, 1, "wrong one"},
	} {
		one.job.ID, one.job.Topic, one.job.Records = "j1", "t.dlq", 3
		if one.job.Action == "" {
			one.job.Action = dlq.ActionReplay
		}
		s := newShell(t)
		newStandIn(t, s, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, one.job) }))
		r := s.run(t, "jobs", "watch", "j1")
		if r.code != one.code || !strings.Contains(r.stderr, one.says) || (one.says == "") != (r.stderr == "") {
			t.Errorf("%+v: %+v", one.job, r)
		}
		if r := s.run(t, "jobs", "show", "j1", "-o", "json"); r.code != 0 || decode[dlq.Job](t, r.stdout).Status != one.job.Status {
			t.Errorf("%+v", r)
		}
	}
}
