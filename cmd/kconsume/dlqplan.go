package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kconsume/kconsume/admin"
	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
	"golang.org/x/term"
)

// planCommand is a command that does something to dead letters.
func planCommand(action dlq.Action, usage, description string) command {
	use := option.Status | option.Letters | option.Selecting | option.Acting | option.Planning | option.Paging
	if action == dlq.ActionReplay {
		use |= option.Replaying
	}
	if description == "" {
		description = "With a position it is done at once. With a selection nothing is done without --apply, and it exits with 2 if there is something to do."
	}
	return command{name: string(action), args: []string{"TOPIC", "[PARTITION:OFFSET]"}, usage: usage, description: description, use: use,
		action: func(ctx context.Context, in *invocation) error { return planned(ctx, in, action) }}
}

func planned(ctx context.Context, in *invocation, action dlq.Action) error {
	if action != dlq.ActionReplay && strings.TrimSpace(in.opts.Text("reason")) == "" {
		return fail(exitUsage, "missing --reason: kconsume dlq %s: say why; it stands in the audit", action)
	}
	req, err := planRequest(in, action)
	if err != nil {
		return err
	}
	if action != dlq.ActionReplay && len(in.args) == 2 {
		return actOn(ctx, in, req)
	}
	var p dlq.Plan
	if err := ask(ctx, in, admin.Call{Method: http.MethodPost, Path: dlqPath(in.args[0], "plans"), Body: req, Within: time.Minute}, &p); err != nil {
		return err
	}
	if !in.opts.Bool("apply") || p.Records == 0 {
		if err := printLetterPlan(in, &p); err != nil {
			return err
		}
		if p.Records == 0 {
			return nil
		}
		return errChanges
	}
	var j dlq.Job
	if err := ask(ctx, in, admin.Call{Method: http.MethodPost, Path: "/v1/plans/" + p.Digest + "/apply", Key: in.opts.Text("idempotency-key")}, &j); err != nil {
		return err
	}
	if in.opts.Bool("detach") {
		return printJob(in, &j)
	}
	return watchJob(ctx, in, j)
}

func planRequest(in *invocation, action dlq.Action) (dlq.PlanRequest, error) {
	s := dlq.Selection{
		Fingerprint: in.opts.Text("fingerprint"), Class: in.opts.Text("class"), Handler: in.opts.Text("failed-by"),
	}
	if in.opts.Given("limit") {
		s.Limit = in.opts.Int("limit")
	}
	for _, st := range in.opts.List("status") {
		s.Statuses = append(s.Statuses, dlq.Status(st))
	}
	if in.opts.Given("key") {
		key := in.opts.Text("key")
		s.Key = &key
	}
	for flag, at := range map[string]*time.Time{"since": &s.Since, "until": &s.Until} {
		if text := in.opts.Text(flag); text != "" {
			t, err := time.Parse(time.RFC3339, text)
			if err != nil {
				return dlq.PlanRequest{}, fail(exitUsage, "bad --%s %q: write a time such as 2006-01-02T15:04:05Z", flag, text)
			}
			*at = t
		}
	}
	if len(in.args) == 2 {
		at, err := dlq.ParsePosition(in.args[1])
		if err != nil {
			return dlq.PlanRequest{}, fail(exitUsage, "%w", err)
		}
		s.Positions = []dlq.Position{at}
	}
	r := dlq.PlanRequest{Action: action, Selection: s, Reason: in.opts.Text("reason")}
	if action == dlq.ActionReplay {
		r.Target, r.Canary, r.Force, r.Rate = in.opts.Text("target"), in.opts.Bool("canary"), in.opts.Bool("force"), float64(in.opts.Int("rate"))
	}
	return r, nil
}

// actOn does something to one dead letter.
func actOn(ctx context.Context, in *invocation, r dlq.PlanRequest) error {
	at := r.Selection.Positions[0]
	var m dlq.Message
	err := ask(ctx, in, admin.Call{
		Method: http.MethodPost, Path: dlqPath(in.args[0], "messages", strconv.Itoa(int(at.Partition)), strconv.FormatInt(at.Offset, 10), string(r.Action)),
		Body: map[string]string{"reason": r.Reason},
	}, &m)
	if err != nil {
		return err
	}
	if in.opts.Text("output") == "json" {
		return printJSON(in.stdout, listed{m, m.State.Status})
	}
	fmt.Fprintf(in.stdout, "%s %s: %s\n", m.Topic, m.Position, m.State.Status)
	return nil
}

