package plugin

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kconsume/kconsume/plugin/internal/wire"
)

// tracerEnv makes the test's own file a debugger of the process it names.
const tracerEnv = "TEST_TRACER"

// trace does what a debugger does at the least: it attaches, and has the process
// go on whenever that stops. It lives as long as its stdin.
func trace(text string) int {
	runtime.LockOSThread() // a tracer is a thread
	pid, err := strconv.Atoi(text)
	if err == nil {
		err = unix.PtraceSeize(pid)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "attach:", err)
		return 1
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // which detaches
	}()
	for {
		var status unix.WaitStatus
		if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil || !status.Stopped() {
			select {} // the process has ended
		}
		_ = unix.PtraceCont(pid, int(status.StopSignal())) // an end is seen above
	}
}

// A handler to be debugged says Hello, and holds its records back until somebody
// has attached, who needs not be its parent.
func TestDebug(t *testing.T) {
	for name, setting := range map[string][2]string{"environment": {debugEnv + "=1", ""}, "argument": {"", debugArg}} {
		t.Run(name, func(t *testing.T) {
			p := startWith(t, strings.Fields(setting[1]), strings.Fields(setting[0])...)
			s, _ := p.deliver(t)
			if h := s.hello; !h.BeatsMayWait || !slices.Contains(h.Capabilities, "debug") {
				t.Errorf("hello: %+v", h)
			}
			s.send(t, &wire.HostFrame{Concurrency: 1, Records: []wire.Record{{Handle: 1, Topic: "t", Key: []byte("deadline"), TimeoutMS: 1}}})
			pid := p.cmd.Process.Pid
			p.wantLine(t, fmt.Sprintf("[WARN] handler orders waits for a debugger: dlv attach %d\n", pid))

			debugger := exec.Command(os.Args[0])
			debugger.Env = []string{tracerEnv + "=" + strconv.Itoa(pid)}
			debugger.Stderr = os.Stderr
			debugger.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			stdin, err := debugger.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := debugger.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				stdin.Close()
				if err := debugger.Wait(); err != nil {
					t.Errorf("debugger: %v", err)
				}
			})
			p.wantLine(t, fmt.Sprintf("[WARN] handler orders is debugged by process %d: no deadlines from here on\n", debugger.Process.Pid))
			p.wantLine(t, "deadline false\n")
			if f := s.receive(t); !slices.Equal(f.Acked, []uint64{1}) {
				t.Errorf("answer: %+v", f)
			}
		})
	}
}

// Nobody attaches, and the host has gone.
func TestDebugEndsWithItsLifeline(t *testing.T) {
	p := start(t, debugEnv+"=1")
	s, _ := p.deliver(t)
	s.send(t, &wire.HostFrame{Concurrency: 1})
	p.wantLine(t, fmt.Sprintf("[WARN] handler orders waits for a debugger: dlv attach %d\n", p.cmd.Process.Pid))
	p.lifeline.Close()
	if code, _, stderr := p.wait(t); code != 0 || stderr != "" {
		t.Errorf("exit %d, stderr %q", code, stderr)
	}
}

func TestTracer(t *testing.T) {
	for _, c := range []struct {
		status, pid string
		known       bool
	}{
		{"Name:\tx\nTracerPid:\t0\nUid:\t0\n", "0", true},
		{"TracerPid:\t4711\n", "4711", true},
		{"NotTracerPid:\t1\n", "", false},
		{"", "", false},
	} {
		if pid, known := tracer(c.status); pid != c.pid || known != c.known {
			t.Errorf("%q: %q, %v", c.status, pid, known)
		}
	}
}
