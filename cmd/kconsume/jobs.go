package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/kconsume/kconsume/admin"
	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
)

func jobsCommand() command {
	const use = option.Status | option.Letters
	return command{name: "jobs", usage: "look at what is being done to dead letters", sub: []command{
		{name: "list", usage: "list jobs, the latest first", use: use | option.Paging, forms: []string{"jsonl"}, action: jobsList},
		{name: "show", args: []string{"ID"}, usage: "show a job", use: use, action: jobsShow},
		{name: "watch", args: []string{"ID"}, usage: "follow a job to its end; an interrupt ends the watching and not the job", use: use, action: jobsWatch},
		{name: "cancel", args: []string{"ID"}, usage: "have a job send nothing more; what was sent stays sent", use: use | option.Acting, action: jobsCancel},
	}}
}

func jobsList(ctx context.Context, in *invocation) error {
	out := []dlq.Job{}
	err := eachPage(ctx, in, "/v1/jobs", url.Values{}, in.opts.Int("limit"), func(get func(any) error) (int, string, error) {
		var p dlq.JobPage
		if err := get(&p); err != nil {
			return 0, "", err
		}
		out = append(out, p.Jobs...)
		return len(p.Jobs), p.Cursor, nil
	})
	if err != nil {
		return err
	}
	rows := [][]string{{"JOB", "ACTION", "TOPIC", "STATUS", "DONE", "SUCCEEDED", "FAILED AGAIN", "BEGAN", "BY"}}
	for _, j := range out {
		rows = append(rows, []string{j.ID, string(j.Action), j.Topic, string(j.Status), fmt.Sprintf("%d/%d", j.Done, j.Records),
			strconv.Itoa(j.Succeeded), strconv.Itoa(j.Failed), when(j.Began), printable(j.By)})
	}
	return printEntries(in, out, rows, "no jobs", "")
}

func jobsShow(ctx context.Context, in *invocation) error {
	var j dlq.Job
	if err := ask(ctx, in, admin.Call{Path: "/v1/jobs/" + url.PathEscape(in.args[0])}, &j); err != nil {
		return err
	}
	return printJob(in, &j)
}

func jobsWatch(ctx context.Context, in *invocation) error {
	var j dlq.Job
	if err := ask(ctx, in, admin.Call{Path: "/v1/jobs/" + url.PathEscape(in.args[0])}, &j); err != nil {
		return err
	}
	return watchJob(ctx, in, j)
}

func jobsCancel(ctx context.Context, in *invocation) error {
	if in.opts.Text("reason") == "" {
		return fail(exitUsage, "missing --reason: kconsume jobs cancel: say why; it stands in the audit")
	}
	var j dlq.Job
	call := admin.Call{Method: http.MethodPost, Path: "/v1/jobs/" + url.PathEscape(in.args[0]) + "/cancel", Body: map[string]string{"reason": in.opts.Text("reason")}}
	if err := ask(ctx, in, call, &j); err != nil {
		return err
	}
	return printJob(in, &j)
}

// outcomes says what became of a job's records.
func outcomes(j *dlq.Job) string {
	text := strconv.Itoa(j.Done)
	if j.Action == dlq.ActionReplay {
		text += fmt.Sprintf(", succeeded %d, failed again %d, on their way %d", j.Succeeded, j.Failed, onTheirWay(j))
	}
	return text + fmt.Sprintf(", skipped %d, uncertain %d", j.Skipped, j.Uncertain)
}

func printJob(in *invocation, j *dlq.Job) error {
	if in.opts.Text("output") == "json" {
		return printJSON(in.stdout, j)
	}
	rows := [][]string{
		{"job", j.ID}, {"does", fmt.Sprintf("%s of %d records of %s", j.Action, j.Records, j.Topic)}, {"status", string(j.Status)},
		{"done", outcomes(j)},
		{"by", printable(j.By)}, {"began", when(j.Began)},
	}
	if j.Target != "" {
		rows = append(rows, []string{"to", j.Target})
	}
	if j.Reason != "" {
		rows = append(rows, []string{"reason", printable(j.Reason)})
	}
	if j.Note != "" {
		rows = append(rows, []string{"note", printable(j.Note)})
	}
	if !j.Ended.IsZero() {
		rows = append(rows, []string{"ended", when(j.Ended)})
	}
	return table(in.stdout, rows)
}
