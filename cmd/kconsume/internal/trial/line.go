package trial

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/kconsume/kconsume/admin/export"
	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/engine/topology"
	"github.com/kconsume/kconsume/plugin"
)

// Line is a result as a line of JSON: what a trial prints, and, without the
// message, what it writes down as expected.
type Line struct {
	Record   int       `json:"record,omitempty"` // from 1
	ID       string    `json:"id,omitempty"`
	Outcome  string    `json:"outcome"`            // a Fate
	Stage    string    `json:"stage,omitempty"`    // retry: where it waits
	Delay    string    `json:"delay,omitempty"`    // retry: how long
	Attempts int       `json:"attempts,omitempty"` // deliveries, where there was more than one
	Via      []string  `json:"via,omitempty"`      // where it waited between them
	Class    string    `json:"class,omitempty"`
	Code     string    `json:"code,omitempty"`
	Message  string    `json:"message,omitempty"`
	Emitted  []Emitted `json:"emitted,omitempty"`
}

// Emitted is a record that the handler emits.
type Emitted struct {
	Topic   string              `json:"topic"`
	Key     export.Bytes        `json:"key"`
	Value   export.Bytes        `json:"value"`
	Headers []export.HeaderJSON `json:"headers,omitempty"`
}

// LineOf is a result as a line.
func LineOf(r *Result) Line {
	last := r.Last()
	l := Line{
		Record: r.Record, ID: r.ID, Outcome: string(last.Fate),
		Class: string(last.Class), Code: last.Code, Message: last.Message,
	}
	if len(r.Steps) > 1 {
		l.Attempts = len(r.Steps)
	}
	for _, s := range r.Steps[:len(r.Steps)-1] {
		l.Via = append(l.Via, s.Stage)
	}
	if last.Fate == engine.FateRetry {
		l.Stage, l.Delay = last.Stage, topology.FormatDelay(last.Delay)
	}
	for _, e := range last.Emitted {
		l.Emitted = append(l.Emitted, emittedOf(&e))
	}
	return l
}

func emittedOf(r *plugin.Record) Emitted {
	e := Emitted{Topic: r.Topic, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		e.Headers = append(e.Headers, export.HeaderJSON{Key: export.Bytes(h.Key), Value: h.Value})
	}
	return e
}

// WriteLines writes results as they are printed.
func WriteLines(w io.Writer, lines []Line) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	for _, l := range lines {
		if err := e.Encode(l); err != nil {
			return fmt.Errorf("print results: %w", err)
		}
	}
	return nil
}

// Expectation is results as a file that they are compared with later. A record
// is named by its id, or by its number where another one has the same id. The
// messages, which tell times and addresses, are left out.
func Expectation(lines []Line) ([]byte, error) {
	times := map[string]int{}
	for _, l := range lines {
		times[l.ID]++
	}
	out := slices.Clone(lines)
	for i := range out {
		l := &out[i]
		l.Message = ""
		if times[l.ID] == 1 {
			l.Record = 0
		} else {
			l.ID = ""
		}
	}
	var b bytes.Buffer
	err := WriteLines(&b, out)
	return b.Bytes(), err
}
