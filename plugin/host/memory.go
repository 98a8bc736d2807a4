package host

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// oomMargin is by how much rather a handler is killed for want of memory than
// the process that would start it again; oomMost is the kernel's limit.
const (
	oomMargin = 500
	oomMost   = 1000
)

// yieldMemory makes the kernel take a process before this one.
func yieldMemory(pid int) error {
	b, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return fmt.Errorf("read own OOM score: %w", err)
	}
	own, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return fmt.Errorf("read own OOM score: %w", err)
	}
	score := strconv.Itoa(min(oomMost, own+oomMargin))
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(score), 0); err != nil {
		return fmt.Errorf("raise OOM score of the handler's process: %w", err)
	}
	return nil
}
