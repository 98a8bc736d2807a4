package host_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/host"
)

// outcome is a row of the table for people.
type outcome struct {
	does, records, message, healthy string
}

func TestHostileHandlers(t *testing.T) {
	before := descriptors(t)
	beside := newNeighbour(t)
	var table []outcome
	const atOnce = 6 // most of them wait most of the time
	table = append(table, play(t, rows(), atOnce, beside)...)
	table = append(table, play(t, floods(), 1, beside)...)
	beside.end()
	var after map[string]string
	if !soon(func() bool { after = descriptors(t); return len(after) <= len(before) }) {
		t.Errorf("descriptors before: %v, after: %v", before, after)
	}
	t.Log("\n" + markdown(table))
}

// play tries rows, some at once.
func play(t *testing.T, list []row, atOnce int, beside *neighbour) []outcome {
	table := make([]outcome, len(list))
	places := make(chan struct{}, atOnce)
	var playing sync.WaitGroup
	for i, r := range list {
		places <- struct{}{}
		playing.Go(func() {
			defer func() { <-places }()
			pprof.Do(t.Context(), pprof.Labels("row", r.does), func(context.Context) {
				t.Run(r.does, func(t *testing.T) { table[i] = r.play(t, beside) })
			})
		})
	}
	playing.Wait()
	for _, r := range list {
		if !soon(func() bool { return labelled(r.does) == "" }) {
			t.Errorf("%s: goroutines are left:\n%s", r.does, labelled(r.does))
		}
	}
	return table
}

func (r *row) play(t *testing.T, beside *neighbour) outcome {
	result := outcome{does: r.does}
	value := bad
	life := 1
	if r.refused != nil {
		result.message = r.refuse(t)
		if r.slow > 0 && !r.whole {
			result.records = "none yet"
			return result
		}
		value, life = exit, 2
	}
	if r.refused != nil {
		r.upgrade(t)
	}
	l := r.lab(t, life)
	var most func() (heap, resident int64)
	if r.heap > 0 {
		most = watchMemory()
	}
	l.start()
	l.send(r.timeout, r.bulk, slices.Concat(slices.Repeat([]string{good}, theBad), []string{value}, slices.Repeat([]string{good}, records-theBad-1))...)
	soon(func() bool { return !l.noted("did").IsZero() || l.complete() })
	if !beside.goesOn() {
		t.Error("its neighbour stands still")
	}
	if strings.HasPrefix(r.fate, "handler_crash") {
		l.feed(theBad)
	}
	if !l.await(func() bool { return l.answered(records) == records }) {
		t.Errorf("not answered: %d of %d; %+v", records-l.answered(records), records, l.host.Status())
	}
	if r.ended != nil && !soon(func() bool { s := l.host.Status(); return s.Restarts > 0 && s.State == host.StateRunning }) {
		t.Errorf("its process does not end, or is not replaced: %+v", l.host.Status())
	}
	if did := l.noted("did"); !did.IsZero() {
		result.healthy = fmt.Sprintf("%.2f s", time.Since(did).Seconds())
	}
	if most != nil {
		heap, resident := most()
		t.Logf("the host's heap grew by %d MiB; %d MiB resident", heap>>20, resident>>20)
		if heap > r.heap {
			t.Errorf("the host's heap grew by %d MiB, at most %d are right", heap>>20, r.heap>>20)
		}
	}
	status := l.host.Status()
	r.checkStatus(t, status)
	if r.ended != nil {
		result.message = status.LastExit
	}
	began := time.Now()
	err := l.stop()
	r.checkStop(t, err)
	t.Logf("stopped in %v; slowest neighbour %v", time.Since(began).Round(time.Millisecond), beside.lull())
	if err != nil {
		result.message = err.Error()
	}
	if r.logged != "" {
		message, ok := l.log.find(r.logged)
		if !ok {
			t.Errorf("the log lacks a line with %q", r.logged)
		}
		result.message = message
	}
	l.log.check(t)
	r.checkProcesses(t, l)
	result.records = r.checkRecords(t, l, status)
	if r.fate != "" && len(l.verdicts[theBad]) > 0 {
		result.message = l.verdicts[theBad][0].Verdict.Message
	}
	return result
}

