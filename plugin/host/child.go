package host

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// readOn is how long a dead handler's pipes are still read: what it wrote is in
// them already, but a descendant in another process group may hold them open.
const readOn = 250 * time.Millisecond

// child is the operating system's side of one handler process: it starts it in
// a process group of its own, reads its output, notices its exit, and kills and
// reaps the group. It is go-plugin's runner, since go-plugin's own stalls or
// panics on what a handler may write, and waits for pipes rather than for the
// process.
//
// The handler sees: stdin empty, stdout and stderr pipes, on descriptor 3 the
// read end of a pipe that nobody writes to, whose end tells it to exit, and
// with a pin its own file on descriptor 4, and with TLS a pipe that holds its
// certificate and key.
type child struct {
	cfg      *Config
	pinned   *os.File      // the file that is executed, where there is a pin
	certs    *certificates // nil where there is no TLS
	cmd      *exec.Cmd
	socket   string         // the directory of its socket, made by go-plugin
	lifeline *os.File       // write end: closing it tells the handler to exit
	first    *io.PipeReader // what go-plugin reads as stdout: the handshake
	out      *output
	pumps    sync.WaitGroup
	exited   chan struct{}    // closed when the process is reaped, or could not be started
	state    *os.ProcessState // set before exited is closed; nil if it never ran

	mu      sync.Mutex
	refused error // guarded by mu; why the handshake was not accepted
	running bool  // guarded by mu; from start to reaping
	doomed  bool  // guarded by mu; killed, perhaps before it started
}

func newChild(cfg *Config, pinned *os.File, certs *certificates) *child {
	return &child{cfg: cfg, pinned: pinned, certs: certs, out: newOutput(cfg.Logger, cfg.unlogged), exited: make(chan struct{})}
}

// prepare makes the command. env is what go-plugin wants the handler to see.
func (c *child) prepare(env []string, socket string) {
	c.socket = socket
	c.cmd = &exec.Cmd{
		Path:        c.cfg.Path,
		Args:        append([]string{c.cfg.Path}, c.cfg.Args...),
		Env:         environment(env, c.cfg.Env),
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if c.pinned != nil {
		c.cmd.Path = "/proc/self/fd/4"
	}
}

// environment is all that a handler sees of ours: the host's own environment
// holds Kafka's password. The last of two equal names counts.
func environment(sets ...[]string) []string {
	var env []string
	for _, name := range [...]string{"PATH", "HOME", "LANG", "TZ"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	if os.Getenv("LANG") == "" {
		env = append(env, "LANG=C.UTF-8") // a JDK would take US-ASCII
	}
	for _, set := range sets {
		env = append(env, set...)
	}
	return env
}

// Start starts the process; go-plugin calls it once.
func (c *child) Start(context.Context) error {
	material, err := c.certs.handOver()
	if err != nil {
		return err
	}
	defer material.Close() // of a nil file, where there is no TLS, too
	pipes, err := makePipes(3)
	if err != nil {
		return err
	}
	stdout, stderr, life := pipes[0], pipes[1], pipes[2]
	c.cmd.Stdout, c.cmd.Stderr = stdout.w, stderr.w
	c.cmd.ExtraFiles = []*os.File{life.r}
	if c.pinned != nil {
		c.cmd.ExtraFiles = append(c.cmd.ExtraFiles, c.pinned)
	}
	if material != nil {
		c.cmd.ExtraFiles = append(c.cmd.ExtraFiles, material)
		c.cmd.Env = append(c.cmd.Env, tlsEnv(2+len(c.cmd.ExtraFiles)))
	}
	// What we were started with ends here: a handler gets what is in ExtraFiles
	// and nothing else. What Go has opened is closed in it anyway.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) // Linux 5.11
	if err := c.start(); err != nil {
		for _, p := range pipes {
			p.r.Close()
			p.w.Close()
		}
		close(c.exited)
		return err
	}
	stdout.w.Close()
	stderr.w.Close()
	life.r.Close()
	c.lifeline = life.w
	c.pump(stdout.r, stderr.r)
	return nil
}

// start is refused once the child is doomed.
func (c *child) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.doomed {
		return errors.New("start was given up")
	}
	if err := c.cmd.Start(); err != nil {
		return err
	}
	c.running = true
	if err := yieldMemory(c.cmd.Process.Pid); err != nil {
		c.cfg.Logger.Debug("handler process is as likely to be killed for want of memory as this one", "why", err.Error())
	}
	return nil
}

type pipe struct{ r, w *os.File }

func makePipes(n int) ([]pipe, error) {
	var pipes []pipe
	for range n {
		r, w, err := os.Pipe()
		if err != nil {
			for _, p := range pipes {
				p.r.Close()
				p.w.Close()
			}
			return nil, err
		}
		pipes = append(pipes, pipe{r, w})
	}
	return pipes, nil
}

// pump starts all that lives as long as the process: a reader for each of its
// pipes, and the one that waits for its exit.
func (c *child) pump(stdout, stderr *os.File) {
	var shake *io.PipeWriter
	c.first, shake = io.Pipe()
	h := &handshake{socket: c.socket, to: shake, refuse: c.refuse, log: c.out}
	c.pumps.Go(func() {
		copyLines(stdout, &lines{emit: h.line})
		<-c.exited // a handler that closed stdout without a handshake is slow, not gone
		shake.Close()
	})
	c.pumps.Go(func() { copyLines(stderr, c.out.stream("stderr")) })
	c.pumps.Go(func() {
		c.reap()
		until := time.Now().Add(readOn)
		stdout.SetReadDeadline(until)
		stderr.SetReadDeadline(until)
	})
}

// copyLines reads from until its end or deadline and closes it.
func copyLines(from *os.File, to *lines) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		to.Write(buf[:n])
		if err != nil {
			return
		}
	}
}

