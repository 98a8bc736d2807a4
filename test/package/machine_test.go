package package_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kconsume/kconsume/test/suite"
)

// machine is the Debian root with a systemd of its own as process 1, in a
// container that shares this host's network. What is written there is in memory
// and goes with it.
type machine struct {
	t      *testing.T
	first  int // its process 1, as this host counts
	output bytes.Buffer
}

// boot starts a machine, which ends with the test, or with this process however
// that ends. more are options of systemd-nspawn.
func boot(t *testing.T, more ...string) *machine {
	t.Helper()
	m := &machine{t: t}
	cmd := exec.Command("systemd-nspawn", append([]string{"--quiet", "--register=no", "--keep-unit", "--boot", "--console=pipe",
		"--volatile=overlay", "--directory=" + made.root, "--machine=kconsume-test-" + strconv.Itoa(os.Getpid()),
		"--hostname=test", "--link-journal=no", "--resolv-conf=off", "--timezone=off"}, more...)...)
	cmd.Stdout, cmd.Stderr = &m.output, &m.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started, ended := make(chan error, 1), make(chan error, 1)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		runtime.LockOSThread() // the kernel ties the machine's end to the thread that starts it
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	})
	if err := <-started; err != nil {
		t.Fatalf("%v; run make check, which installs it", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // shuts it down
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("the machine did not shut down within a minute")
			_ = cmd.Process.Kill()
		}
		waiting.Wait()
		if t.Failed() {
			t.Logf("the machine's console:\n%s", m.output.Bytes())
		}
	})
	until(t, "the machine has a process 1", func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("systemd-nspawn: %v", err)
		default:
		}
		m.first = firstProcess(cmd.Process.Pid)
		return m.first != 0
	})
	until(t, "systemd is up", func() bool {
		_, out := m.try("systemctl is-system-running")
		return out == "running" || out == "degraded"
	})
	if _, failed := m.try("systemctl list-units --failed --plain --no-legend"); failed != "" {
		t.Fatalf("units that failed before there is anything of ours: %s", failed)
	}
	return m
}

// firstProcess is the process 1 that a systemd-nspawn has started, 0 for none yet.
func firstProcess(nspawn int) int {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", nspawn))
	if err != nil {
		return 0
	}
	for _, child := range strings.Fields(string(children)) {
		name, err := os.ReadFile("/proc/" + child + "/comm")
		if err == nil && strings.TrimSpace(string(name)) == "systemd" {
			pid, _ := strconv.Atoi(child)
			return pid
		}
	}
	return 0
}

// try runs a shell's command line in the machine.
func (m *machine) try(line string) (code int, out string) {
	cmd := exec.Command("nsenter", "--target", strconv.Itoa(m.first), "--all", "--",
		"/usr/bin/env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8",
		"DEBIAN_FRONTEND=noninteractive", "SYSTEMD_PAGER=", "/bin/sh", "-c", "cd /srv; "+line)
	b, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		m.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), strings.TrimSpace(string(b))
}

// sh runs a command line as a person would and shows it; it must succeed.
func (m *machine) sh(line string) string {
	m.t.Helper()
	code, out := m.try(line)
	m.t.Logf("# %s\n%s", line, quiet(out))
	if code != 0 {
		m.t.Fatalf("exit code %d", code)
	}
	return out
}

// fails is sh for what must be refused.
func (m *machine) fails(line string) string {
	m.t.Helper()
	code, out := m.try(line)
	m.t.Logf("# %s\n%s\n(exit code %d)", line, quiet(out), code)
	if code == 0 {
		m.t.Fatal("it succeeded")
	}
	return out
}

// quiet is what a command printed without dpkg's counting.
func quiet(out string) string {
	var kept []string
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "(Reading database") && !strings.HasPrefix(line, "debconf: delaying") {
			kept = append(kept, line)
		}
	}
	return strings.TrimSpace(strings.Join(kept, ""))
}

// path is where this host finds a file of the machine.
func (m *machine) path(name string) string {
	return filepath.Join("/proc", strconv.Itoa(m.first), "root", name)
}

// write makes a file in the machine, and the folders above it.
func (m *machine) write(name string, mode os.FileMode, content []byte) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(m.path(name)), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(m.path(name), content, mode); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Chmod(m.path(name), mode); err != nil {
		m.t.Fatal(err)
	}
}

// copy copies a file of this host's into the machine.
func (m *machine) copy(from, name string, mode os.FileMode) {
	m.t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		m.t.Fatal(err)
	}
	m.write(name, mode, b)
}

// property is what systemd says of a unit.
func (m *machine) property(unit, name string) string {
	m.t.Helper()
	code, out := m.try("systemctl show --value -p " + name + " " + unit)
	if code != 0 {
		m.t.Fatalf("%s of %s: %s", name, unit, out)
	}
	return out
}

// journal is what an instance logged.
func (m *machine) journal(instance string) string {
	_, out := m.try("journalctl --no-pager -o cat -u kconsume@" + instance)
	return out
}

// until polls a condition; the bound only keeps a broken test from hanging.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	suite.Until(t, 3*time.Minute, what, ok)
}
