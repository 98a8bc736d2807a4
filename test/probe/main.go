// Probe is a handler that does what a record's value says, up to the first
// line's end, and writes down each call:
//
//	ok        done
//	fail N    a transient error for the first N deliveries
//	perm      a permanent error
//	panic     a panic
//	sleep MS  done after a while
//	exit      the process exits
//	emit T    done, and the record is emitted to topic T
//
// Anything else is decoded as JSON: a poison pill. PROBE_LOG names the file that calls are
// appended to, a line each: begin or end, unix ns, attempt, stage, record id,
// and, quoted, the key and the value's first line.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/kconsume/kconsume/plugin"
)

var errDown = errors.New("the gateway is down")

// version is what the probe says it is; the linker sets another one.
var version = "1"

func main() {
	log, err := os.OpenFile(os.Getenv("PROBE_LOG"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe: PROBE_LOG:", err)
		os.Exit(1)
	}
	plugin.Serve(plugin.Config{Name: "probe", Version: version}, plugin.HandlerFunc(func(_ context.Context, m *plugin.Message) error {
		word, _, _ := bytes.Cut(m.Value, []byte("\n"))
		note := func(what string) {
			// One write a line: appends do not mix.
			fmt.Fprintf(log, "%s %d %d %s %s %q %q\n", what, time.Now().UnixNano(), m.Attempt, m.Stage, m.ID, key(m.Key), word)
		}
		note("begin")
		defer note("end")
		if topic, ok := bytes.CutPrefix(word, []byte("emit ")); ok {
			m.Emit(plugin.Record{Topic: string(topic), Key: m.Key, Value: m.Value})
			return nil
		}
		return act(string(word), m.Attempt)
	}))
}

// key shows a key, null told from empty.
func key(k []byte) string {
	if k == nil {
		return "null"
	}
	return "=" + string(k)
}

func act(word string, attempt int) error {
	var n int
	switch {
	case word == "ok":
		return nil
	case word == "perm":
		return plugin.Permanent(errors.New("no such customer"))
	case word == "panic":
		panic("probe")
	case word == "exit":
		os.Exit(3)
	case scan(word, "fail %d", &n):
		if attempt <= n {
			return plugin.Transient(errDown)
		}
		return nil
	case scan(word, "sleep %d", &n):
		time.Sleep(time.Duration(n) * time.Millisecond)
		return nil
	}
	return json.Unmarshal([]byte(word), &struct{}{})
}

func scan(s, format string, n *int) bool {
	got, err := fmt.Sscanf(s, format, n)
	return err == nil && got == 1
}
