package host

import (
	"errors"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// What the packages bring for handlers that need more than the service gives.
const (
	jitDropIn  = "/usr/share/kconsume/systemd/jit.conf"
	moreDropIn = "/usr/share/kconsume/systemd/more.conf"
)

// confinement says which limit of the service may have ended a process, and what
// lifts it; "" where nothing speaks for one. words are the process's last.
func confinement(status syscall.WaitStatus, words string, executable func() bool) string {
	if status.Signaled() && status.Signal() == unix.SIGSYS {
		return "the service forbids the system call that it made: see " + moreDropIn
	}
	if wantsToExecute(status, words) && !executable() {
		return "the service lets nobody make memory executable: a handler that compiles while it runs, as Node and Java do, needs " + jitDropIn
	}
	return ""
}

// wantsToExecute is whether a process ended as those do that may make no memory
// executable: V8 traps or aborts, a JVM exits, its words on stdout, where these do
// not look for them.
func wantsToExecute(status syscall.WaitStatus, words string) bool {
	if status.Signaled() {
		switch status.Signal() {
		case unix.SIGTRAP, unix.SIGABRT, unix.SIGILL, unix.SIGSEGV:
			return true
		}
		return false
	}
	words = strings.ToLower(words)
	return status.ExitStatus() != 0 && (words == "" || strings.Contains(words, "executable") || strings.Contains(words, "not permitted"))
}

// canExecute is whether this process, and so its handlers, can have memory that
// is written and executed.
func canExecute() bool {
	b, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES)
	}
	_ = unix.Munmap(b) // a page
	return true
}