func (r *row) lab(t *testing.T, life int) *lab {
	l := newLab(t, r.mode, life)
	l.cfg.TLS = r.tls
	l.cfg.Grace = cmp.Or(r.grace, l.cfg.Grace)
	if r.slow > 0 {
		l.cfg.StartTimeout = 10 * time.Second
	}
	return l
}

// complete reports whether all is answered.
func (l *lab) complete() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answered(records) == records
}

// lull returns the longest that an answer took since it was last asked.
func (n *neighbour) lull() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	slowest := n.slowest
	n.slowest = 0
	return slowest.Round(time.Millisecond)
}

// refuse starts the handler in the way that must fail.
func (r *row) refuse(t *testing.T) (message string) {
	l := r.lab(t, 1)
	l.cfg.StartTimeout = cmp.Or(r.slow, l.cfg.StartTimeout)
	began := time.Now()
	_, err := host.Inspect(t.Context(), l.cfg)
	t.Logf("refused in %v: %v", time.Since(began).Round(time.Millisecond), err)
	if err == nil {
		t.Fatal("it was started")
	}
	message = err.Error()
	for _, want := range append(r.refused, "start handler "+os.Args[0]+": ") {
		if !strings.Contains(message, want) {
			t.Errorf("the error %q lacks %q", message, want)
		}
	}
	if !oneLine(message) {
		t.Errorf("the error is not fit for a terminal: %q", message)
	}
	r.checkProcesses(t, l)
	return message
}

// upgrade replaces a good handler by the one that does not start: the good one
// goes on.
func (r *row) upgrade(t *testing.T) {
	l := r.lab(t, 2)
	l.start()
	pid := l.host.Status().PID
	_, err := l.host.Reload(t.Context(), host.ReloadConfig{})
	if err == nil {
		t.Fatal("it took the good one's place")
	}
	for _, want := range append(r.refused, "upgrade handler hostile: the old version goes on: ") {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the upgrade's error %q lacks %q", err, want)
		}
	}
	if !oneLine(err.Error()) {
		t.Errorf("the upgrade's error is not fit for a terminal: %q", err)
	}
	l.send(0, 0, slices.Repeat([]string{good}, records)...)
	if !l.await(func() bool { return len(l.acked) == records }) {
		t.Errorf("after the upgrade: not answered; %+v", l.host.Status())
	}
	if s := l.host.Status(); s.PID != pid || s.Restarts != 0 || s.Upgrades != 0 || s.FailedUpgrades != 1 {
		t.Errorf("after the upgrade: %+v", s)
	}
	if err := l.stop(); err != nil {
		t.Error(err)
	}
	r.checkProcesses(t, l)
}

func (r *row) checkStatus(t *testing.T, s host.Status) {
	t.Helper()
	want := r.ended
	if r.refused != nil {
		want = r.refused
	}
	switch {
	case s.State != host.StateRunning:
		t.Errorf("it does not run: %+v", s)
	case want == nil && (s.Restarts != 0 || s.LastExit != ""):
		t.Errorf("its process ended: %+v", s)
	case want != nil && s.Restarts == 0:
		t.Errorf("its process did not end: %+v", s)
	}
	for _, w := range want {
		if !strings.Contains(s.LastExit, w) {
			t.Errorf("why it ended: %q lacks %q", s.LastExit, w)
		}
	}
	if !oneLine(s.LastExit) {
		t.Errorf("why it ended is not fit for a terminal: %q", s.LastExit)
	}
}

func (r *row) checkStop(t *testing.T, err error) {
	t.Helper()
	if (err != nil) != (r.stopped != nil) {
		t.Errorf("Stop: %v", err)
	}
	for _, w := range r.stopped {
		if err != nil && !strings.Contains(err.Error(), w) {
			t.Errorf("Stop: %v lacks %q", err, w)
		}
	}
}

