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

// tick is the unit of CPU time in /proc: 100 Hz on every Linux.
const tick = 10 * time.Millisecond

// cpuTime returns what a process and all below it have used, those that have
// ended left out.
func cpuTime(pid int) (time.Duration, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	children := map[int][]int{}
	used := map[int]time.Duration{}
	for _, path := range stats {
		pid, parent, cpu, err := readStat(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // ended meanwhile
		}
		if err != nil {
			return 0, err
		}
		children[parent] = append(children[parent], pid)
		used[pid] = cpu
	}
	if _, ok := used[pid]; !ok {
		return 0, fmt.Errorf("read CPU time: process %d has ended", pid)
	}
	var total time.Duration
	for below := []int{pid}; len(below) > 0; {
		next := below[0]
		total += used[next]
		below = append(below[1:], children[next]...)
	}
	return total, nil
}

// readStat reads a /proc/PID/stat; see proc(5).
func readStat(path string) (pid, parent int, cpu time.Duration, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("read process state: %w", err)
	}
	// The name, in brackets, may hold anything; what follows does not.
	head, tail, ok := strings.Cut(string(b), " (")
	fields := strings.Fields(tail[strings.LastIndexByte(tail, ')')+1:])
	if !ok || len(fields) < 13 {
		return 0, 0, 0, fmt.Errorf("read process state: %s is %q", path, b)
	}
	var numbers [4]int
	for i, field := range []string{head, fields[1], fields[11], fields[12]} {
		if numbers[i], err = strconv.Atoi(field); err != nil {
			return 0, 0, 0, fmt.Errorf("read process state: %s: %w", path, err)
		}
	}
	return numbers[0], numbers[1], time.Duration(numbers[2]+numbers[3]) * tick, nil
}

// peakRSS returns the most memory a running process has had, in bytes.
func peakRSS(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read peak memory: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if kib, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kib), "kB")), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read peak memory: %w", err)
			}
			return n << 10, nil
		}
	}
	return 0, fmt.Errorf("read peak memory of process %d: no VmHWM", pid)
}
