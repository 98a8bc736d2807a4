package main

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kconsume/kconsume/admin"
	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
)

func dlqCommand() command {
	const letters = option.Status | option.Letters
	return command{name: "dlq", usage: "look at dead letters, send them again, or close them", sub: []command{
		{name: "list", args: []string{"[TOPIC]"}, usage: "list DLQs, or the dead letters of one, the newest first",
			use: letters | option.Selecting | option.Paging | option.Earlier, forms: []string{"jsonl"}, action: dlqList},
		{name: "groups", args: []string{"TOPIC"}, usage: "show dead letters by what they failed with",
			use: letters | option.Paging | option.Filtering, forms: []string{"jsonl"}, action: dlqGroups},
		{name: "show", args: []string{"TOPIC", "PARTITION:OFFSET"}, usage: "show one dead letter and what happened to it",
			use: letters, action: dlqShow},
		{name: "export", args: []string{"TOPIC"}, usage: "print dead letters, a line of JSON each, as plugin test reads them",
			use: letters | option.Selecting | option.Paging, action: dlqExport},
		planCommand(dlq.ActionReplay, "send dead letters again",
			"Without --apply it says what would be sent, sends nothing, and exits with 2 if there is something to send.\nWith it the daemon does the work: Ctrl-C ends the watching and not the job."),
		planCommand(dlq.ActionResolve, "say that dead letters need nothing more", ""),
		planCommand(dlq.ActionDiscard, "say that dead letters are not worth anything; they can be restored", ""),
		planCommand(dlq.ActionRestore, "make dead letters new again", ""),
	}}
}

func dlqPath(topic string, more ...string) string {
	return "/v1/dlq/" + url.PathEscape(topic) + "/" + strings.Join(more, "/")
}

// selected is what the flags of a selection say, as a query.
func selected(in *invocation) url.Values {
	q := url.Values{}
	set := func(flag, name string) {
		if v := in.opts.Text(flag); v != "" {
			q.Set(name, v)
		}
	}
	set("fingerprint", "fingerprint")
	set("class", "class")
	set("failed-by", "handler")
	set("since", "since")
	set("until", "until")
	if in.opts.Given("key") {
		q.Set("key", in.opts.Text("key"))
	}
	if s := in.opts.List("status"); len(s) > 0 {
		q.Set("status", strings.Join(s, ","))
	}
	return q
}

// eachPage asks page by page until most entries were taken, or there are no more.
func eachPage(ctx context.Context, in *invocation, path string, q url.Values, most int, page func(get func(any) error) (n int, cursor string, err error)) error {
	for most > 0 {
		q.Set("limit", strconv.Itoa(min(most, dlq.MaxPage)))
		n, cursor, err := page(func(into any) error { return ask(ctx, in, admin.Call{Path: path, Query: q}, into) })
		if err != nil {
			return err
		}
		if most -= n; cursor == "" {
			return nil
		}
		q.Set("cursor", cursor)
	}
	return nil
}

func dlqList(ctx context.Context, in *invocation) error {
	if len(in.args) == 0 {
		return dlqSummaries(ctx, in)
	}
	q := selected(in)
	if in.opts.Bool("all") {
		q.Set("earlier", "true")
	}
	out := []dlq.Message{}
	note := ""
	err := eachPage(ctx, in, dlqPath(in.args[0], "messages"), q, in.opts.Int("limit"), func(get func(any) error) (int, string, error) {
		var p dlq.MessagePage
		if err := get(&p); err != nil {
			return 0, "", err
		}
		out = append(append(out, p.Messages...), p.Earlier...)
		note = p.Scan.Note
		return len(p.Messages), p.Cursor, nil
	})
	if err != nil {
		return err
	}
	return printMessages(in, out, note)
}

// listed is a message of dlq list, with its status where programs look first.
type listed struct {
	dlq.Message
	Status dlq.Status `json:"status"`
}

func printMessages(in *invocation, ms []dlq.Message, note string) error {
	rows := [][]string{{"POSITION", "STATUS", "CAME", "CLASS", "ATTEMPTS", "REPLAYS", "HANDLER", "ORIGIN", "ERROR"}}
	all := []listed{}
	for _, m := range ms {
		all = append(all, listed{m, m.State.Status})
		status := string(m.State.Status)
		if m.State.Earlier {
			status += " (earlier topic)"
		}
		rows = append(rows, []string{m.Position.String(), status, when(m.Time), m.Class, strconv.Itoa(m.Attempts), strconv.Itoa(m.Replays),
			orDash(printable(m.Handler)), fmt.Sprintf("%s/%d@%d", m.Origin.Topic, m.Origin.Partition, m.Origin.Offset), clip(printable(m.Error), errorWidth)})
	}
	return printEntries(in, all, rows, "no dead letters", note)
}

