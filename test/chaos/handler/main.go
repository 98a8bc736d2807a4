// Handler is the handler of chaos runs: it does what a record's task says and
// writes down each call's begin and end.
//
// CHAOS_LOG names its journal, to which the process's id is added. CHAOS_KEYS
// is the number of keys a partition has. CHAOS_GATE names the files that open
// gates: FILE.0 for tasks with an even number, FILE.1 for the others.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/test/chaos/journal"
	"github.com/kconsume/kconsume/test/chaos/task"
)

var (
	errDown    = errors.New("the gateway is down")
	errNobody  = errors.New("no such customer")
	errAltered = errors.New("the record is not what was written")
)

func main() {
	h, err := newHandler(os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos handler:", err)
		os.Exit(1)
	}
	plugin.Serve(plugin.Config{Name: "chaos", Version: "1"}, h)
}

type handler struct {
	log  *journal.Writer
	keys int
	gate string
}

func newHandler(getenv func(string) string) (*handler, error) {
	keys, err := strconv.Atoi(getenv("CHAOS_KEYS"))
	if err != nil || keys < 1 {
		return nil, fmt.Errorf("CHAOS_KEYS is %q: give the number of keys", getenv("CHAOS_KEYS"))
	}
	path := getenv("CHAOS_LOG") + "." + strconv.Itoa(os.Getpid())
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return &handler{log: journal.NewWriter(f), keys: keys, gate: getenv("CHAOS_GATE")}, nil
}

// Handle is one delivery. What it returns is decided, and written down, before
// kconsume can hear of it.
func (h *handler) Handle(ctx context.Context, m *plugin.Message) error {
	t, err := task.Parse(m.Value)
	call, lost := h.log.Begin(journal.Begin{
		Partition: m.Partition, Offset: m.Offset, Attempt: m.Attempt, Stage: m.Stage, Number: t.Number, Written: t.Written,
	})
	h.must(lost)
	if err != nil || t.Partition != m.Partition || !bytes.Equal(m.Key, task.Key(t.Partition, t.Number, h.keys)) {
		h.must(h.log.End(call, journal.Altered))
		return plugin.Permanent(errAltered)
	}
	if err := h.work(ctx, &t); err != nil {
		h.must(h.log.End(call, journal.Cancelled))
		return err
	}
	if !t.Do.Fails(m.Attempt) {
		h.must(h.log.End(call, journal.Done))
		return nil
	}
	h.must(h.log.End(call, journal.Failed))
	switch t.Do.Dead() {
	case "panic":
		panic("chaos")
	case "permanent":
		return plugin.Permanent(errNobody)
	}
	return plugin.Transient(errDown)
}

func (h *handler) work(ctx context.Context, t *task.Task) error {
	if t.Do == task.Gated {
		return h.wait(ctx, fmt.Sprint(h.gate, ".", t.Number%2))
	}
	takes := t.Do.Takes()
	if takes == 0 {
		return nil
	}
	select {
	case <-time.After(takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait returns when the gate is open: when its file is there.
func (h *handler) wait(ctx context.Context, gate string) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(gate); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// must ends the process where its journal cannot be written: a call that is
// not written down would be no evidence.
func (h *handler) must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos handler: write journal:", err)
		os.Exit(1)
	}
}
