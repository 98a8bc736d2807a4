package plugin

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	goplugin "github.com/hashicorp/go-plugin"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kconsume/kconsume/plugin/internal/wire"
)

// helperEnv makes the test's own file the handler that serve_test starts.
const helperEnv = "TEST_HANDLER"

func TestMain(m *testing.M) {
	if pid := os.Getenv(tracerEnv); pid != "" {
		os.Exit(trace(pid))
	}
	if os.Getenv(helperEnv) != "" {
		if os.Getenv(helperEnv) == "nameless" {
			Serve(Config{}, HandlerFunc(helper))
		}
		Serve(Config{
			Name: "orders", Version: "1.2", Topics: []string{"orders.confirmed", "orders.paid"},
			Close: func() { fmt.Println("closed") },
		}, HandlerFunc(helper))
	}
	goleak.VerifyTestMain(m)
}

// helper does what the record's key says.
func helper(ctx context.Context, m *Message) error {
	switch string(m.Key) {
	case "deadline":
		_, ok := ctx.Deadline()
		fmt.Println("deadline", ok)
	case "print":
		fmt.Println("printed")
	case "grandchild": // it holds stderr open, and says when it is there
		cmd := exec.Command("/bin/sh", "-c", "echo there >&2; exec sleep 3600")
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		_ = cmd.Wait()
	case "block":
		fmt.Fprintln(os.Stderr, "blocking")
		select {}
	case "gc":
		percent := debug.SetGCPercent(100)
		limit := debug.SetMemoryLimit(-1)
		return Drop(fmt.Sprintf("%d %v", percent, limit < 1<<62))
	}
	return nil
}

// process is a handler started as the host starts it.
type process struct {
	cmd      *exec.Cmd
	lifeline *os.File // closed by the test
	stdout   *bufio.Reader
	stderr   *bufio.Reader
}

func start(t *testing.T, env ...string) *process {
	t.Helper()
	return startWith(t, nil, env...)
}

