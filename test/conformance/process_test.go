package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/host"
)

const (
	// hostEnv makes this test's program a host: see hostProcess.
	hostEnv    = "CONFORMANCE_HOST"
	commandEnv = "CONFORMANCE_COMMAND"
	cookieEnv  = "KCONSUME_HANDLER=cc4f6a0e-handler-v1"
	// orphanLimit is how long a handler may live on without its host.
	orphanLimit = 3 * time.Second
)

// byHand: who starts it without kconsume is told what it is.
func byHand(t *testing.T, path string) {
	c := exec.CommandContext(t.Context(), path)
	c.Env = []string{"PATH=" + os.Getenv("PATH")}
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	exit, _ := errors.AsType[*exec.ExitError](err)
	if exit == nil || exit.ExitCode() != 64 {
		t.Errorf("started by hand: %v", err)
	}
	if text := stderr.String(); !strings.Contains(text, "conformance") || !strings.Contains(text, "kconsume") {
		t.Errorf("it says %q", text)
	}
	if text := strings.TrimSpace(stdout.String()); text != "before serve" {
		t.Errorf("stdout is %q", text)
	}
}

// noLifeline: a handler that could not be stopped does not start.
func noLifeline(t *testing.T, path string) {
	c := exec.CommandContext(t.Context(), path)
	c.Env = []string{"PATH=" + os.Getenv("PATH"), cookieEnv, "PLUGIN_UNIX_SOCKET_DIR=" + t.TempDir()}
	out, err := c.CombinedOutput()
	exit, _ := errors.AsType[*exec.ExitError](err)
	if exit == nil || exit.ExitCode() != 70 {
		t.Errorf("without a lifeline: %v\n%s", err, out)
	}
}

// signals are the host's business.
func signals(t *testing.T, path string) {
	r := start(t, path, nil)
	pid := r.host.Status().PID
	g := r.gate()
	h := r.deliver(g.Delivery)[0]
	r.awaitFile(g.begun)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGTERM, syscall.SIGINT} {
		if err := syscall.Kill(pid, s); err != nil {
			t.Fatal(err)
		}
		r.acked(r.ask(do("ack")).Handle)
	}
	r.create(g.open)
	r.await(h)
	r.acked(h)
	if s := r.host.Status(); s.PID != pid || s.Restarts > 0 {
		t.Errorf("it did not survive: %+v", s)
	}
}

// prints reach the log, whenever they are made.
func prints(t *testing.T, path string) {
	r := start(t, path, func(c *host.Config) { c.Args = []string{"slow"} })
	r.acked(r.ask(do("say good morning ä")).Handle)
	for _, want := range []string{`"before serve"`, `"out good morning ä"`, `"err good morning ä"`} {
		for begin := time.Now(); !strings.Contains(r.log.String(), `"msg":`+want); time.Sleep(time.Millisecond) {
			if time.Since(begin) > patience {
				t.Fatalf("%s is not in the log:\n%s", want, r.log)
			}
		}
	}
}

// crash: what a dead process leaves unanswered is delivered again.
func crash(t *testing.T, path string) {
	r := start(t, path, func(c *host.Config) { c.BackoffMin = time.Millisecond })
	list := make([]plugin.Delivery, 40)
	for i := range list {
		list[i] = do("ack")
	}
	list[17] = do("exit-once %s", r.file())
	handles := r.deliver(list...)
	r.await(handles...)
	r.acked(handles...)
	if s := r.host.Status(); s.Restarts != 1 || !strings.Contains(s.LastExit, "exit status 3") {
		t.Errorf("the host: %+v", s)
	}
}

func large(t *testing.T, path string) {
	r := start(t, path, nil)
	d := do("echo")
	d.Message.Value = bytes.Repeat([]byte("0123456789abcdef"), 10<<20/16)
	v := r.ask(d).Verdict
	if len(v.Emitted) != 1 || !bytes.Equal(v.Emitted[0].Value, d.Message.Value) {
		t.Errorf("10 MiB do not come back: class %d, %d emitted", v.Class, len(v.Emitted))
	}
	d = do("ack")
	d.Message.Value = make([]byte, 63<<20)
	r.acked(r.ask(d).Handle)
	d = do("ack")
	d.Message.Value = make([]byte, 64<<20)
	if v := r.ask(d).Verdict; v.Class != plugin.ClassPermanent || v.Reason != plugin.ReasonOversize || v.Rule != "host" {
		t.Errorf("64 MiB: %+v", v)
	}
	if v := r.ask(do("emit-bytes %d", 129<<20)).Verdict; v.Class != plugin.ClassPermanent || v.Rule != "emitted-size" || len(v.Emitted) > 0 {
		t.Errorf("129 MiB emitted: class %d, rule %q, message %q", v.Class, v.Rule, v.Message)
	}
	r.acked(r.ask(do("ack")).Handle)
	if s := r.host.Status(); s.Restarts > 0 {
		t.Errorf("it did not survive: %+v", s)
	}
}

func lifeline(t *testing.T, path string)        { orphan(t, path, "") }
func lifelineBlocked(t *testing.T, path string) { orphan(t, path, "block") }
func lifelineBusy(t *testing.T, path string)    { orphan(t, path, "spin") }

// orphan kills a host with SIGKILL while its handler does what the command says,
// and waits for the handler's end.
func orphan(t *testing.T, path, command string) {
	begun := t.TempDir() + "/begun"
	if command != "" {
		command += " " + begun
	}
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), hostEnv+"="+path, commandEnv+"="+command, "CONFORMANCE_SOCKETS="+config(t, path).SocketDir)
	c.Stderr = os.Stderr
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	defer c.Process.Kill()
	var pid int
	if _, err := fmt.Fscan(stdout, &pid); err != nil {
		t.Fatalf("the host did not start: %v", err)
	}
	if command != "" {
		awaitFile(t, begun)
	}
	if !alive(pid) {
		t.Fatal("the handler is gone before its host")
	}
	c.Process.Kill()
	killed := time.Now()
	for alive(pid) {
		if time.Since(killed) > orphanLimit {
			syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("the handler still runs %v after its host's end", orphanLimit)
		}
		time.Sleep(time.Millisecond)
	}
	t.Logf("gone %v after its host", time.Since(killed).Round(time.Millisecond))
}

// alive tells whether a process runs: one that nobody has reaped yet does not.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, after, _ := bytes.Cut(stat, []byte(") "))
	return len(after) > 0 && after[0] != 'Z' && after[0] != 'X'
}

// hostProcess starts a handler, has it do something, tells its number and waits
// to be killed.
func hostProcess(path, command string) {
	h, err := host.Start(context.Background(), host.Config{
		Path: path, Trust: host.TrustByPath, SocketDir: os.Getenv("CONFORMANCE_SOCKETS"), StartTimeout: patience,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if command != "" {
		d := do("%s", command)
		d.Handle = 1
		h.Deliver([]plugin.Delivery{d})
	}
	fmt.Println(h.Status().PID)
	io.Copy(io.Discard, os.Stdin) // empty where nobody gave one
	select {}
}
