// Package task is what a record of a chaos run holds: who it is, and what its
// handler shall do.
package task

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// Task is one record's content. A partition's tasks are numbered from 0; the
// number alone says which key it has and where it stands among that key's.
type Task struct {
	Partition int32
	Number    int64
	Written   int64 // unix ns: when it was made, before it was first sent
	Do        Action
}

// Action is what the handler does.
type Action string

const (
	OK        Action = "ok"
	Work      Action = "work"      // done after a few milliseconds
	Slow      Action = "slow"      // done after some hundred
	Once      Action = "once"      // a transient failure, then done
	Twice     Action = "twice"     // two of them
	Never     Action = "never"     // a transient failure each time
	Permanent Action = "permanent" // a permanent failure
	Panic     Action = "panic"
	Gated     Action = "gated" // a permanent failure, once the gate for its number is open
)

// Mixed is the usual mixture of actions: of 1000 records one is panicked over,
// one fails for good, one fails each time, 40 once and 10 twice.
func Mixed(partition int32, number int64) Action {
	// A multiplicative hash: neighbours, and the records of one key, differ.
	h := (uint64(number)*31 + uint64(partition)) * 0x9E3779B97F4A7C15 >> 32 % 1000
	switch {
	case h == 0:
		return Panic
	case h == 1:
		return Permanent
	case h == 2:
		return Never
	case h < 43:
		return Once
	case h < 53:
		return Twice
	case h < 63:
		return Slow
	case h < 200:
		return Work
	}
	return OK
}

// Always is the same action for every record.
func Always(a Action) func(int32, int64) Action {
	return func(int32, int64) Action { return a }
}

// Takes is how long a call runs.
func (a Action) Takes() time.Duration {
	switch a {
	case Work:
		return 5 * time.Millisecond
	case Slow:
		return 200 * time.Millisecond
	}
	return 0
}

// Fails reports whether the given delivery fails.
func (a Action) Fails(attempt int) bool {
	switch a {
	case Once:
		return attempt <= 1
	case Twice:
		return attempt <= 2
	case Never, Permanent, Panic, Gated:
		return true
	}
	return false
}

// Dead is the X-Error-Class with which a record ends in the DLQ, "" for one
// that is handled.
func (a Action) Dead() string {
	switch a {
	case Never:
		return "transient"
	case Permanent, Gated:
		return "permanent"
	case Panic:
		return "panic"
	}
	return ""
}

// Key is the key of a partition's task by its number, for so many keys.
func Key(partition int32, number int64, keys int) []byte {
	return fmt.Appendf(nil, "%d/%d", partition, number%int64(keys))
}

// Append appends the task as a record's value of at least size bytes.
func (t *Task) Append(b []byte, size int) []byte {
	b = fmt.Appendf(b, "%d %d %d %s ", t.Partition, t.Number, t.Written, t.Do)
	if n := size - len(b); n > 0 {
		b = append(b, bytes.Repeat([]byte{'.'}, n)...)
	}
	return b
}

// Parse reads a value.
func Parse(value []byte) (Task, error) {
	var t Task
	var fields [4][]byte
	rest := value
	for i := range fields {
		var found bool
		if fields[i], rest, found = bytes.Cut(rest, []byte{' '}); !found {
			return t, fmt.Errorf("parse task %.60q: it has %d fields", value, i)
		}
	}
	partition, err1 := strconv.ParseInt(string(fields[0]), 10, 32)
	number, err2 := strconv.ParseInt(string(fields[1]), 10, 64)
	written, err3 := strconv.ParseInt(string(fields[2]), 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return t, fmt.Errorf("parse task %.60q: no numbers", value)
	}
	return Task{int32(partition), number, written, Action(fields[3])}, nil
}