func startWith(t *testing.T, args []string, env ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append([]string{
		helperEnv + "=1",
		wire.CookieKey + "=" + wire.CookieValue,
		goplugin.EnvUnixSocketDir + "=" + t.TempDir(),
	}, env...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	theirs, lifeline, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	t.Cleanup(func() {
		lifeline.Close()
		_ = cmd.Process.Kill() // has mostly ended
		_ = cmd.Wait()
	})
	return &process{cmd: cmd, lifeline: lifeline, stdout: bufio.NewReader(stdout), stderr: bufio.NewReader(stderr)}
}

// deliver opens a stream to the process, whose first line tells where.
func (p *process) deliver(t *testing.T) (stream *peer, socket string) {
	t.Helper()
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		rest, _ := io.ReadAll(p.stderr)
		t.Fatalf("handshake: %v; stderr: %s", err, rest)
	}
	fields := strings.Split(strings.TrimSuffix(line, "\n"), "|")
	if len(fields) != 6 || fields[0] != "1" || fields[1] != "1" || fields[2] != "unix" || fields[4] != "grpc" || fields[5] != "" {
		t.Fatalf("handshake %q", line)
	}
	conn, err := grpc.NewClient("unix:"+fields[3], append(wire.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s, err := wire.Deliver(context.Background(), conn)
	if err != nil {
		t.Fatal(err)
	}
	stream = &peer{BidiStreamingClient: s}
	f := stream.receive(t)
	if f.Hello == nil || f.Hello.Name != "orders" {
		t.Fatalf("hello: %+v", f)
	}
	stream.hello = f.Hello
	return stream, fields[3]
}

// wantLine reads the next line of stderr.
func (p *process) wantLine(t *testing.T, want string) {
	t.Helper()
	if line, err := p.stderr.ReadString('\n'); err != nil || line != want {
		t.Fatalf("stderr: %q, %v, want %q", line, err, want)
	}
}

// wait reads what is left of the outputs and returns the exit code.
func (p *process) wait(t *testing.T) (code int, stdout, stderr string) {
	t.Helper()
	out, err := io.ReadAll(p.stdout)
	if err != nil {
		t.Fatal(err)
	}
	errs, err := io.ReadAll(p.stderr)
	if err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait() // an exit code is what is asked for
	return p.cmd.ProcessState.ExitCode(), string(out), string(errs)
}

func TestServeByHand(t *testing.T) {
	var stderr bytes.Buffer
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = []string{helperEnv + "=1"}, &stderr
	out, _ := cmd.Output()
	if code := cmd.ProcessState.ExitCode(); code != exitUsage || len(out) != 0 {
		t.Errorf("exit %d, stdout %q", code, out)
	}
	for _, want := range []string{"orders 1.2 is a kconsume handler for orders.confirmed, orders.paid.", "kconsume-handler-orders", "--topic orders.confirmed --handler orders\n", "--handler-arg --debug\n"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("usage lacks %q:\n%s", want, &stderr)
		}
	}
}

func TestServePrintsGoToStderr(t *testing.T) {
	p := start(t)
	s, socket := p.deliver(t)
	s.send(t, &wire.HostFrame{Concurrency: 1, Records: []wire.Record{{Handle: 1, Topic: "t", Key: []byte("print")}}})
	if f := s.receive(t); len(f.Acked) != 1 {
		t.Errorf("answer: %+v", f)
	}
	p.lifeline.Close()
	code, stdout, stderr := p.wait(t)
	if code != 0 || stdout != "" || stderr != "printed\n" {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

func TestServeEndsWithItsLifeline(t *testing.T) {
	p := start(t)
	s, _ := p.deliver(t)
	s.send(t, &wire.HostFrame{Concurrency: 1, Records: []wire.Record{{Handle: 1, Topic: "t", Key: []byte("block")}}})
	if line, err := p.stderr.ReadString('\n'); err != nil || line != "blocking\n" {
		t.Fatalf("stderr: %q, %v", line, err)
	}
	p.lifeline.Close()
	if code, _, _ := p.wait(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// What the handler started in its group ends with it when the host is gone: the
// end of stderr, which it holds, shows it.
func TestServeLeavesNoOrphans(t *testing.T) {
	p := start(t)
	s, _ := p.deliver(t)
	s.send(t, &wire.HostFrame{Concurrency: 1, Records: []wire.Record{{Handle: 1, Topic: "t", Key: []byte("grandchild")}}})
	p.wantLine(t, "there\n")
	p.lifeline.Close()
	if code, _, stderr := p.wait(t); code != 0 || stderr != "" {
		t.Errorf("exit %d, stderr %q", code, stderr)
	}
}

func TestServeLeavesSignalsToTheHost(t *testing.T) {
	p := start(t)
	s, _ := p.deliver(t)
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	s.send(t, &wire.HostFrame{Concurrency: 1, Drain: true, Records: []wire.Record{{Handle: 1, Topic: "t"}}})
	if f := s.receive(t); len(f.Acked) != 1 {
		t.Errorf("answer: %+v", f)
	}
	if err := s.RecvMsg(new(wire.PluginFrame)); err != io.EOF {
		t.Errorf("after the drain: %v", err)
	}
}

// Config.Close comes behind the last answer and before the stream's end, and not
// at all where the process is cut off.
func TestServeCloses(t *testing.T) {
	p := start(t)
	s, _ := p.deliver(t)
	s.send(t, &wire.HostFrame{Concurrency: 1, Drain: true, Records: []wire.Record{{Handle: 1, Topic: "t", Key: []byte("print")}}})
	if f := s.receive(t); len(f.Acked) != 1 {
		t.Errorf("answer: %+v", f)
	}
	if err := s.RecvMsg(new(wire.PluginFrame)); err != io.EOF {
		t.Errorf("after the drain: %v", err)
	}
	p.lifeline.Close()
	if code, _, stderr := p.wait(t); code != 0 || stderr != "printed\nclosed\n" {
		t.Errorf("exit %d, stderr %q", code, stderr)
	}
}

func TestServeTunesMemory(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want string
	}{
		{nil, "400 true"},
		{[]string{"GOGC=50", "GOMEMLIMIT=7000000000000000000"}, "50 false"},
	} {
		p := start(t, c.env...)
		s, _ := p.deliver(t)
		s.send(t, &wire.HostFrame{Concurrency: 1, Records: []wire.Record{{Handle: 1, Topic: "t", Key: []byte("gc")}}})
		if v := s.verdicts(t, 1)[1]; v.Class != wire.ClassDrop || v.Message != c.want {
			t.Errorf("with %q: GOGC and a limit: %q, want %q", c.env, v.Message, c.want)
		}
	}
}

func TestServeRefuses(t *testing.T) {
	t.Run("no lifeline", func(t *testing.T) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = []string{helperEnv + "=1", wire.CookieKey + "=" + wire.CookieValue, goplugin.EnvUnixSocketDir + "=" + t.TempDir()}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, _ := cmd.Output()
		if code := cmd.ProcessState.ExitCode(); code != exitSoftware || len(out) != 0 || !strings.Contains(stderr.String(), "lifeline") {
			t.Errorf("exit %d, stdout %q, stderr %q", code, out, &stderr)
		}
	})
	t.Run("no name", func(t *testing.T) {
		p := start(t, helperEnv+"=nameless")
		code, stdout, stderr := p.wait(t)
		if code != exitSoftware || stdout != "" || !strings.Contains(stderr, "Config.Name") {
			t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
		}
	})
	t.Run("no folder for the socket", func(t *testing.T) {
		p := start(t, goplugin.EnvUnixSocketDir+"="+filepath.Join(t.TempDir(), "missing"))
		code, stdout, stderr := p.wait(t)
		if code != exitSoftware || stdout != "" || !strings.Contains(stderr, "missing") {
			t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
		}
	})
}

func TestMemory(t *testing.T) {
	files := map[string]string{
		"/proc/meminfo":     "MemTotal:       16384 kB\nMemFree: 1 kB\n",
		"/proc/self/cgroup": "1:name=systemd:/x\n0::/a/b\n",
	}
	read := func(name string) string { return files[name] }
	for _, c := range []struct {
		file, text string
		want       int64
	}{
		{"/sys/fs/cgroup/a/b/memory.max", "max\n", 16 << 20},
		{"/sys/fs/cgroup/a/memory.max", "8388608\n", 8 << 20},
		{"/sys/fs/cgroup/a/b/memory.max", "4194304\n", 4 << 20},
		{"/sys/fs/cgroup/memory.max", "99999999999\n", 4 << 20},
		{"/proc/meminfo", "", 4 << 20},
		{"/proc/self/cgroup", "", 0},
	} {
		files[c.file] = c.text
		if got := memory(read); got != c.want {
			t.Errorf("with %s %q: %d, want %d", c.file, c.text, got, c.want)
		}
	}
}
