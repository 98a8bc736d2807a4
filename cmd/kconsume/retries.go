package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
	"github.com/kconsume/kconsume/engine/adopt"
	"github.com/kconsume/kconsume/engine/topics"
	"github.com/kconsume/kconsume/engine/topology"
	"github.com/segmentio/kafka-go"
	"golang.org/x/term"
)

func retriesListCommand() command {
	return command{name: "list", usage: "show what waits on the retry topics, by group",
		description: "Reads the retry and replay topics of the main topics, those of earlier --retry settings included. A group in the state Dead does not exist.",
		use:         option.Retries, required: []string{"brokers", "topic"}, action: retriesList}
}

func retriesAdoptCommand() command {
	return command{name: "adopt", usage: "take over what waits for a group that was renamed",
		description: "Copies the waiting records of --from to the end of the topics that they wait on, for --group; due times and attempts stay. It refuses while --from has members. Without --apply nothing is written, and it exits with 2 if there is something to take over.",
		use:         option.Retries | option.Adopt, required: []string{"brokers", "topic", "group", "from"}, action: retriesAdopt}
}

type waitingJSON struct {
	Topic    string    `json:"topic"`
	Group    string    `json:"group"`
	State    string    `json:"state"` // of the group, "" = not known
	Members  int       `json:"members"`
	Records  int       `json:"records"`
	FirstDue time.Time `json:"first_due,omitzero"`
}

func retriesList(ctx context.Context, in *invocation) error {
	return onRetries(ctx, in, []topics.Operation{topics.ReadFrom}, func(c *kafka.Client, names []string) error {
		found, err := adopt.List(ctx, c, names)
		if err != nil {
			return err
		}
		out := []waitingJSON{}
		for _, w := range found {
			out = append(out, waitingJSON(w))
		}
		if in.opts.Text("output") == "json" {
			return printJSON(in.stdout, out)
		}
		if len(out) == 0 {
			fmt.Fprintln(in.stdout, "nothing waits")
			return nil
		}
		rows := [][]string{{"TOPIC", "GROUP", "STATE", "MEMBERS", "RECORDS", "FIRST DUE"}}
		for _, w := range out {
			due := "-"
			if !w.FirstDue.IsZero() {
				due = w.FirstDue.UTC().Format(time.RFC3339)
			}
			rows = append(rows, []string{w.Topic, w.Group, orDash(w.State), strconv.Itoa(w.Members), strconv.Itoa(w.Records), due})
		}
		return table(in.stdout, rows)
	})
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

type adoptedJSON struct {
	From    string        `json:"from"`
	To      string        `json:"to"`
	Applied bool          `json:"applied"`
	Records int           `json:"records"`
	Topics  []adopt.Moved `json:"topics"`
}

func retriesAdopt(ctx context.Context, in *invocation) error {
	does := []topics.Operation{topics.ReadFrom}
	if in.opts.Bool("apply") {
		does = append(does, topics.WriteTo)
	}
	return onRetries(ctx, in, does, func(c *kafka.Client, names []string) error {
		p := adopt.Plan{From: in.opts.Text("from"), To: in.opts.Text("group"), Topics: names, Apply: in.opts.Bool("apply")}
		told := newProgress(in.stderr)
		p.Progress = told.show
		moved, err := adopt.Run(ctx, c, p)
		told.end()
		if err != nil {
			if errors.Is(err, adopt.ErrInUse) {
				return fail(exitLater, "%w", err)
			}
			return err
		}
		out := adoptedJSON{From: p.From, To: p.To, Applied: p.Apply, Topics: append([]adopt.Moved{}, moved...)}
		for _, m := range moved {
			out.Records += m.Records
		}
		if err := printAdopted(in, out); err != nil {
			return err
		}
		if !p.Apply && out.Records > 0 {
			return errChanges
		}
		return nil
	})
}

func printAdopted(in *invocation, a adoptedJSON) error {
	if in.opts.Text("output") == "json" {
		return printJSON(in.stdout, a)
	}
	if a.Records == 0 {
		fmt.Fprintf(in.stdout, "nothing waits for group %q\n", a.From)
		return nil
	}
	rows := [][]string{{"TOPIC", "FROM", "TO", "RECORDS"}}
	for _, m := range a.Topics {
		rows = append(rows, []string{m.Topic, a.From, a.To, strconv.Itoa(m.Records)})
	}
	if err := table(in.stdout, rows); err != nil {
		return err
	}
	if !a.Applied {
		fmt.Fprintln(in.stdout, "nothing was written: add --apply to take them over")
	}
	return nil
}

// onRetries does something with the topics that records wait on, under the
// present settings and earlier ones. It takes as long as it takes: an operator
// waits, and an interrupt ends it.
func onRetries(ctx context.Context, in *invocation, does []topics.Operation, do func(*kafka.Client, []string) error) error {
	t, err := configuredTopology(in)
	if err != nil {
		return err
	}
	names := retryTopics(t)
	err = withClient(in, names, func(c *kafka.Client) error {
		if err := mayUse(ctx, c, names, does); err != nil {
			return err
		}
		all, err := topics.Names(ctx, c)
		if err != nil {
			return err
		}
		for _, stages := range t.Leftovers(all) {
			for _, st := range stages {
				names = append(names, st.Topic)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return withClient(in, names, func(c *kafka.Client) error { return do(c, names) })
}

// mayUse asks for the permissions first: a topic that may not be seen looks like
// one in which nothing waits.
func mayUse(ctx context.Context, c *kafka.Client, names []string, does []topics.Operation) error {
	var needs []topics.Need
	for _, name := range names {
		for _, o := range does {
			needs = append(needs, topics.OnTopic(name, o))
		}
	}
	return topics.Allowed(ctx, c, needs)
}

// retryTopics are the topics on which records wait for their group.
func retryTopics(t *topology.Topology) []string {
	var names []string
	for _, l := range t.Lines {
		for _, s := range l.Stages[1:] {
			names = append(names, s.Topic)
		}
	}
	return names
}

// progress shows a count in place on a terminal, and nothing anywhere else.
type progress struct {
	out   io.Writer // nil = no terminal
	shown time.Time
}

const progressEvery = 200 * time.Millisecond

func newProgress(out io.Writer) *progress {
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &progress{out: out}
	}
	return &progress{}
}

func (p *progress) show(records int) {
	if p.out == nil || time.Since(p.shown) < progressEvery {
		return
	}
	p.shown = time.Now()
	fmt.Fprintf(p.out, "\r%d records", records)
}

func (p *progress) end() {
	if p.out != nil && !p.shown.IsZero() {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
