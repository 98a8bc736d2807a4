package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/trial"
	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/engine/topology"
)

// verdict is what a trial showed.
type verdict struct {
	lines       []trial.Line
	compared    bool
	differences []trial.Difference
}

// verdictJSON is how -o json prints it.
type verdictJSON struct {
	Handler     string             `json:"handler"`
	Results     []trial.Line       `json:"results"`
	Counts      map[string]int     `json:"counts"`                // records by outcome
	Differences []trial.Difference `json:"differences,omitempty"` // from what was expected
	Notes       []string           `json:"notes,omitempty"`
}

// differing is how many records differ.
func (v *verdict) differing() int {
	seen := map[string]bool{}
	for _, d := range v.differences {
		seen[fmt.Sprint(d.Record, d.ID)] = true
	}
	return len(seen)
}

func (v *verdict) counts() map[string]int {
	n := map[string]int{}
	for _, l := range v.lines {
		n[l.Outcome]++
	}
	return n
}

func (v *verdict) print(in *invocation, r *trial.Report) error {
	switch in.opts.Text("output") {
	case "json":
		return printJSON(in.stdout, verdictJSON{text(r.Handler), append([]trial.Line{}, v.lines...), v.counts(), v.differences, r.Notes})
	case "jsonl":
		v.diff(in.stderr)
		return printJSONLines(in.stdout, v.lines)
	}
	if len(v.lines) == 0 {
		return nil
	}
	rows := [][]string{{"#", "RECORD", "OUTCOME", "WHY"}}
	for i := range v.lines {
		l := &v.lines[i]
		rows = append(rows, []string{strconv.Itoa(l.Record), clip(printable(l.ID), 60), way(&r.Results[i]), why(l)})
	}
	if err := table(in.stdout, rows); err != nil {
		return err
	}
	for _, n := range r.Notes {
		fmt.Fprintf(in.stdout, "note: %s\n", printable(n))
	}
	fmt.Fprintf(in.stdout, "%s: %s\n", printable(r.Handler), v.summary())
	v.diff(in.stdout)
	return nil
}

func (v *verdict) summary() string {
	text := "1 record: "
	if len(v.lines) != 1 {
		text = fmt.Sprintf("%d records: ", len(v.lines))
	}
	n := v.counts()
	var parts []string
	for _, f := range []engine.Fate{engine.FateDone, engine.FateDropped, engine.FateRetry, engine.FateDead, trial.FatePause} {
		if n[string(f)] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[string(f)], f))
		}
	}
	return text + strings.Join(parts, ", ")
}

// way is the way of a record: → retry.5s at +5s → dlq (transient).
func way(r *trial.Result) string {
	var parts []string
	for i := range r.Steps {
		s := &r.Steps[i]
		switch s.Fate {
		case engine.FateRetry:
			parts = append(parts, "→ "+s.Stage+" at +"+topology.FormatDelay(s.Delay))
		case engine.FateDead:
			parts = append(parts, "→ dlq")
		default:
			parts = append(parts, string(s.Fate))
		}
	}
	if c := r.Last().Class; c != "" {
		parts = append(parts, "("+string(c)+")")
	}
	return strings.Join(parts, " ")
}

// why is what the handler said about it.
func why(l *trial.Line) string {
	var parts []string
	if l.Code != "" {
		parts = append(parts, "["+clip(printable(l.Code), 40)+"]")
	}
	if l.Message != "" {
		parts = append(parts, clip(printable(l.Message), 200))
	}
	for _, e := range l.Emitted {
		parts = append(parts, "emits to "+clip(printable(e.Topic), 60))
	}
	return strings.Join(parts, " ")
}

// diff shows each record that differs: what was expected with -, what came with +.
func (v *verdict) diff(w io.Writer) {
	for i, d := range v.differences {
		if i == 0 || d.Record != v.differences[i-1].Record || d.ID != v.differences[i-1].ID {
			fmt.Fprintln(w, titleOf(d))
		}
		side(w, "-", d.Field, d.Expected)
		side(w, "+", d.Field, d.Actual)
	}
}

func titleOf(d trial.Difference) string {
	name := printable(d.ID)
	if d.Record > 0 {
		name = strings.TrimSpace(fmt.Sprintf("record %d %s", d.Record, name))
	}
	switch {
	case d.At == "":
		return name + ": it is not expected"
	case d.Actual == nil && d.Field == "":
		return name + ": there is no such record (" + d.At + ")"
	}
	return name + " (" + d.At + ")"
}

func side(w io.Writer, sign, field string, value json.RawMessage) {
	if value == nil {
		return
	}
	if field != "" {
		field += ": "
	}
	fmt.Fprintf(w, "%s %s%s\n", sign, field, clip(printable(string(value)), 400))
}
