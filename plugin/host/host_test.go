package host

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kconsume/kconsume/plugin"
)

func TestTenThousandRecords(t *testing.T) {
	const n = 10_000
	e := start(t, config(t, "serve"))
	value := strings.Repeat("v", 1000)
	for from := uint64(0); from < n; from += 100 {
		e.send(from, slices.Repeat([]string{value}, 100)...)
	}
	e.ack(0, n)
	if s := e.Status(); s.State != StateRunning || s.InFlight+s.Waiting+s.Late+s.BadAnswers+s.Restarts != 0 || s.PID == 0 {
		t.Errorf("status %+v", s)
	}
	for _, a := range e.batches {
		if a.Handler != "probe@1.0" {
			t.Fatalf("answered by %q", a.Handler)
		}
	}
}

func TestVerdictsComeThrough(t *testing.T) {
	e := start(t, config(t, "serve"))
	e.send(1, "fail", "panic over", "ok")
	if v := e.verdict(1).Verdict; v.Class != plugin.ClassTransient || v.Message != "later" {
		t.Errorf("verdict %+v", v)
	}
	if v := e.verdict(2).Verdict; v.Class != plugin.ClassPermanent || v.Reason != plugin.ReasonPanic || v.Stack == "" {
		t.Errorf("verdict of a panic %+v", v)
	}
	e.await(func() bool { return e.acked[3] == 1 })
	if s := e.Status(); s.Restarts != 0 {
		t.Errorf("a panic is a crash: %+v", s)
	}
}

func TestCrashRedelivers(t *testing.T) {
	for _, verb := range []string{"exit-once ", "kill-once "} {
		t.Run(verb, func(t *testing.T) {
			const n = 2000
			e := start(t, config(t, "serve"))
			values := slices.Repeat([]string{"ok"}, n)
			values[700] = verb + filepath.Join(t.TempDir(), "crashed")
			values[1500] = "tell"
			e.send(0, values...)
			if m := e.verdict(1500).Verdict.Message; !strings.Contains(m, "attempt 1") {
				t.Errorf("delivered again as %q", m)
			}
			e.await(func() bool { return len(e.acked) == n-1 })
			for h, times := range e.acked {
				if times != 1 {
					t.Errorf("delivery %d was acknowledged %d times", h, times)
				}
			}
			s := e.Status()
			want := "exit status 3: out of luck"
			if verb == "kill-once " {
				want = "killed by SIGKILL"
			}
			if s.Restarts != 1 || s.LastExit != want {
				t.Errorf("status %+v, want one restart, %q", s, want)
			}
		})
	}
}

func TestWhileDownDeliveriesWait(t *testing.T) {
	dir := t.TempDir()
	handler, away := filepath.Join(dir, "handler"), filepath.Join(dir, "away")
	write(t, handler, "#!/bin/sh\nexec "+os.Args[0]+"\n", 0o755)
	cfg := config(t, "serve")
	cfg.Path = handler
	e := start(t, cfg)
	if err := os.Rename(handler, away); err != nil {
		t.Fatal(err)
	}
	e.send(0, "exit-once "+filepath.Join(dir, "crashed"))
	eventually(t, "the host cannot start the handler", func() bool {
		return strings.Contains(e.Status().LastExit, "no such file")
	})
	e.send(1, "ok", "ok")
	e.send(3, "ok")
	e.Cancel([]uint64{3})
	if v := e.verdict(3); v.Verdict.Class != plugin.ClassUnspecified || v.Verdict.Rule != plugin.RuleCancelled {
		t.Errorf("cancelled while down: %+v", v)
	}
	if s := e.Status(); s.State != StateDown || s.PID != 0 || s.Waiting != 3 {
		t.Errorf("status %+v", s)
	}
	if err := os.Rename(away, handler); err != nil {
		t.Fatal(err)
	}
	e.ack(0, 3)
}

