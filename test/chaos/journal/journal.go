// Package journal is the log that a chaos run's handler keeps: a file for each
// of its processes, a line for each begin and each end of a call.
package journal

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"
)

// Outcome is how a call ended.
type Outcome byte

const (
	Unfinished Outcome = 0
	Done       Outcome = 'd'
	Failed     Outcome = 'f'
	Cancelled  Outcome = 'c' // its context ended first
	Altered    Outcome = 'a' // the record is not what was written
)

// Begin is the begin of a call.
type Begin struct {
	Call      int64 // its number in this process
	At        int64 // unix ns
	Partition int32 // origin
	Offset    int64 // origin
	Attempt   int
	Stage     string
	Number    int64 // of the task
	Written   int64
}

// End is the end of a call.
type End struct {
	Call    int64
	At      int64
	Outcome Outcome
}

// Writer writes the journal of one process. It is for many goroutines: each
// line is one write, and writes that append do not mix.
type Writer struct {
	out  io.Writer
	last atomic.Int64
}

// NewWriter makes a journal on a file opened to append.
func NewWriter(out io.Writer) *Writer { return &Writer{out: out} }

// Begin notes a call's begin and returns its number. An error means that the
// journal is no evidence any more: the process must end.
func (w *Writer) Begin(b Begin) (int64, error) {
	b.Call = w.last.Add(1)
	_, err := fmt.Fprintf(w.out, "B %d %d %d %d %d %s %d %d\n",
		b.Call, time.Now().UnixNano(), b.Partition, b.Offset, b.Attempt, b.Stage, b.Number, b.Written)
	return b.Call, err
}

// End notes a call's end.
func (w *Writer) End(call int64, o Outcome) error {
	_, err := fmt.Fprintf(w.out, "E %d %d %c\n", call, time.Now().UnixNano(), o)
	return err
}

// Parse reads one line without its end: one of the two is set.
func Parse(line []byte) (*Begin, *End, error) {
	f := bytes.Fields(line)
	switch {
	case len(f) == 9 && f[0][0] == 'B':
		var n numbers
		b := &Begin{
			Call: n.of(f[1]), At: n.of(f[2]), Partition: int32(n.of(f[3])), Offset: n.of(f[4]),
			Attempt: int(n.of(f[5])), Stage: string(f[6]), Number: n.of(f[7]), Written: n.of(f[8]),
		}
		return b, nil, n.err
	case len(f) == 4 && f[0][0] == 'E' && len(f[3]) == 1:
		var n numbers
		return nil, &End{Call: n.of(f[1]), At: n.of(f[2]), Outcome: Outcome(f[3][0])}, n.err
	}
	return nil, nil, fmt.Errorf("parse journal line %q", line)
}

// numbers parses and keeps the first error.
type numbers struct{ err error }

func (n *numbers) of(b []byte) int64 {
	v, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil && n.err == nil {
		n.err = fmt.Errorf("parse journal: %w", err)
	}
	return v
}
