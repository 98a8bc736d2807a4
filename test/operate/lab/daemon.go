package lab

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Tokens of the daemons' callers.
const (
	AdminToken    = "admin-token-admin-token-admin-token-admin"
	OperatorToken = "operator-token-operator-token-operator"
	SecondToken   = "second-token-second-token-second-token-s" // another operator
	ReaderToken   = "reader-token-reader-token-reader-token-r"
	ViewerToken   = "viewer-token-viewer-token-viewer-token-v"
)

const tokens = "admin root " + AdminToken + "\noperator olga " + OperatorToken + "\noperator otto " + SecondToken +
	"\nreader rita " + ReaderToken + "\nviewer vera " + ViewerToken + "\n"

// Options of a daemon.
type Options struct {
	Bin       string // folder of the programs
	Bootstrap string
	Group     string
	Topic     string
	Handler   string   // "" = Probe
	Flags     []string // more of them
}

// Daemon is `kconsume run` with its API over TCP, on an address of its own.
type Daemon struct {
	URL     string
	Address string
	Runtime string // of XDG_RUNTIME_DIR: its socket is below
	Log     string // file that the handler writes to
	Gate    string // file that the handler Gate waits for

	bin  string
	args []string
	dir  string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
	err  error
	log  strings.Builder
}

// Start runs a daemon until the test ends.
func Start(t testing.TB, o Options) *Daemon {
	t.Helper()
	d := &Daemon{dir: t.TempDir(), bin: o.Bin, Address: loopback()}
	d.URL, d.Log, d.Gate = "http://"+d.Address, filepath.Join(d.dir, "handler.log"), filepath.Join(d.dir, "gate")
	file := filepath.Join(d.dir, "tokens")
	if err := os.WriteFile(file, []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	runtime, err := os.MkdirTemp("", "kc-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	d.Runtime = runtime
	t.Cleanup(func() { _ = os.RemoveAll(runtime) })
	handler := o.Handler
	if handler == "" {
		handler = Probe
	}
	d.args = append([]string{
		"run", "--brokers", o.Bootstrap, "--group", o.Group, "--topic", o.Topic, "--session-timeout", "6s", "--metrics", "",
		"--handler", filepath.Join(o.Bin, handler),
		"--handler-env", "PROBE_LOG=" + d.Log, "--handler-env", "GATE_LOG=" + d.Log, "--handler-env", "GATE=" + d.Gate,
		"--admin", "tcp:" + d.Address, "--admin-tokens", file,
	}, o.Flags...)
	t.Cleanup(func() {
		d.Stop(t)
		if t.Failed() {
			d.mu.Lock()
			defer d.mu.Unlock()
			t.Logf("the log of the daemon at %s:\n%s", d.URL, d.log.String())
		}
	})
	d.Begin(t)
	return d
}

// loopback is an address of this host that nobody else uses.
func loopback() string {
	return fmt.Sprintf("127.%d.%d.%d:9470", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

// Begin starts the daemon, again after a Kill, and returns once its API answers.
func (d *Daemon) Begin(t testing.TB) {
	t.Helper()
	cmd := exec.Command(filepath.Join(d.bin, Kconsume), d.args...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+d.Runtime, "STATE_DIRECTORY="+d.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	d.mu.Lock()
	d.cmd, d.done = cmd, done
	d.mu.Unlock()
	go d.read(cmd, stderr, done)
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", d.Address); err == nil {
			c.Close()
			return
		}
		select {
		case <-done:
			t.Fatal("the daemon ended")
		default:
		}
		if time.Now().After(end) {
			t.Fatal("the API does not answer")
		}
	}
}

func (d *Daemon) read(cmd *exec.Cmd, stderr io.Reader, done chan struct{}) {
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		d.mu.Lock()
		fmt.Fprintln(&d.log, lines.Text())
		d.mu.Unlock()
	}
	err := cmd.Wait()
	d.mu.Lock()
	d.err = err
	d.mu.Unlock()
	close(done)
}

// end signals the process and waits for its end.
func (d *Daemon) end(sig syscall.Signal) {
	d.mu.Lock()
	cmd, done := d.cmd, d.done
	d.mu.Unlock()
	_ = cmd.Process.Signal(sig) // it may have ended
	<-done
}

// Kill ends it at once. It may be called from any goroutine.
func (d *Daemon) Kill() { d.end(syscall.SIGKILL) }

// Stop ends it in an orderly way, if it runs, and checks that it was one.
func (d *Daemon) Stop(t testing.TB) {
	t.Helper()
	d.mu.Lock()
	done := d.done
	d.mu.Unlock()
	select {
	case <-done:
		return
	default:
	}
	d.end(syscall.SIGTERM)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		t.Errorf("the daemon at %s ended with %v", d.URL, d.err)
	}
}

// PID is its process.
func (d *Daemon) PID() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cmd.Process.Pid
}

// Socket is the path of its socket.
func (d *Daemon) Socket(t testing.TB) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(d.Runtime, "kconsume", "*.sock"))
	if err != nil || len(found) != 1 {
		t.Fatalf("sockets %q (%v)", found, err)
	}
	return found[0]
}
