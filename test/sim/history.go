package sim

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

// history is what happened, in order. It is kept as it comes and told only when
// somebody wants to read it.
type history struct {
	begin time.Time

	mu     sync.Mutex
	events []event
}

// event is a line of a history.
type event struct {
	at     time.Duration
	what   string
	member string
	rec    *record
	note   string
	n      int
}

func (h *history) add(e event) {
	e.at = time.Since(h.begin)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

func (h *history) fault(member, note string) { h.add(event{what: "fault", member: member, note: note}) }

func (h *history) now() string { return fmt.Sprintf("%9.3fs", time.Since(h.begin).Seconds()) }

// write tells the whole history.
func (h *history) write(w io.Writer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := bufio.NewWriter(w)
	for _, e := range h.events {
		fmt.Fprintf(b, "%9.3fs %-5s %-9s", e.at.Seconds(), e.member, e.what)
		if e.rec != nil {
			fmt.Fprintf(b, " %d/%d", e.rec.partition, e.rec.offset)
		}
		fmt.Fprintf(b, " %d %s\n", e.n, e.note)
	}
	return b.Flush()
}

// logOf is a writer for a member's log lines.
func (h *history) logOf(member string) io.Writer { return &logLines{h, member} }

type logLines struct {
	h      *history
	member string
}

// Write adds one line.
func (w *logLines) Write(b []byte) (int, error) {
	w.h.add(event{what: "log", member: w.member, note: string(bytes.TrimSpace(b))})
	return len(b), nil
}