// checkProcesses looks for processes that outlive the host.
func (r *row) checkProcesses(t *testing.T, l *lab) {
	t.Helper()
	for _, pid := range l.processes() {
		if alive(pid) {
			t.Errorf("process %d outlives its host", pid)
		}
	}
	pid, err := l.note("grandchild")
	if err != nil {
		return
	}
	if r.mode == "grandchild of its own" {
		if !alive(pid) {
			t.Error("the grandchild is gone: it held nothing open")
		}
		unix.Kill(pid, unix.SIGKILL)
	} else if !soon(func() bool { return !alive(pid) }) {
		t.Error("the grandchild outlives the host")
	}
}

// checkRecords checks that each record was answered once, none acknowledged
// that the handler did not acknowledge, and says it in words.
func (r *row) checkRecords(t *testing.T, l *lab, s host.Status) string {
	t.Helper()
	noted := l.acknowledged()
	l.mu.Lock()
	defer l.mu.Unlock()
	for h := range uint64(records) {
		switch n := l.acked[h] + len(l.verdicts[h]); {
		case n != 1:
			t.Errorf("record %d was answered %d times", h, n)
		case l.acked[h] > 0 && noted[h] == 0:
			t.Errorf("record %d was acknowledged, but not by the handler", h)
		case l.acked[h] > 0 && r.fate != "" && h == theBad:
			t.Errorf("the bad record was acknowledged")
		}
	}
	for h, n := range l.acked {
		if n != 1 || noted[h] == 0 {
			t.Errorf("record %d: acknowledged %d times, by the handler %d times", h, n, noted[h])
		}
	}
	for h, list := range l.verdicts {
		v := list[0].Verdict
		got := strings.TrimSuffix(string(v.Reason)+" "+v.Code, " ")
		if h != theBad || r.fate == "" || got != r.fate {
			t.Errorf("record %d: %q %+v", h, got, v)
		}
		if list[0].Late && l.ended[h] != 1 {
			t.Errorf("record %d is late and ended %d times", h, l.ended[h])
		}
		if v.Class == plugin.ClassUnspecified {
			t.Errorf("record %d has no verdict: %+v", h, v)
		}
		if n := len(v.Message) + len(v.Stack) + len(v.Code); n > 64<<10 {
			t.Errorf("record %d: a verdict of %d bytes", h, n)
		}
	}
	for who := range l.handlers {
		if len(who) > 1024 {
			t.Errorf("answered by a name of %d bytes", len(who))
		}
	}
	again := 0
	for _, n := range noted {
		again += n - 1
	}
	words := fmt.Sprintf("%d acknowledged", records-len(l.verdicts))
	if len(l.verdicts) > 0 {
		words += ", the bad one " + fmt.Sprintf("%q", r.fate)
	}
	if s.Restarts > 0 {
		words += ", after a restart"
	}
	if again > 0 {
		words += fmt.Sprintf(", %d of them handled twice", again)
	}
	return words
}

// TestOldHandleAnswersNothingNew: the second answer to a record comes when the
// host has put another one in its place.
func TestOldHandleAnswersNothingNew(t *testing.T) {
	l := newLab(t, "answers by an old handle", 0)
	l.start()
	l.send(0, 0, good)
	if !l.await(func() bool { return l.has(0) }) {
		t.Fatal("not answered")
	}
	l.deliver(1, 0, 0, bad)
	if !l.await(func() bool { return l.has(1) }) {
		t.Fatal("not answered")
	}
	if l.stop(); l.acked[0] != 1 || l.acked[1] != 0 || len(l.verdicts[1]) != 1 {
		t.Errorf("acknowledged %v, verdicts %v", l.acked, l.verdicts)
	}
	if s := l.host.Status(); s.BadAnswers != 1 {
		t.Errorf("%+v", s)
	}
}

func markdown(table []outcome) string {
	var b strings.Builder
	b.WriteString("| handler | its records | message | until healthy |\n|---|---|---|---|\n")
	for _, o := range table {
		if o.does == "" {
			continue // it was not asked for
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", o.does, o.records, shown(o.message), o.healthy)
	}
	return b.String()
}

// shown is a message as a table takes it.
func shown(message string) string {
	const width = 160
	message = strings.ReplaceAll(message, os.Args[0], "HANDLER")
	if len(message) > width {
		message = message[:width] + "…"
	}
	if message = strings.ReplaceAll(message, "|", "\\|"); oneLine(message) {
		return message
	}
	return strconv.QuoteToASCII(message)
}
