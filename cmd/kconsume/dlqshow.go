package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kconsume/kconsume/admin"
	"github.com/kconsume/kconsume/admin/dlq"
)

// shownMost is how much of a payload a terminal is sent.
const shownMost = 4 << 10

func dlqShow(ctx context.Context, in *invocation) error {
	at, err := dlq.ParsePosition(in.args[1])
	if err != nil {
		return fail(exitUsage, "%w", err)
	}
	var d dlq.Detail
	call := admin.Call{Path: dlqPath(in.args[0], "messages", strconv.Itoa(int(at.Partition)), strconv.FormatInt(at.Offset, 10)), Query: url.Values{"payload": {"true"}}}
	if err := ask(ctx, in, call, &d); err != nil {
		return err
	}
	if in.opts.Text("output") == "json" {
		return printJSON(in.stdout, d)
	}
	return printDetail(in, &d)
}

func printDetail(in *invocation, d *dlq.Detail) error {
	rows := [][]string{
		{"dead letter", d.Topic + " " + d.Position.String()},
		{"record", printable(d.ID)},
		{"origin", fmt.Sprintf("%s/%d@%d of %s", d.Origin.Topic, d.Origin.Partition, d.Origin.Offset, when(d.Origin.Time))},
		{"status", strings.TrimSpace(string(d.State.Status) + " " + d.State.By)},
		{"failed with", strings.TrimSpace(d.Class + " " + printable(d.Code))},
		{"error", printable(d.Error)},
		{"handler", orDash(printable(d.Handler))},
		{"attempts", fmt.Sprintf("%d, replayed %d times", d.Attempts, d.Replays)},
		{"fingerprint", d.Fingerprint},
		{"size", strconv.Itoa(d.Size) + " bytes"},
	}
	if d.State.Reason != "" {
		rows = append(rows, []string{"reason", printable(d.State.Reason)})
	}
	if d.State.Sent != nil {
		rows = append(rows, []string{"sent to", d.State.Sent.Topic + " " + d.State.Sent.Position.String()})
	}
	if d.State.Again != nil {
		rows = append(rows, []string{"failed again as", d.State.Again.String()})
	}
	if p := d.Payload; p != nil {
		rows = append(rows, []string{"key", shownBytes(p.Key)})
		for _, h := range p.Headers {
			rows = append(rows, []string{"header " + printable(h.Key), shownBytes(h.Value)})
		}
	}
	if err := table(in.stdout, rows); err != nil {
		return err
	}
	fmt.Fprintln(in.stdout)
	lines := [][]string{{"AT", "WHAT", "BY", "DETAILS"}}
	for _, e := range d.Timeline {
		details := []string{}
		for _, one := range []string{e.Handler, e.Reason, e.Job} {
			if one != "" {
				details = append(details, printable(one))
			}
		}
		if e.Place != nil {
			details = append(details, e.Place.Topic+" "+e.Place.Position.String())
		}
		lines = append(lines, []string{when(e.At), e.What, orDash(printable(e.By)), strings.Join(details, ", ")})
	}
	if err := table(in.stdout, lines); err != nil {
		return err
	}
	if d.Payload != nil {
		fmt.Fprintf(in.stdout, "\n%s\n", value(d.Payload.Value))
	}
	return nil
}

// shownBytes is bytes on a line of a terminal; null and empty differ.
func shownBytes(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case !utf8.Valid(b):
		return "base64 " + clip(base64.StdEncoding.EncodeToString(b), 120)
	}
	return strconv.Quote(clip(string(b), 200))
}

// value is a record's value as people read it.
func value(b []byte) string {
	more := ""
	if len(b) > shownMost {
		more = fmt.Sprintf("\n… %d bytes in all: kconsume dlq export has them", len(b))
	}
	var indented strings.Builder
	e := json.NewEncoder(&indented)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	var raw json.RawMessage
	if len(b) <= shownMost && json.Unmarshal(b, &raw) == nil && e.Encode(raw) == nil {
		return multiline(strings.TrimSuffix(indented.String(), "\n"))
	}
	if b == nil || !utf8.Valid(b) {
		return shownBytes(b) + more
	}
	return multiline(string(b[:min(len(b), shownMost)])) + more
}

// multiline is a text as a terminal may be sent it, its lines kept.
func multiline(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "\n")
}
