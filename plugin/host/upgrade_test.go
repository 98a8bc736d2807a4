package host

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kconsume/kconsume/plugin"
)

// script is a handler's file that is this binary, as a helper, in a version.
func script(mode, version string) string {
	return fmt.Sprintf("#!/bin/sh\n%s=%s %s=%s exec %s\n", helperEnv, mode, versionEnv, version, os.Args[0])
}

// install replaces a file by rename. No process is forked meanwhile: it would
// hold the file open for writing until it executes another one.
func install(t testing.TB, path, content string, mode os.FileMode) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path+".new", []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// upgradable is the configuration of a handler whose file is a script.
func upgradable(t testing.TB) (c Config, path string) {
	path = filepath.Join(t.TempDir(), "handler")
	install(t, path, script("serve", "1"), 0o755)
	c = config(t, "serve")
	c.Path, c.probation = path, time.Millisecond
	return c, path
}

// handler waits for a delivery's acknowledgement and tells by whom it was given.
func (e *engine) handler(handle uint64) string {
	e.await(func() bool { return e.acked[handle] > 0 })
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range e.batches {
		if slices.Contains(a.Acked, handle) {
			return a.Handler
		}
	}
	return ""
}

// TestTwentyUpgrades replaces the handler twenty times while deliveries go on.
func TestTwentyUpgrades(t *testing.T) {
	for _, procs := range []int{1, 2} {
		t.Run(fmt.Sprintf("procs=%d", procs), func(t *testing.T) {
			cfg, path := upgradable(t)
			cfg.Procs = procs
			e := start(t, cfg)
			notes := filepath.Join(t.TempDir(), "notes")
			over, end := context.WithCancel(t.Context())
			var feeding sync.WaitGroup
			sent := uint64(0)
			feeding.Go(func() { // keeps 64 deliveries unanswered
				for over.Err() == nil {
					e.await(func() bool { return sent < uint64(len(e.acked))+64 })
					e.send(sent, "note "+notes)
					sent++
				}
			})
			for v := 2; v <= 21; v++ {
				e.handler(uint64(v)) // it goes on
				install(t, path, script("serve", fmt.Sprint(v)), 0o755)
				r, err := e.Reload(t.Context(), ReloadConfig{})
				if err != nil || r.Before.Version != fmt.Sprint(v-1) || r.After.Version != fmt.Sprint(v) {
					t.Fatalf("upgraded %+v, %v", r, err)
				}
			}
			end()
			feeding.Wait()
			e.ack(0, sent)
			e.send(sent, "ok")
			if got := e.handler(sent); got != "probe@21" {
				t.Errorf("answered by %s after all", got)
			}
			handled, err := os.ReadFile(notes)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(handled), "\n"); n != int(sent) {
				t.Errorf("%d deliveries were handled %d times", sent, n)
			}
			eventually(t, "the old processes end", func() bool { return len(e.Status().Processes) == procs })
			s := e.Status()
			if s.Upgrades != 20 || s.FailedUpgrades != 0 || s.Restarts != 0 || s.BadAnswers != 0 || s.Ends[CauseReplaced] != 20*procs || len(s.Ends) != 1 {
				t.Errorf("status %+v", s)
			}
			t.Logf("%d deliveries, the longest pause between two batches of answers: %v", sent, e.longestPause())
		})
	}
}

