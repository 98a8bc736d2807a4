package host_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/host"
)

// hostileSockets makes TestHostileHost a host of its own.
const hostileSockets = "HOSTILE_SOCKETS"

// TestHostileHost is no test: it is the host that TestNoOrphans kills. It
// starts a handler, hands it a bad record, tells the handler's process, and
// does nothing any more.
func TestHostileHost(*testing.T) {
	dir := os.Getenv(hostileSockets)
	if dir == "" {
		return
	}
	var env []string
	for _, name := range []string{hostileMode, hostileDir, "GORACE"} {
		env = append(env, name+"="+os.Getenv("HANDLER_"+name))
	}
	h, err := host.Start(context.Background(), host.Config{
		Path: os.Args[0], Args: []string{"-test.run=^TestHostileProcess$"}, Trust: host.TrustByPath, Env: env,
		SocketDir: dir, StartTimeout: patience, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	h.Deliver([]plugin.Delivery{{Handle: 1, Message: plugin.Message{Value: []byte(bad)}}})
	fmt.Println(h.Status().PID)
	select {}
}

func TestNoOrphans(t *testing.T) {
	for _, mode := range []string{"hangs", "blocks in a call", "spins", "freezes", "hangs with a grandchild"} {
		t.Run(mode, func(t *testing.T) {
			l := newLab(t, mode, 0)
			mini := exec.Command(os.Args[0], "-test.run=^TestHostileHost$")
			mini.Env = append(os.Environ(), hostileSockets+"="+l.cfg.SocketDir,
				"HANDLER_"+hostileMode+"="+mode, "HANDLER_"+hostileDir+"="+l.dir, "HANDLER_GORACE=atexit_sleep_ms=0")
			// A session of its own, as under systemd: the kernel hangs up frozen
			// processes of a group that has lost its last parent there.
			mini.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			out, err := mini.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := mini.Start(); err != nil {
				t.Fatal(err)
			}
			defer mini.Wait()
			defer mini.Process.Kill()
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatalf("the host says %q", line)
			}
			if !soon(func() bool { return !l.noted("did").IsZero() && (mode != "freezes" || frozen(pid)) }) {
				t.Fatal("the handler does not get the record")
			}
			pids := []int{pid}
			if mode == "hangs with a grandchild" {
				if !soon(func() bool { return !l.noted("grandchild").IsZero() }) {
					t.Fatal("there is no grandchild")
				}
				grandchild, err := l.note("grandchild")
				if err != nil {
					t.Fatal(err)
				}
				pids = append(pids, grandchild)
			}
			began := time.Now()
			if err := mini.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			for _, pid := range pids {
				if !soon(func() bool { return !alive(pid) }) {
					t.Errorf("process %d outlives the host", pid)
					unix.Kill(pid, unix.SIGKILL)
				}
			}
			t.Logf("all gone after %v", time.Since(began).Round(time.Millisecond))
			left, err := filepath.Glob(filepath.Join(l.cfg.SocketDir, "*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, dir := range left {
				os.RemoveAll(dir) // nobody is left to do it
			}
		})
	}
}

// frozen reports whether all threads of a process are stopped: until then the
// kernel does not take it for stopped.
func frozen(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, stat := range threads {
		b, err := os.ReadFile(stat)
		if err != nil || !strings.Contains(string(b), ") T ") {
			return false
		}
	}
	return err == nil && len(threads) > 0
}