// printEntries prints values as -o says: rows are what people read of them, and
// empty is what they read where there are none. note says what the list lacks.
func printEntries[T any](in *invocation, values []T, rows [][]string, empty, note string) error {
	switch in.opts.Text("output") {
	case "json":
		return printJSON(in.stdout, values)
	case "jsonl":
		return printJSONLines(in.stdout, values)
	}
	if len(values) == 0 {
		fmt.Fprintln(in.stdout, empty)
	} else if err := table(in.stdout, rows); err != nil {
		return err
	}
	if note != "" {
		fmt.Fprintln(in.stderr, "note: "+note)
	}
	return nil
}

// errorWidth is how much of an error a table shows, in characters.
const errorWidth = 60

// when is a time as tables show it.
func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

func dlqSummaries(ctx context.Context, in *invocation) error {
	var got struct {
		DLQs []dlq.Summary `json:"dlqs"`
	}
	if err := ask(ctx, in, admin.Call{Path: "/v1/dlq"}, &got); err != nil {
		return err
	}
	rows := [][]string{{"DLQ", "OF", "RECORDS", "NEW", "REPLAYED", "FAILED AGAIN", "UNCERTAIN", "OLDEST OPEN", "RETENTION TAKES IT"}}
	for _, s := range got.DLQs {
		n := func(st dlq.Status) string { return strconv.FormatInt(s.Counts[st], 10) }
		takes := "never"
		if !s.Deadline.IsZero() {
			takes = when(s.Deadline)
		}
		rows = append(rows, []string{s.Topic, s.Of, strconv.FormatInt(s.Records, 10), n(dlq.StatusNew), n(dlq.StatusReplayed), n(dlq.StatusFailedAgain), n(dlq.StatusUncertain), when(s.Oldest), takes})
	}
	return printEntries(in, got.DLQs, rows, "no DLQs", "")
}

func dlqGroups(ctx context.Context, in *invocation) error {
	out := []dlq.Group{}
	note := ""
	q := url.Values{}
	if s := in.opts.List("status"); len(s) > 0 {
		q.Set("status", strings.Join(s, ","))
	}
	err := eachPage(ctx, in, dlqPath(in.args[0], "groups"), q, in.opts.Int("limit"), func(get func(any) error) (int, string, error) {
		var p dlq.GroupPage
		if err := get(&p); err != nil {
			return 0, "", err
		}
		out, note = append(out, p.Groups...), p.Scan.Note
		return len(p.Groups), p.Cursor, nil
	})
	if err != nil {
		return err
	}
	rows := [][]string{{"FINGERPRINT", "OPEN", "RECORDS", "CLASS", "FIRST", "LAST", "24 H", "HANDLERS", "ERROR"}}
	for _, g := range out {
		rows = append(rows, []string{g.Fingerprint, strconv.FormatInt(g.Open, 10), strconv.FormatInt(g.Records, 10), g.Class, when(g.First), when(g.Last),
			spark(g.Spark[:]), clip(printable(strings.Join(g.Handlers, " ")), 30), clip(printable(g.Error), errorWidth)})
	}
	return printEntries(in, out, rows, "no dead letters", note)
}

// spark draws counts as bars of a line's height.
func spark(counts []int64) string {
	bars := []rune("▁▂▃▄▅▆▇█")
	var most int64
	for _, n := range counts {
		most = max(most, n)
	}
	var b strings.Builder
	for _, n := range counts {
		switch {
		case n == 0:
			b.WriteByte(' ')
		default:
			b.WriteRune(bars[(n*int64(len(bars)-1))/most])
		}
	}
	return b.String()
}

func dlqExport(ctx context.Context, in *invocation) error {
	c, err := daemonOf(in)
	if err != nil {
		return err
	}
	q := selected(in)
	if in.opts.Given("limit") {
		q.Set("limit", strconv.Itoa(in.opts.Int("limit")))
	}
	if err := c.Copy(ctx, admin.Call{Path: dlqPath(in.args[0], "export"), Query: q}, in.stdout); err != nil {
		return refused(c, err)
	}
	return nil
}