// reap waits for the exit of the process, kills what is left of its group, and
// only then lets its number go, which until then nobody else can get.
func (c *child) reap() {
	pid := c.cmd.Process.Pid
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	c.mu.Lock()
	unix.Kill(-pid, unix.SIGKILL)
	c.state, _ = c.cmd.Process.Wait()
	c.running = false
	c.mu.Unlock()
	close(c.exited)
}

// kill ends the process and its group at once.
func (c *child) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doomed = true
	if c.running {
		unix.Kill(-c.cmd.Process.Pid, unix.SIGKILL)
	}
}

// release tells the process to exit, by the end of its lifeline.
func (c *child) release() {
	if c.lifeline != nil {
		c.lifeline.Close()
	}
}

// gone waits at most d for the exit.
func (c *child) gone(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.exited:
		return true
	case <-t.C:
		return false
	}
}

// close frees what is left once the process is reaped, or never started.
func (c *child) close() {
	c.release()
	if c.first != nil {
		c.first.Close()
	}
	c.pumps.Wait()
	c.out.Close()
	if c.pinned != nil {
		c.pinned.Close()
	}
	if c.socket != "" {
		os.RemoveAll(c.socket)
	}
}

// refuse ends a process whose handshake is not ours.
func (c *child) refuse(err error) {
	c.mu.Lock()
	c.refused = err
	c.mu.Unlock()
	c.kill()
}

func (c *child) refusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// pid is 0 while there is no process.
func (c *child) pid() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running {
		return 0
	}
	return c.cmd.Process.Pid
}

// exit tells how the process ended, with the line of stderr that explains it.
// To be called once exited is closed.
func (c *child) exit() string {
	text := "did not start"
	if c.state != nil {
		text = exitText(c.state.Sys().(syscall.WaitStatus))
	}
	words := c.out.lastWords()
	if words != "" {
		text += ": " + words
	}
	if c.state != nil {
		if why := confinement(c.state.Sys().(syscall.WaitStatus), words, canExecute); why != "" {
			text += " (" + why + ")"
		}
	}
	return text
}

// cause is of an end that was not ours to bring about.
func (c *child) cause() Cause {
	switch {
	case c.state == nil:
		return CauseStart
	case c.state.Sys().(syscall.WaitStatus).Signaled():
		return CauseSignal
	}
	return CauseExit
}

func exitText(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "killed by " + unix.SignalName(status.Signal())
	}
	return "exit status " + strconv.Itoa(status.ExitStatus())
}

// What go-plugin asks of a runner.

func (c *child) Wait(context.Context) error { <-c.exited; return nil }

func (c *child) Kill(context.Context) error { c.kill(); return nil }

func (c *child) Stdout() io.ReadCloser { return c.first }

func (c *child) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

func (c *child) Name() string { return c.cfg.Path }

// ID is empty only before the start: then go-plugin has nothing to clean up.
func (c *child) ID() string {
	if c.cmd == nil || c.cmd.Process == nil {
		return ""
	}
	return strconv.Itoa(c.cmd.Process.Pid)
}

func (c *child) Diagnose(context.Context) string { return "" }

func (c *child) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

func (c *child) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
