package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// first makes a command the first process of a container.
func first(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a namespace of processes")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// As the first process it answers and ends as it does otherwise.
func TestFirstProcessEndsAsItsChild(t *testing.T) {
	s := newShell(t)
	for _, c := range []struct {
		args []string
		code int
	}{{[]string{"version"}, 0}, {[]string{"no-such-command"}, 64}} {
		cmd := first(t, s.command(c.args...))
		out, _ := cmd.CombinedOutput() // the code is what is looked at
		if code := cmd.ProcessState.ExitCode(); code != c.code || len(out) == 0 {
			t.Errorf("%v: %d, want %d: %s", c.args, code, c.code, out)
		}
	}
}

// What a handler starts and leaves behind is reaped, and SIGTERM drains.
func TestFirstProcessReapsOrphans(t *testing.T) {
	s := newShell(t)
	wrap := filepath.Join(s.dir, "wrap")
	// The grandchild outlives its parent, which becomes the handler.
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nsetsid sleep 1 &\n%s=handler exec %s\n", roleEnv, exe)
	if err := os.WriteFile(wrap, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := first(t, s.command("dev", "--handler", wrap, "--metrics", "", "--log-level", "info"))
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }() // it may have ended
	top := cmd.Process.Pid
	for range 3 { // handlers are killed while what they left still runs
		var handler, left int
		until(t, "a handler and its grandchild", func() bool {
			handler, left = 0, 0
			for _, p := range below(top) {
				if p.name == "sleep" && p.state != 'Z' {
					left, handler = p.pid, p.parent
				}
			}
			return left != 0 && handler != top
		})
		if err := syscall.Kill(handler, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		until(t, "what it left is gone", func() bool {
			for _, p := range below(top) {
				if p.pid == left {
					return false
				}
			}
			return true
		})
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, log.String())
	}
}

type processOf struct {
	pid, parent int
	state       byte
	name        string
}

// below are the processes under one.
func below(top int) (out []processOf) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	under := map[int]bool{top: true}
	for range 4 { // as deep as it gets here
		out = out[:0]
		for _, path := range stats {
			b, err := os.ReadFile(path)
			if err != nil {
				continue // it has ended
			}
			text := string(b)
			open, shut := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
			fields := strings.Fields(text[shut+1:])
			pid, _ := strconv.Atoi(strings.TrimSpace(text[:open]))
			parent, _ := strconv.Atoi(fields[1])
			if under[parent] {
				under[pid] = true
				out = append(out, processOf{pid, parent, fields[0][0], text[open+1 : shut]})
			}
		}
	}
	return out
}
