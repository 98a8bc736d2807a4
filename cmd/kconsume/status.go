package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/kconsume/kconsume/admin"
	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
)

func statusCommand() command {
	return command{name: "status", usage: "show what a daemon on this host is doing",
		description: "Asks the daemon behind --admin, or the one of --group, or the only one there is.",
		use:         option.Status, action: status}
}

func status(ctx context.Context, in *invocation) error {
	path, err := findSocket(in)
	if err != nil {
		return err
	}
	var s daemonStatus
	if err := admin.NewClient(path).Status(ctx, &s); err != nil {
		return socketFailure(path, err)
	}
	if in.opts.Text("output") == "json" {
		return printJSON(in.stdout, s)
	}
	return printStatus(in, s, path)
}

// findSocket says which daemon is meant.
func findSocket(in *invocation) (string, error) {
	if path, ok := strings.CutPrefix(in.opts.Text("admin"), "unix:"); ok && in.opts.Given("admin") {
		return path, nil
	}
	group := in.opts.Text("group")
	found := admin.FindSockets(group, in.getenv)
	whose := ""
	if group != "" {
		whose = fmt.Sprintf(" of group %q", group)
	}
	switch len(found) {
	case 0:
		return "", fail(exitUnavailable, "no daemon%s: %s and the services' runtime directories: start it, or name its socket with --admin unix:PATH", whose, admin.RuntimeDir(in.getenv))
	case 1:
		return found[0], nil
	}
	return "", fail(exitUsage, "several daemons%s: %s: choose with --admin unix:PATH", whose, strings.Join(found, ", "))
}

// socketFailure says what to do where a socket does not answer.
func socketFailure(path string, err error) error {
	if _, refused := errors.AsType[*admin.CallError](err); refused {
		return err
	}
	switch {
	case errors.Is(err, os.ErrPermission):
		return fail(exitDenied, "not allowed to ask the daemon: %s: run it as the daemon's user, or as a member of its group", path)
	case errors.Is(err, os.ErrNotExist):
		return fail(exitUnavailable, "no socket: %s: start the daemon, or name another with --admin unix:PATH", path)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return fail(exitUnavailable, "no daemon answers: %s: it has ended: start it, or name another with --admin unix:PATH", path)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fail(exitLater, "the daemon does not answer in time: %s: try again", path)
	}
	return err
}

func printStatus(in *invocation, s daemonStatus, path string) error {
	state := string(s.State) + " since " + s.Since.Format(time.RFC3339)
	rows := [][]string{
		{"group", s.Group}, {"state", state},
		{"handler", strings.TrimSpace(fmt.Sprintf("%s %s %s, %d restarts", s.Handler.Name, s.Handler.Version, s.Handler.State, s.Handler.Restarts))},
		{"in flight", strconv.Itoa(s.InFlight)}, {"buffered", option.FormatSize(s.Buffered)},
		{"process", fmt.Sprintf("%d, version %s, socket %s", s.PID, s.Version, path)},
	}
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
	for _, st := range s.Stages {
		for _, p := range st.Partitions {
			if !p.OpenSince.IsZero() {
				rows = append(rows, []string{"transaction", fmt.Sprintf("an open transaction holds up %s/%d at offset %d since %s", st.Topic, p.Partition, p.Position, p.OpenSince.Format(time.RFC3339))})
			}
		}
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
