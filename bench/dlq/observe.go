package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// memory samples a process' resident set.
type memory struct {
	pid  int
	quit chan struct{}
	done sync.WaitGroup
	mu   sync.Mutex
	most int64
}

const sampleEvery = 50 * time.Millisecond

func watch(pid int) *memory {
	m := &memory{pid: pid, quit: make(chan struct{})}
	m.done.Go(func() {
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				m.sample()
			case <-m.quit:
				return
			}
		}
	})
	return m
}

func (m *memory) stop() { close(m.quit); m.done.Wait() }

func (m *memory) sample() {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", m.pid))
	fields := strings.Fields(string(b))
	if err != nil || len(fields) < 2 {
		return
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.most = max(m.most, pages*int64(os.Getpagesize()))
}

func (m *memory) reset() {
	m.mu.Lock()
	m.most = 0
	m.mu.Unlock()
	m.sample()
}

func (m *memory) peak() int64 {
	m.sample()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.most
}

// latencies are what the handler wrote down, by the time of sending.
type latencies []struct{ sent, took int64 } // ns

func readLatencies(path string) (latencies, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read latencies: %w", err)
	}
	defer f.Close()
	var all latencies
	for lines := bufio.NewScanner(f); lines.Scan(); {
		sent, took, _ := strings.Cut(lines.Text(), " ")
		s, err1 := strconv.ParseInt(sent, 10, 64)
		t, err2 := strconv.ParseInt(took, 10, 64)
		if err1 == nil && err2 == nil { // the last line may be cut off
			all = append(all, struct{ sent, took int64 }{s, t})
		}
	}
	return all, nil
}

func (l latencies) between(from, to time.Time) sorted {
	var out sorted
	for _, one := range l {
		if one.sent >= from.UnixNano() && one.sent < to.UnixNano() {
			out = append(out, one.took)
		}
	}
	slices.Sort(out)
	return out
}

// sorted are nanoseconds in order.
type sorted []int64

func (s sorted) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	return time.Duration(s[min(len(s)-1, int(q*float64(len(s))))])
}
