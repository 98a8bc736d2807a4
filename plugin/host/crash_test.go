package host

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kconsume/kconsume/plugin"
)

func TestKillerAmongFiveHundred(t *testing.T) {
	for _, procs := range []int{1, 3} {
		t.Run("procs="+string(rune('0'+procs)), func(t *testing.T) {
			const n = 500
			cfg := config(t, "serve")
			cfg.Procs = procs
			cfg.BackoffMax = time.Hour // it is not tried again just because nothing else comes
			e := start(t, cfg)
			values := slices.Repeat([]string{"ok"}, n)
			values[377] = "exit"
			values[20] = "tell"
			e.send(0, values...)
			// What it takes to prove the guilt goes on coming.
			extra := uint64(0)
			eventually(t, "it is found", func() bool {
				e.send(n+extra, "ok")
				extra++
				e.await(func() bool { return e.acked[n+extra-1] == 1 })
				return e.Status().Blamed == 1
			})
			v := e.verdict(377).Verdict
			want := plugin.Verdict{Class: plugin.ClassPermanent, Reason: plugin.ReasonHandlerCrash, Code: "handler_crash", Rule: ruleHost, Message: v.Message}
			if v.Class != want.Class || v.Reason != want.Reason || v.Code != want.Code || v.Rule != want.Rule ||
				!strings.Contains(v.Message, "exit status 3") || !strings.Contains(v.Message, "version 1.0") {
				t.Errorf("verdict %+v", v)
			}
			if m := e.verdict(20).Verdict.Message; !strings.Contains(m, "attempt 1") {
				t.Errorf("delivered again as %q", m)
			}
			e.await(func() bool { return len(e.acked) == n-2+int(extra) })
			for h, times := range e.acked {
				if times != 1 || len(e.answers[h]) > 0 {
					t.Errorf("delivery %d was acknowledged %d times, other answers %v", h, times, e.answers[h])
				}
			}
			if len(e.answers) != 2 {
				t.Errorf("other verdicts: %v", e.answers)
			}
			s := e.Status()
			if s.Blamed != 1 || s.Restarts > crashesPerKiller || s.Ends[CauseExit] != s.Restarts {
				t.Errorf("status %+v, at most %d crashes", s, crashesPerKiller)
			}
			t.Logf("found after %d crashes: %s", s.Restarts, v.Message)
		})
	}
}

// TestKillerWhereLittleComes: one record at a time, each after the one before.
func TestKillerWhereLittleComes(t *testing.T) {
	cfg := config(t, "serve")
	cfg.BackoffMax = time.Hour // it is not tried again just because nothing else comes
	e := start(t, cfg)
	e.send(0, "exit")
	next := uint64(1)
	eventually(t, "it is found", func() bool {
		e.send(next, "ok")
		e.await(func() bool { return e.acked[next] == 1 })
		next++
		return e.Status().Blamed == 1
	})
	if v := e.verdict(0).Verdict; v.Reason != plugin.ReasonHandlerCrash {
		t.Errorf("verdict %+v", v)
	}
	if s := e.Status(); s.Restarts > 12 {
		t.Errorf("%d crashes", s.Restarts)
	}
}

func TestHandlerThatAlwaysDiesBlamesNobody(t *testing.T) {
	for _, procs := range []int{1, 2} {
		cfg, path := upgradable(t)
		cfg.Procs = procs
		install(t, path, script("doomed", ""), 0o755)
		e := start(t, cfg)
		e.send(0, slices.Repeat([]string{"ok"}, 100)...)
		eventually(t, "it crashes often", func() bool { return e.Status().Restarts >= 25 })
		s := e.Status()
		if s.State != StateFailing || s.Waiting+s.InFlight != 100 || s.Blamed != 0 || s.InFlight > 1 || !strings.Contains(s.LastExit, "doomed") {
			t.Errorf("status %+v", s)
		}
		install(t, path, script("serve", "repaired"), 0o755)
		if _, err := e.Reload(t.Context(), ReloadConfig{}); err != nil {
			t.Fatal(err)
		}
		e.ack(0, 100)
		if s := e.Status(); s.State != StateRunning || s.Blamed != 0 {
			t.Errorf("status %+v", s)
		}
	}
}