func printLetterPlan(in *invocation, p *dlq.Plan) error {
	if in.opts.Text("output") == "json" {
		return printJSON(in.stdout, p)
	}
	rows := [][]string{{"plan", p.Digest + ", good until " + when(p.Expires)}, {string(p.Request.Action), fmt.Sprintf("%d records, %s", p.Records, fmt.Sprintf("%d bytes", p.Bytes))}}
	if p.Target != "" {
		rows = append(rows, []string{"to", p.Target})
	}
	for _, c := range p.Errors {
		rows = append(rows, []string{"failed with", fmt.Sprintf("%d × %s", c.Records, clip(printable(c.What), 100))})
	}
	for _, c := range p.Excluded {
		rows = append(rows, []string{"left out", fmt.Sprintf("%d × %s", c.Records, clip(printable(c.What), 100))})
	}
	for _, w := range p.Warnings {
		rows = append(rows, []string{"warning", printable(w)})
	}
	if err := table(in.stdout, rows); err != nil {
		return err
	}
	if p.Records > 0 {
		fmt.Fprintln(in.stdout, "nothing was done: add --apply to do it")
	}
	return nil
}

const (
	pollJob = 300 * time.Millisecond
	// outcomeWait is how long the outcomes of what a job has sent are waited for:
	// copies that fail may wait in retry topics for hours.
	outcomeWait = time.Minute
)

// watchJob shows a job until it ends and, if that comes soon, until it is known
// how all its copies ended. An interrupt ends the watching alone.
func watchJob(ctx context.Context, in *invocation, j dlq.Job) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	bar := newBar(in.stderr)
	defer bar.end()
	var ended time.Time
	for !j.Status.Ended() || onTheirWay(&j) > 0 && (ended.IsZero() || time.Since(ended) < outcomeWait) {
		if j.Status.Ended() && ended.IsZero() {
			ended = time.Now()
		}
		bar.show(&j)
		select {
		case <-ctx.Done():
			bar.end()
			if j.Status.Ended() {
				return printJob(in, &j)
			}
			fmt.Fprintf(in.stderr, "job %s goes on: kconsume jobs show %s\n", j.ID, j.ID)
			return nil
		case <-time.After(pollJob):
		}
		var now dlq.Job // not j: what an answer leaves out would stay as it was
		switch err := ask(ctx, in, admin.Call{Path: "/v1/jobs/" + j.ID}, &now); {
		case err == nil:
			j = now
		case ctx.Err() == nil:
			bar.end()
			return fmt.Errorf("job %s goes on, but: %w", j.ID, err)
		}
	}
	bar.end()
	if err := printJob(in, &j); err != nil {
		return err
	}
	switch {
	case j.Status != dlq.JobDone:
		return fail(exitFailed, "job %s is %s: %s", j.ID, j.Status, printable(j.Note))
	case j.Uncertain > 0:
		return fail(exitFailed, "job %s: of %d records it cannot be told whether they were sent: kconsume dlq list %s --status uncertain", j.ID, j.Uncertain, j.Topic)
	}
	return nil
}

// onTheirWay is how many copies of a job it is not known of how they ended.
func onTheirWay(j *dlq.Job) int {
	if j.Action != dlq.ActionReplay {
		return 0
	}
	return max(0, j.Done-j.Succeeded-j.Failed)
}

// bar shows a job's progress in place on a terminal, and nothing anywhere else.
type bar struct {
	out   io.Writer // nil = no terminal
	shown bool
}

func newBar(out io.Writer) *bar {
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &bar{out: out}
	}
	return &bar{}
}

const barWidth = 30

func (b *bar) show(j *dlq.Job) {
	if b.out == nil || j.Records == 0 {
		return
	}
	b.shown = true
	n := j.Done * barWidth / j.Records
	fmt.Fprintf(b.out, "\r\x1b[K%s %s%s %d/%d  succeeded %d  failed again %d", j.Status, strings.Repeat("█", n), strings.Repeat("░", barWidth-n), j.Done, j.Records, j.Succeeded, j.Failed)
}

func (b *bar) end() {
	if b.shown {
		fmt.Fprint(b.out, "\r\x1b[K")
		b.shown = false
	}
}
