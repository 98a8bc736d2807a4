package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
)

func statusCommand() command {
	return command{name: "status", usage: "show what a daemon on this host is doing",
		description: "Asks the daemon behind --admin, or the one of --group, or the only one there is.",
		use:         option.Status, action: status}
}

func status(ctx context.Context, in *invocation) error {
	c, err := daemonOf(in)
	if err != nil {
		return err
	}
	var s daemonStatus
	if err := c.Status(ctx, &s); err != nil {
		return refused(c, err)
	}
	if in.opts.Text("output") == "json" {
		return printJSON(in.stdout, s)
	}
	return printStatus(in, s, c.Name())
}

func printStatus(in *invocation, s daemonStatus, at string) error {
	state := string(s.State) + " since " + s.Since.Format(time.RFC3339)
	rows := [][]string{{"group", s.Group}, {"state", state}}
	rows = append(rows, handlerRows(&s.Handler)...)
	rows = append(rows, [][]string{
		{"in flight", strconv.Itoa(s.InFlight)}, {"buffered", option.FormatSize(s.Buffered)},
		{"process", fmt.Sprintf("%d, version %s, at %s", s.PID, s.Version, at)},
	}...)
	if s.Instance != "" {
		rows = append(rows, []string{"instance", s.Instance})
	}
	for _, p := range []string{s.Problem, s.Handler.LastExit} {
		if p != "" {
			rows = append(rows, []string{"problem", p})
		}
	}
	for _, w := range s.Writes {
		rows = append(rows, []string{"write fails", fmt.Sprintf("%s/%d: %s (%s), %d waiting", w.Topic, w.Partition, w.Reason, w.Kind, w.Waiting)})
	}
	for _, p := range s.TopicProblems {
		rows = append(rows, []string{"topic", p.Text})
	}
	for _, u := range s.Unowned {
		rows = append(rows, []string{"unowned", fmt.Sprintf("partitions %v of %s have unread records and no member reads them", u.Partitions, u.Topic)})
	}
	for _, line := range openTransactions(&s.Status) {
		rows = append(rows, []string{"transaction", line})
	}
	for _, o := range s.Orphans {
		more := ""
		if o.Partial {
			more = " or more"
		}
		rows = append(rows, []string{"orphaned", fmt.Sprintf("%d%s records wait for group %q, in which nobody is: kconsume retries adopt --from %q", o.Records, more, o.Group, o.Group)})
	}
	if err := table(in.stdout, rows); err != nil || len(s.Stages) == 0 {
		return err
	}
	fmt.Fprintln(in.stdout)
	rows = [][]string{{"TOPIC", "STAGE", "PARTITIONS", "LAG", "WAITING", "IN FLIGHT"}}
	for _, st := range s.Stages {
		stage := st.Stage
		if st.Leftover {
			stage += " (leftover)"
		}
		rows = append(rows, []string{st.Topic, stage, strconv.Itoa(len(st.Partitions)),
			strconv.FormatInt(st.Lag, 10), strconv.Itoa(st.Waiting), strconv.Itoa(st.InFlight)})
	}
	return table(in.stdout, rows)
}

// handlerRows tell of the handler, and of each of its processes where there is
// more to tell than of one that runs.
func handlerRows(h *handlerStatus) [][]string {
	line := strings.TrimSpace(fmt.Sprintf("%s %s %s since %s, %d restarts", h.Name, h.Version, h.State, h.Since.Format(time.RFC3339), h.Restarts))
	if h.Upgrades+h.FailedUpgrades > 0 {
		line += fmt.Sprintf(", %d upgrades", h.Upgrades)
	}
	if h.FailedUpgrades > 0 {
		line += fmt.Sprintf(" and %d that failed", h.FailedUpgrades)
	}
	rows := [][]string{{"handler", line}}
	if len(h.Processes) > 1 {
		for _, p := range h.Processes {
			rows = append(rows, []string{"handler process", p.line()})
		}
	}
	for _, c := range []struct {
		n    uint64
		what string
	}{
		{uint64(h.Blamed), "records found to kill its process: they are in the DLQ as handler_crash"},
		{uint64(h.Late), "calls run on past their deadline"},
		{uint64(h.BadAnswers), "answers to nothing that was asked, or to something twice"},
		{h.OutputDropped, "bytes of its output were not logged"},
	} {
		if c.n > 0 {
			rows = append(rows, []string{"handler", fmt.Sprintf("%d %s", c.n, c.what)})
		}
	}
	return rows
}

func (p *processStatus) line() string {
	if p.PID == 0 {
		return fmt.Sprintf("none since %s, %d restarts", p.Since.Format(time.RFC3339), p.Restarts)
	}
	line := fmt.Sprintf("%d, version %s since %s, %d in flight", p.PID, p.Version, p.Since.Format(time.RFC3339), p.InFlight)
	if p.Replaced {
		line += ", replaced: answers what it has"
	}
	return line
}
