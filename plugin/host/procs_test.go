package host

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kconsume/kconsume/plugin"
)

// TestOneOfThreeProcessesIsKilled: what the two others have is not touched.
func TestOneOfThreeProcessesIsKilled(t *testing.T) {
	const n = 9
	cfg := config(t, "serve")
	cfg.Procs, cfg.Concurrency = 3, n
	e := start(t, cfg)
	gates := t.TempDir()
	for h := range uint64(n) {
		e.Deliver([]plugin.Delivery{record(h, "note-gate "+gates)})
	}
	count := func() int {
		b, err := os.ReadFile(filepath.Join(gates, "notes"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Count(string(b), "\n")
	}
	eventually(t, "all are being handled", func() bool { return count() == n })
	before := e.Status().Processes
	for i, p := range before {
		if p.InFlight != n/3 || p.PID == 0 {
			t.Errorf("process %d has %d of %d deliveries", i, p.InFlight, n)
		}
	}
	if err := syscall.Kill(before[1].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what it had is handled again", func() bool { return count() == n+n/3 })
	if err := os.WriteFile(filepath.Join(gates, "open"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e.ack(0, n)
	eventually(t, "a third process runs again", func() bool { return e.Status().Processes[1].PID != 0 })
	s := e.Status()
	if s.Restarts != 1 || s.Ends[CauseSignal] != 1 || len(s.Ends) != 1 || s.Processes[1].Restarts != 1 || s.Processes[1].PID == before[1].PID ||
		s.Processes[0].PID != before[0].PID || s.Processes[2].PID != before[2].PID || s.State != StateRunning {
		t.Errorf("status %+v, before %+v", s, before)
	}
	if n := count(); n != 12 {
		t.Errorf("handled %d times, want 12", n)
	}
}

func TestConcurrencyIsSharedByProcesses(t *testing.T) {
	for _, c := range []struct{ concurrency, procs, each int }{{64, 1, 64}, {64, 3, 22}, {1, 4, 1}, {0, 2, 32}, {5, 0, 5}} {
		cfg, err := Config{Path: "/bin/true", SocketDir: sockets(t), Concurrency: c.concurrency, Procs: c.procs}.complete()
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.each(); got != c.each {
			t.Errorf("%d calls in %d processes: %d each, want %d", c.concurrency, c.procs, got, c.each)
		}
	}
}

// TestNoProcessHoards: a process that does not answer keeps no more than its
// share, and the others go on.
func TestNoProcessHoards(t *testing.T) {
	cfg := config(t, "serve")
	cfg.Procs, cfg.Concurrency = 2, 8
	e := start(t, cfg)
	gate := filepath.Join(t.TempDir(), "gate")
	e.send(0, "gate "+gate, "gate "+gate, "gate "+gate, "gate "+gate)
	eventually(t, "they are sent", func() bool { return e.Status().Waiting == 0 })
	for _, p := range e.Status().Processes {
		if p.InFlight != 2 {
			t.Errorf("%+v has not its half of 4", p)
		}
	}
	for h := uint64(4); h < 200; h++ {
		e.send(h, "ok")
		e.await(func() bool { return e.acked[h] == 1 })
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e.ack(0, 200)
}

func TestStartOfSeveralIsAllOrNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "handler")
	// The second process that starts exits.
	install(t, path, "#!/bin/sh\nif mkdir "+dir+"/first 2>/dev/null; then "+helperEnv+"=serve exec "+os.Args[0]+"; fi\necho no licence for two >&2; exit 5\n", 0o755)
	cfg := config(t, "serve")
	cfg.Path, cfg.Procs = path, 2
	h, err := Start(t.Context(), cfg)
	if err == nil {
		h.Stop(t.Context())
	}
	wantError(t, err, []string{"exit status 5: no licence for two"})
}