func TestUpgradeThatFailsKeepsTheOld(t *testing.T) {
	for _, c := range []struct {
		name, file string
		mode       os.FileMode
		pin        string
		errs       []string
	}{
		{"not executable", script("serve", "2"), 0o644, "", []string{"not executable"}},
		{"wrong hash", script("serve", "2"), 0o755, strings.Repeat("0", 64), []string{"its SHA-256 is", "not the pinned"}},
		{"no program", "text\n", 0o755, "", []string{"neither a program"}},
		{"exits before its handshake", script("exits", "2"), 0o755, "", []string{"exit status 7: cannot read the configuration"}},
		{"exits after its Hello", script("leaves", "2"), 0o755, "", []string{"exit status 9: no database"}},
		{"another contract", script("old", "2"), 0o755, "", []string{"speaks version 7 of the handler contract"}},
		{"too slow", script("mute", "2"), 0o755, "", []string{"no handshake to stdout within 2s"}},
		{"another handler", script("namesake", "2"), 0o755, "", []string{`calls itself "another", not "probe"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // one waits for a timeout
			cfg, path := upgradable(t)
			cfg.Procs, cfg.probation = 2, time.Hour // it ends when one of them exits
			e := start(t, cfg)
			e.cfg.StartTimeout = time.Minute
			if c.name == "too slow" {
				e.cfg.StartTimeout = 2 * time.Second
			}
			before := e.Status()
			install(t, path, c.file, c.mode)
			_, err := e.Reload(t.Context(), ReloadConfig{SHA256: c.pin})
			wantError(t, err, append(c.errs, "upgrade handler probe: the old version goes on"))
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("error of several lines: %q", err)
			}
			e.send(1, "ok")
			if got := e.handler(1); got != "probe@1" {
				t.Errorf("answered by %s", got)
			}
			s := e.Status()
			if s.FailedUpgrades != 1 || s.Upgrades != 0 || s.Version != "1" || len(s.Processes) != 2 {
				t.Errorf("status %+v", s)
			}
			for i, p := range s.Processes {
				if p.PID != before.Processes[i].PID {
					t.Errorf("process %d was %+v and is %+v", i, before.Processes[i], p)
				}
			}
		})
	}
}

func TestUpgradeLetsTheOldFinish(t *testing.T) {
	cfg, path := upgradable(t)
	e := start(t, cfg)
	dir := t.TempDir()
	gate := filepath.Join(dir, "gate")
	hanging := record(2, "hang")
	hanging.Timeout = 20 * time.Millisecond
	e.Deliver([]plugin.Delivery{record(1, "gate "+gate), hanging})
	e.verdict(2) // it is late now
	install(t, path, script("serve", "2"), 0o755)
	if _, err := e.Reload(t.Context(), ReloadConfig{}); err != nil {
		t.Fatal(err)
	}
	e.send(3, "ok")
	if got := e.handler(3); got != "probe@2" {
		t.Errorf("answered by %s after the upgrade", got)
	}
	s := e.Status()
	if len(s.Processes) != 2 || !s.Processes[1].Replaced || s.Processes[1].InFlight != 1 || s.Processes[1].Late != 1 || s.PID != s.Processes[0].PID {
		t.Errorf("while the old one answers: %+v", s)
	}

	install(t, path, script("serve", "3"), 0o755)
	tired, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("it takes too long"))
	defer cancel()
	_, err := e.Reload(tired, ReloadConfig{})
	wantError(t, err, []string{"wait for the version before it", "it takes too long"})
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Reload(t.Context(), ReloadConfig{}); err != nil { // once the first one has ended
		t.Fatal(err)
	}
	if got := e.handler(1); got != "probe@1" {
		t.Errorf("what the old one had was answered by %s", got)
	}
	if e.await(func() bool { return e.ended[2] == 1 }); running(s.Processes[1].PID) {
		t.Error("the first version runs after the third one has come")
	}
}

func TestUpgradeTakesBackWhatIsHandedBack(t *testing.T) {
	cfg, path := upgradable(t)
	e := start(t, cfg)
	began := filepath.Join(t.TempDir(), "began")
	e.send(1, "hand-back "+began)
	eventually(t, "the call begins", exists(began))
	install(t, path, script("serve", "2"), 0o755)
	if _, err := e.Reload(t.Context(), ReloadConfig{}); err != nil {
		t.Fatal(err)
	}
	if got := e.handler(1); got != "probe@2" {
		t.Errorf("answered by %s", got)
	}
	if e.ack(1, 2); e.Status().BadAnswers != 0 {
		t.Errorf("status %+v", e.Status())
	}
}

func TestUpgradeOfOneThatIgnoresDrain(t *testing.T) {
	cfg, path := upgradable(t)
	cfg.Grace = 50 * time.Millisecond // it must be killed after all
	install(t, path, script("stays", "1"), 0o755)
	e := start(t, cfg)
	e.send(1, "ok")
	e.ack(1, 2)
	for range 2 {
		if _, err := e.Reload(t.Context(), ReloadConfig{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUpgradeWhileDown(t *testing.T) {
	cfg, path := upgradable(t)
	cfg.BackoffMin, cfg.BackoffMax = time.Hour, time.Hour
	e := start(t, cfg)
	e.send(1, "exit-once "+filepath.Join(t.TempDir(), "crashed"))
	eventually(t, "it is down", func() bool { return e.Status().State == StateDown })
	install(t, path, script("serve", "2"), 0o755)
	if _, err := e.Reload(t.Context(), ReloadConfig{}); err != nil {
		t.Fatal(err)
	}
	if got := e.handler(1); got != "probe@2" {
		t.Errorf("answered by %s", got)
	}
	s := e.Status()
	if s.State != StateRunning || s.Ends[CauseExit] != 1 || s.Ends[CauseReplaced] != 0 {
		t.Errorf("status %+v", s)
	}
	if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "somebody looks after the new process", func() bool { return e.Status().Restarts == 2 })
}

func TestUpgradeWhileStarting(t *testing.T) {
	cfg, path := upgradable(t)
	cfg.StartTimeout = time.Hour
	e := start(t, cfg)
	dir := t.TempDir()
	began, crashed := filepath.Join(dir, "began"), filepath.Join(dir, "crashed")
	install(t, path, "#!/bin/sh\n: >"+began+"\nexec sleep 1000\n", 0o755)
	e.send(1, "exit-once "+crashed)
	eventually(t, "the next process starts", exists(began))
	install(t, path, script("serve", "3"), 0o755)
	if _, err := e.Reload(t.Context(), ReloadConfig{}); err != nil {
		t.Fatal(err)
	}
	if got := e.handler(1); got != "probe@3" {
		t.Errorf("answered by %s", got)
	}
	e.send(2, "exit-once "+crashed+"-again") // somebody looks after the new process
	e.handler(2)
}

func TestStopWhileUpgrading(t *testing.T) {
	cfg, path := upgradable(t)
	cfg.StartTimeout = time.Hour
	e := start(t, cfg)
	began := filepath.Join(t.TempDir(), "began")
	install(t, path, "#!/bin/sh\n: >"+began+"\nexec sleep 1000\n", 0o755)
	failed := make(chan error)
	go func() {
		_, err := e.Reload(context.Background(), ReloadConfig{})
		failed <- err
	}()
	eventually(t, "the new process starts", exists(began))
	if err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	wantError(t, <-failed, []string{errStopping.Error()})
	_, err := e.Reload(t.Context(), ReloadConfig{})
	wantError(t, err, []string{errStopping.Error()})
}

func TestReloadTakesAPin(t *testing.T) {
	cfg, path := upgradable(t)
	pin := func(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }
	cfg.SHA256 = pin(script("serve", "1"))
	e := start(t, cfg)
	install(t, path, script("serve", "2"), 0o755)
	_, err := e.Reload(t.Context(), ReloadConfig{})
	wantError(t, err, []string{"not the pinned"})
	if _, err = e.Reload(t.Context(), ReloadConfig{SHA256: pin(script("serve", "2"))}); err != nil {
		t.Fatal(err)
	}
	e.send(1, "exit-once "+filepath.Join(t.TempDir(), "crashed"))
	if got := e.handler(1); got != "probe@2" { // by a process that was started after the crash
		t.Errorf("answered by %s", got)
	}
}

func TestChanged(t *testing.T) {
	a, b, none := fileState{inode: 1}, fileState{inode: 1, size: 1}, fileState{}
	for _, c := range []struct {
		what                string
		looked, before, now fileState
		want                bool
	}{
		{"nothing has happened", a, a, a, false},
		{"it is being written", a, a, b, false},
		{"it is whole", a, b, b, true},
		{"it failed, and is as it was then", b, b, b, false},
		{"it is gone", a, none, none, false},
		{"it came back", none, a, a, true},
	} {
		if got := changed(c.looked, c.before, c.now); got != c.want {
			t.Errorf("%s: changed %v", c.what, got)
		}
	}
}

func TestWatch(t *testing.T) {
	cfg, path := upgradable(t)
	away := filepath.Join(filepath.Dir(path), "v2")
	var problems lockedBuffer
	cfg.Logger = slog.New(slog.NewTextHandler(&problems, &slog.HandlerOptions{Level: slog.LevelError}))
	cfg.Watch, cfg.look = true, 5*time.Millisecond
	e := start(t, cfg)
	version := func(v string) {
		t.Helper()
		eventually(t, "version "+v, func() bool { return e.Status().Version == v })
	}
	install(t, path, script("serve", "renamed"), 0o755)
	version("renamed")
	install(t, away, script("serve", "linked"), 0o755)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("v2", path); err != nil {
		t.Fatal(err)
	}
	version("linked")
	install(t, away, script("exits", ""), 0o755)
	eventually(t, "it is told", func() bool { return problems.count("the old version goes on") == 1 })
	install(t, away, script("serve", "repaired"), 0o755)
	version("repaired")
	if s := e.Status(); s.FailedUpgrades != 1 || s.Upgrades != 3 || problems.count("the old version goes on") != 1 {
		t.Errorf("status %+v, log %s", s, problems.String())
	}
}

// lockedBuffer is a log that can be read meanwhile.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *lockedBuffer) count(s string) int { return strings.Count(b.String(), s) }