func TestDeathsWithNothingInHand(t *testing.T) {
	cfg := config(t, "serve")
	cfg.BackoffMax = time.Hour // it would calm down in that
	e := start(t, cfg)
	killTwice(t, e)
	if s := e.Status(); s.State != StateFailing || s.Ends[CauseSignal] != 2 {
		t.Errorf("status %+v", s)
	}
	e.send(1, "ok", "ok")
	e.ack(1, 3)
	if s := e.Status(); s.State != StateRunning {
		t.Errorf("status %+v", s)
	}
}

func TestCalmsDownWithNothingToDo(t *testing.T) {
	e := start(t, config(t, "serve")) // BackoffMax is short
	killTwice(t, e)
	eventually(t, "it is calm", func() bool { return e.Status().State == StateRunning })
}

// killTwice kills an idle handler, and once more when it runs again.
func killTwice(t *testing.T, e *engine) {
	t.Helper()
	for n := range 2 {
		eventually(t, "it runs", func() bool { return e.Status().PID != 0 })
		if err := syscall.Kill(e.Status().PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it has ended", func() bool { return e.Status().Restarts > n })
	}
}

// TestCancelledSuspects: a search goes on when what is searched is taken away.
func TestCancelledSuspects(t *testing.T) {
	e := start(t, config(t, "serve"))
	e.send(0, "exit", "exit", "ok", "ok")
	eventually(t, "it crashes", func() bool { return e.Status().Restarts >= 3 })
	e.Cancel([]uint64{0, 1})
	for h := range uint64(2) {
		if a := e.verdict(h); a.Verdict.Rule != plugin.RuleCancelled {
			t.Errorf("%+v", a)
		}
	}
	e.await(func() bool { return e.acked[2] == 1 && e.acked[3] == 1 })
	eventually(t, "it runs", func() bool { return e.Status().State == StateRunning })
	if s := e.Status(); s.Blamed != 0 {
		t.Errorf("status %+v", s)
	}
}

// TestThousandCrashesLeaveNothing: neither goroutines nor descriptors nor memory.
// Several hosts share them, since one waits most of the time.
func TestThousandCrashesLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes many processes")
	}
	const hosts, records = 5, 300
	crashes := 200 // of each
	if raced {
		crashes = 40
	}
	var engines []*engine
	handles := make([]uint64, records)
	for i := range handles {
		handles[i] = uint64(i)
	}
	for range hosts {
		cfg := config(t, "doomed")
		cfg.BackoffMax = 20 * time.Millisecond
		engines = append(engines, start(t, cfg))
	}
	goroutines, fds, heap := resources(t)
	for _, e := range engines {
		e.send(0, slices.Repeat([]string{"ok"}, records)...)
	}
	for _, e := range engines {
		eventuallyWithin(t, "its crashes", 10*time.Minute, func() bool { return e.Status().Restarts >= crashes })
		e.Cancel(handles)
	}
	for _, e := range engines {
		eventually(t, "it runs again", func() bool { s := e.Status(); return s.State == StateRunning && s.PID != 0 && s.Waiting == 0 })
		if s := e.Status(); s.Blamed != 0 || len(s.Ends) != 1 {
			t.Errorf("status %+v", s)
		}
		if left, err := os.ReadDir(e.cfg.SocketDir); err != nil || len(left) != 1 {
			t.Errorf("left %v, %v", left, err)
		}
	}
	eventually(t, "goroutines and descriptors are back", func() bool {
		g, f, _ := resources(t)
		return g <= goroutines && f <= fds
	})
	g, f, after := resources(t)
	t.Logf("%d crashes: goroutines %d, then %d; descriptors %d, then %d; heap %d KiB, then %d", hosts*crashes, goroutines, g, fds, f, heap>>10, after>>10)
	if after > heap+8<<20 {
		t.Errorf("the heap has %d KiB, %d KiB before", after>>10, heap>>10)
	}
}

// resources are this process's goroutines, descriptors and bytes of heap.
func resources(t *testing.T) (goroutines, fds int, heap uint64) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), len(list), m.HeapAlloc
}
