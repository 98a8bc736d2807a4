package conformance

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/host"
)

// patience is how long a test waits for what must happen before it fails.
const patience = 60 * time.Second

// rig is a handler under the host, and what it has answered so far.
type rig struct {
	testing.TB
	host     *host.Host
	log      *journal
	dir      string // for the files of commands
	next     uint64
	answered map[uint64]plugin.Answer // a plain acknowledgement has ClassAck
	ended    map[uint64]bool
	order    []uint64 // as they were answered
	files    int
	stopped  bool
}

// start starts a handler, which is stopped, and its answers counted, at the end
// of the test.
func start(t testing.TB, path string, change func(*host.Config)) *rig {
	t.Helper()
	r := &rig{
		TB: t, log: &journal{}, dir: t.TempDir(),
		answered: map[uint64]plugin.Answer{}, ended: map[uint64]bool{},
	}
	cfg := config(t, path)
	cfg.Logger = slog.New(slog.NewJSONHandler(r.log, nil))
	if change != nil {
		change(&cfg)
	}
	h, err := host.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.host = h
	t.Cleanup(func() {
		for r.Failed() && r.files > 0 { // nobody is to wait for what the test did not come to
			os.WriteFile(filepath.Join(r.dir, fmt.Sprint("f", r.files)), nil, 0o600)
			r.files--
		}
		if !r.stopped {
			r.stop()
		}
	})
	return r
}

func config(t testing.TB, path string) host.Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "kc") // short, as a socket's path must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return host.Config{
		Path: path, Trust: host.TrustByPath, SocketDir: dir, StartTimeout: patience, Logger: slog.New(slog.DiscardHandler),
	}
}

// stop ends the handler and sees that nothing was answered twice or for nothing.
func (r *rig) stop() {
	r.Helper()
	r.stopped = true
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- r.host.Stop(ctx) }()
	for a := range r.host.Answers() {
		r.take(&a)
	}
	if err := <-stopped; err != nil {
		r.Error(err)
	}
	if n := r.host.Status().BadAnswers; n > 0 {
		r.Errorf("%d answers to nothing, or to something twice", n)
	}
	if r.Failed() {
		r.Logf("the handler's log:\n%s", r.log)
	}
}

// do is a delivery with a command.
func do(format string, args ...any) plugin.Delivery {
	return plugin.Delivery{Message: plugin.Message{
		Topic: "conformance.a", Time: time.UnixMilli(1_700_000_000_000), Attempt: 1, MaxAttempts: 3, Stage: "main",
		Headers: []plugin.Header{{Key: "do", Value: fmt.Appendf(nil, format, args...)}},
	}}
}

// within gives a delivery a deadline.
func within(d plugin.Delivery, timeout time.Duration) plugin.Delivery {
	d.Timeout = timeout
	return d
}

// deliver numbers the deliveries and returns their handles.
func (r *rig) deliver(list ...plugin.Delivery) []uint64 {
	handles := make([]uint64, len(list))
	for i := range list {
		r.next++
		list[i].Handle, list[i].Message.Offset = r.next, int64(r.next)
		handles[i] = r.next
	}
	r.host.Deliver(list)
	return handles
}

// ask delivers one and returns its answer.
func (r *rig) ask(d plugin.Delivery) plugin.Answer {
	r.Helper()
	h := r.deliver(d)[0]
	r.await(h)
	return r.answered[h]
}

// await waits until these are answered.
func (r *rig) await(handles ...uint64) {
	r.Helper()
	r.until("answers", func() bool {
		for _, h := range handles {
			if _, ok := r.answered[h]; !ok {
				return false
			}
		}
		return true
	})
}

// awaitEnd waits until these late calls have ended.
func (r *rig) awaitEnd(handles ...uint64) {
	r.Helper()
	r.until("the end of late calls", func() bool {
		for _, h := range handles {
			if !r.ended[h] {
				return false
			}
		}
		return true
	})
}

// until takes answers until something holds.
func (r *rig) until(what string, holds func() bool) {
	r.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for !holds() {
		select {
		case a, ok := <-r.host.Answers():
			if !ok {
				r.Fatalf("waiting for %s: the host has stopped", what)
			}
			r.take(&a)
		case <-limit.C:
			s := r.host.Status()
			r.Fatalf("waiting for %s: not within %v; the host: %+v\n%s", what, patience, s, r.log)
		}
	}
}

func (r *rig) take(a *plugin.Answers) {
	r.Helper()
	for _, h := range a.Acked {
		r.note(h, plugin.Answer{Handle: h, Verdict: plugin.Verdict{Class: plugin.ClassAck}})
	}
	for _, v := range a.Verdicts {
		r.note(v.Handle, v)
	}
	for _, h := range a.Ended {
		if !r.answered[h].Late || r.ended[h] {
			r.Errorf("%d has ended, but was not late, or twice", h)
		}
		r.ended[h] = true
	}
}

func (r *rig) note(h uint64, a plugin.Answer) {
	r.Helper()
	if _, twice := r.answered[h]; twice || h == 0 || h > r.next {
		r.Errorf("%d is answered twice, or was never delivered", h)
	}
	r.answered[h] = a
	r.order = append(r.order, h)
}

// file is the path of a file that does not exist.
func (r *rig) file() string {
	r.files++
	return filepath.Join(r.dir, fmt.Sprint("f", r.files))
}

func (r *rig) awaitFile(path string) {
	r.Helper()
	awaitFile(r.TB, path)
}

func awaitFile(t testing.TB, path string) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		if exists(path) {
			return
		}
		if time.Since(begin) > patience {
			t.Fatalf("no %s within %v: the handler has not begun", path, patience)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (r *rig) create(path string) {
	r.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		r.Fatal(err)
	}
}

// acked fails the test where one of these was not acknowledged.
func (r *rig) acked(handles ...uint64) {
	r.Helper()
	for _, h := range handles {
		if a := r.answered[h]; a.Verdict.Class != plugin.ClassAck || a.Late {
			r.Errorf("%d is not acknowledged: %+v", h, a)
		}
	}
}

// cancelled fails the test where one of these has a verdict.
func (r *rig) cancelled(handles ...uint64) {
	r.Helper()
	for _, h := range handles {
		if a, ok := r.answered[h]; !ok || a.Verdict.Class != plugin.ClassUnspecified || a.Verdict.Rule != plugin.RuleCancelled {
			r.Errorf("%d should have no verdict: %+v", h, a)
		}
	}
}

// journal is what the host has logged.
type journal struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}
