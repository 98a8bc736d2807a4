package host

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/plugin"
)

func TestStopLetsCallsFinish(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	e := start(t, config(t, "serve"))
	e.send(0, "gate "+gate, "ok", "gate "+gate)
	e.await(func() bool { return e.acked[1] == 1 })
	pid := e.Status().PID
	stopped := make(chan error)
	go func() { stopped <- e.Stop(context.Background()) }()
	eventually(t, "Stop begins", func() bool { return e.stop.Err() != nil })
	e.send(3, "ok")
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	e.mu.Lock()
	for !e.closed {
		e.changed.Wait()
	}
	e.mu.Unlock()
	if e.acked[0] != 1 || e.acked[2] != 1 || len(e.acked) != 3 {
		t.Errorf("acknowledged %v", e.acked)
	}
	if running(pid) {
		t.Error("the handler outlives Stop")
	}
	if s := e.Status(); s.State != StateStopped || s.PID != 0 {
		t.Errorf("status %+v", s)
	}
	if err := e.Stop(context.Background()); err != nil {
		t.Errorf("stopped again: %v", err)
	}
}

func TestStopEndsWhatDoesNotEnd(t *testing.T) {
	for _, c := range []struct {
		name, mode, value string
		want              []string
	}{
		{"hanging call", "serve", "hang", []string{"1 left unanswered"}},
		// The stream's end may be seen before the process's: it is told between the two then.
		{"no lifeline, no drain", "polite", "ok", []string{"did not end by itself", "killed by SIGKILL"}},
		{"frozen", "serve", "freeze-once ", []string{"did not end by itself"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(t, c.mode)
			cfg.beat = time.Hour // nothing but Stop ends it
			if c.mode == "polite" || c.name == "frozen" {
				cfg.Grace = 50 * time.Millisecond // it must be killed after all
			}
			value := c.value
			if c.name == "frozen" {
				value += filepath.Join(t.TempDir(), "frozen")
			}
			e := start(t, cfg)
			pid := e.Status().PID
			e.send(0, value)
			eventually(t, "it is sent", func() bool { return e.Status().Waiting == 0 })
			if c.name == "frozen" {
				eventually(t, "it is frozen", func() bool {
					b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
					return strings.Contains(string(b), ") T ")
				})
			}
			over, cancel := context.WithCancel(t.Context())
			cancel()
			wantError(t, e.Stop(over), c.want)
			if running(pid) {
				t.Error("the handler outlives Stop")
			}
		})
	}
}

func TestStopWithoutAReader(t *testing.T) {
	cfg := config(t, "serve")
	cfg.Grace = 100 * time.Millisecond
	before := runtime.NumGoroutine()
	h, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.Deliver(nil)
	d := record(1, "ok")
	h.Deliver([]plugin.Delivery{d})
	eventually(t, "it is answered", func() bool { return h.Status().InFlight+h.Status().Waiting == 0 })
	h.Stop(t.Context())
	eventually(t, "its goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}

func TestStopWhileDown(t *testing.T) {
	dir := t.TempDir()
	handler := filepath.Join(dir, "handler")
	write(t, handler, "#!/bin/sh\nexec "+os.Args[0]+"\n", 0o755)
	cfg := config(t, "serve")
	cfg.Path = handler
	cfg.BackoffMin, cfg.BackoffMax = time.Hour, time.Hour
	e := start(t, cfg)
	e.send(0, "exit")
	eventually(t, "it is down", func() bool { return e.Status().State == StateDown })
	if err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStopWhileStarting(t *testing.T) {
	dir := t.TempDir()
	handler, next := filepath.Join(dir, "handler"), filepath.Join(dir, "next")
	began := filepath.Join(dir, "began")
	write(t, handler, "#!/bin/sh\nexec "+os.Args[0]+"\n", 0o755)
	write(t, next, "#!/bin/sh\n: >"+began+"\nexec sleep 1000\n", 0o755)
	cfg := config(t, "serve")
	cfg.Path = handler
	cfg.StartTimeout = time.Hour
	e := start(t, cfg)
	if err := os.Rename(next, handler); err != nil {
		t.Fatal(err)
	}
	e.send(0, "exit")
	eventually(t, "the next process starts", exists(began))
	if err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