func TestNoiseChangesNothing(t *testing.T) {
	cfg := config(t, "noisy")
	var log bytes.Buffer
	var mu sync.Mutex
	cfg.Logger = jsonLog(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(p)
	}))
	e := start(t, cfg)
	e.send(0, "noise", "ok", "noise", "ok")
	e.ack(0, 4)
	if s := e.Status(); s.Restarts != 0 {
		t.Errorf("status %+v", s)
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if log.Len() > 2<<20 {
		t.Errorf("%d bytes were logged", log.Len())
	}
	for _, want := range []string{`{\"@message\":5}`, `"cut":true`, "lines were left out"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s", want)
		}
	}
	for line := range strings.Lines(log.String()) {
		if !jsonValid(line) {
			t.Errorf("log line is not JSON: %.100q", line)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestFrozenIsKilled(t *testing.T) {
	cfg := config(t, "serve")
	cfg.beat = 100 * time.Millisecond
	e := start(t, cfg)
	e.send(0, "ok", "freeze-once "+filepath.Join(t.TempDir(), "frozen"), "ok")
	e.ack(0, 3)
	if s := e.Status(); s.Restarts == 0 || !strings.Contains(s.LastExit, "heartbeats without an echo") {
		t.Errorf("status %+v", s)
	}
}

func TestForgottenRecordIsOverdue(t *testing.T) {
	for _, mode := range []string{"polite", "slow-beats"} {
		t.Run(mode, func(t *testing.T) {
			cfg := config(t, mode)
			cfg.beat, cfg.Grace = 20*time.Millisecond, 100*time.Millisecond
			if mode == "polite" {
				cfg.beat = time.Second // or a slow machine could miss beats
			}
			e := start(t, cfg)
			d := record(0, "forget-once "+filepath.Join(t.TempDir(), "forgotten"))
			d.Timeout = 50 * time.Millisecond
			e.Deliver([]plugin.Delivery{d})
			e.ack(0, 1)
			if s := e.Status(); s.Restarts == 0 || !strings.Contains(s.LastExit, "no answer for t/0@0") {
				t.Errorf("status %+v", s)
			}
		})
	}
}

func TestEndOfStreamIsACrash(t *testing.T) {
	e := start(t, config(t, "polite"))
	e.send(0, "ok", "end-once "+filepath.Join(t.TempDir(), "ended"), "ok")
	e.ack(0, 3)
	if s := e.Status(); s.Restarts != 1 || !strings.Contains(s.LastExit, errNoWord.Error()) {
		t.Errorf("status %+v", s)
	}
}

func TestBrokenAnswers(t *testing.T) {
	e := start(t, config(t, "polite"))
	e.send(1, "twice", "no-class", "class-9", "ok", "cancelled")
	for _, h := range []uint64{2, 3, 5} {
		if v := e.verdict(h).Verdict; v.Class != plugin.ClassTransient || v.Reason != plugin.ReasonTransient || v.Code != codeBadAnswer {
			t.Errorf("delivery %d: %+v", h, v)
		}
	}
	e.await(func() bool { return e.acked[1] == 1 && e.acked[4] == 1 })
	if s := e.Status(); s.BadAnswers != 3 || s.Restarts != 0 || s.Name != "rude\xff" {
		t.Errorf("status %+v, want 3 bad answers", s)
	}
	if len(e.answers[1]) != 0 || len(e.ended) != 0 {
		t.Errorf("answered twice: %v, %v", e.answers[1], e.ended)
	}
}

func TestCancel(t *testing.T) {
	e := start(t, config(t, "holds"))
	e.send(1, "a", "b", "c")
	eventually(t, "one is sent", func() bool { return e.Status().InFlight == 1 })
	if s := e.Status(); s.Waiting != 2 {
		t.Errorf("the handler takes one at a time, but %+v", s)
	}
	e.Cancel([]uint64{1, 2, 3, 99})
	for h := uint64(1); h <= 3; h++ {
		if a := e.verdict(h); a.Verdict.Class != plugin.ClassUnspecified || a.Verdict.Rule != plugin.RuleCancelled {
			t.Errorf("delivery %d: %+v", h, a)
		}
	}
}

func TestCancelOfARunningCall(t *testing.T) {
	e := start(t, config(t, "serve"))
	began := filepath.Join(t.TempDir(), "began")
	e.send(1, "wait "+began)
	eventually(t, "the call begins", exists(began))
	e.Cancel([]uint64{1})
	if a := e.verdict(1); a.Verdict.Class != plugin.ClassUnspecified || a.Verdict.Rule != plugin.RuleCancelled {
		t.Errorf("%+v", a)
	}
}

func TestCancelledIsNotRedelivered(t *testing.T) {
	dir := t.TempDir()
	e := start(t, config(t, "serve"))
	e.send(1, "gate "+filepath.Join(dir, "never"), "wait "+filepath.Join(dir, "began"))
	eventually(t, "the calls begin", exists(filepath.Join(dir, "began")))
	e.Cancel([]uint64{1})
	e.verdictNone(1)
	e.send(3, "exit-once "+filepath.Join(dir, "crashed"))
	if a := e.verdict(1); a.Verdict.Rule != plugin.RuleCancelled {
		t.Errorf("%+v", a)
	}
	e.await(func() bool { return e.acked[3] == 1 })
	e.Cancel([]uint64{2})
	if a := e.verdict(2); a.Verdict.Rule != plugin.RuleCancelled {
		t.Errorf("%+v", a)
	}
}

func (e *engine) verdictNone(handle uint64) {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.answers[handle]) > 0 || e.acked[handle] > 0 {
		e.t.Errorf("delivery %d is answered already: %+v", handle, e.answers[handle])
	}
}

func TestLateCallsEndWithTheirProcess(t *testing.T) {
	e := start(t, config(t, "serve"))
	d := record(1, "hang")
	d.Timeout = 30 * time.Millisecond
	e.Deliver([]plugin.Delivery{d})
	if a := e.verdict(1); !a.Late || a.Verdict.Reason != plugin.ReasonTimeout {
		t.Errorf("%+v", a)
	}
	if s := e.Status(); s.Late != 1 || s.InFlight != 0 {
		t.Errorf("status %+v", s)
	}
	e.send(2, "exit-once "+filepath.Join(t.TempDir(), "crashed"))
	e.await(func() bool { return e.ended[1] == 1 && e.acked[2] == 1 })
	if s := e.Status(); s.Late != 0 || s.Restarts != 1 {
		t.Errorf("status %+v", s)
	}
}

func TestTooManyLateCallsEndTheProcess(t *testing.T) {
	cfg := config(t, "serve")
	cfg.Concurrency = 2
	e := start(t, cfg)
	for h := uint64(1); h <= 2; h++ {
		d := record(h, "hang")
		d.Timeout = 30 * time.Millisecond
		e.Deliver([]plugin.Delivery{d})
	}
	e.await(func() bool { return e.ended[1] == 1 && e.ended[2] == 1 })
	e.send(3, "ok")
	e.await(func() bool { return e.acked[3] == 1 })
	if s := e.Status(); s.Restarts != 1 || !strings.Contains(s.LastExit, "2 calls ran on past their deadline") {
		t.Errorf("status %+v", s)
	}
}

func TestOversizeIsTheHostsVerdict(t *testing.T) {
	e := start(t, config(t, "serve"))
	big, largest := record(1, ""), record(2, "")
	big.Message.Value = make([]byte, recordLimit)
	largest.Message.Value = make([]byte, recordLimit-1024)
	e.Deliver([]plugin.Delivery{big, largest, record(3, "ok")})
	if v := e.verdict(1).Verdict; v.Class != plugin.ClassPermanent || v.Reason != plugin.ReasonOversize {
		t.Errorf("%+v", v)
	}
	e.await(func() bool { return e.acked[2] == 1 && e.acked[3] == 1 })
	if s := e.Status(); s.Restarts != 0 {
		t.Errorf("status %+v", s)
	}
}

func TestGrandchildDoesNotHideAnExit(t *testing.T) {
	dir := t.TempDir()
	e := start(t, config(t, "serve"))
	e.send(1, "grandchild "+filepath.Join(dir, "pid"))
	e.await(func() bool { return e.acked[1] == 1 })
	eventually(t, "the grandchild runs", exists(filepath.Join(dir, "pid")))
	b, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(pid, syscall.SIGKILL)
	e.send(2, "exit-once "+filepath.Join(dir, "crashed"))
	e.await(func() bool { return e.acked[2] == 1 })
	if !running(pid) {
		t.Error("the grandchild is gone: it held nothing open")
	}
}

func TestHandlerEndsWithItsHost(t *testing.T) {
	dir := sockets(t)
	host := exec.Command(os.Args[0])
	host.Env = append(os.Environ(), helperEnv+"=host", "HOST_TEST_SOCKETS="+dir)
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	defer host.Wait()
	defer host.Process.Kill()
	pid, err := strconv.Atoi(readLine(t, out))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000); err == unix.EINTR; {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000)
	}
	if n != 1 {
		t.Errorf("the handler outlives its host: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range left {
		os.RemoveAll(l) // nobody is left to do it
	}
}

func TestTwentyCrashesLeaveNothing(t *testing.T) {
	count := func() (goroutines, fds int) {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return runtime.NumGoroutine(), len(list)
	}
	e := start(t, config(t, "serve"))
	e.send(0, "ok")
	e.ack(0, 1)
	goroutines, fds := count()
	dir := t.TempDir()
	for i := range uint64(20) {
		e.send(1+i, "exit-once "+filepath.Join(dir, strconv.Itoa(int(i))))
		e.await(func() bool { return e.acked[1+i] == 1 })
	}
	if s := e.Status(); s.Restarts != 20 {
		t.Errorf("status %+v", s)
	}
	eventually(t, "goroutines and descriptors are back", func() bool {
		g, f := count()
		return g <= goroutines && f <= fds
	})
	pid := e.Status().PID
	if err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if running(pid) {
		t.Error("the handler outlives Stop")
	}
}
