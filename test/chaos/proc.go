package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is the unit of CPU time in /proc: 100 Hz on every Linux.
const clockTick = 10 * time.Millisecond

// cpuTime is what a process has used so far; see proc(5).
func cpuTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	// The name, in brackets, may hold anything; what follows does not.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("read CPU time of process %d: %q", pid, b)
	}
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err := errors.Join(err1, err2); err != nil {
		return 0, fmt.Errorf("read CPU time of process %d: %w", pid, err)
	}
	return time.Duration(user+system) * clockTick, nil
}

// memory is a field of /proc/PID/status in bytes: VmRSS now, VmHWM at most.
func memory(pid int, field string) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		kib, ok := strings.CutPrefix(line, field+":")
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kib), "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read memory: %w", err)
		}
		return n << 10, nil
	}
	return 0, fmt.Errorf("read memory of process %d: no %s", pid, field)
}

// connections is how many established TCP connections a process has.
func connections(pid int) (int, error) {
	established := map[string]bool{} // by inode
	for _, table := range []string{"tcp", "tcp6"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			return 0, fmt.Errorf("read connections: %w", err)
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 9 && f[3] == "01" {
				established["socket:["+f[9]+"]"] = true
			}
		}
	}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return 0, fmt.Errorf("read connections: %w", err)
	}
	n := 0
	for _, fd := range fds {
		to, err := os.Readlink(fd)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // closed meanwhile
		}
		if err != nil {
			return 0, fmt.Errorf("read connections: %w", err)
		}
		if established[to] {
			n++
		}
	}
	return n, nil
}

func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
