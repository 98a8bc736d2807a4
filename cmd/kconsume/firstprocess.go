package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// isFirst reports whether this is the first process of a container. It inherits
// what handlers start and leave behind, and nobody else reaps that.
func isFirst() bool { return os.Getpid() == 1 }

// runFirst runs this program as a child, hands it all signals, and reaps every
// process that ends until that child does. It returns the child's exit code.
// This process starts no other, so that waiting for all takes nobody's child away.
func runFirst(args []string, stderr io.Writer) int {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals)
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(stderr, "kconsume: start itself as a child:", err)
		return exitFailed
	}
	cmd := &exec.Cmd{Path: self, Args: args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	if term.IsTerminal(int(os.Stdin.Fd())) {
		// Ctrl-C is for the child alone: with ours handed on it would be two.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Foreground: true}
	}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(stderr, "kconsume: start itself as a child:", err)
		return exitFailed
	}
	for s := range signals {
		switch s {
		case syscall.SIGCHLD:
			if code, ended := reap(cmd.Process.Pid); ended {
				return code
			}
		case syscall.SIGURG: // Go's own
		default:
			_ = cmd.Process.Signal(s) // it may have ended: the next SIGCHLD tells
		}
	}
	return exitFailed
}

// reap takes note of all that have ended, and says whether the child is one of them.
func reap(child int) (code int, ended bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil || pid <= 0:
			return 0, false
		case pid == child && status.Signaled():
			return 128 + int(status.Signal()), true
		case pid == child:
			return status.ExitStatus(), true
		}
	}
}
