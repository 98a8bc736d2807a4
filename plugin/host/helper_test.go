package host

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/internal/wire"
)

// helperEnv makes this test binary another program: see helper.
const helperEnv = "HOST_TEST_HELPER"

// versionEnv is the version that the helper "serve" tells.
const versionEnv = "HOST_TEST_VERSION"

func TestMain(m *testing.M) {
	if mode := os.Getenv(helperEnv); mode != "" {
		helper(mode)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// helper is what the test binary is under the host: a handler, well-behaved or
// not, or a host of its own.
func helper(mode string) {
	switch mode {
	case "serve":
		version := cmp.Or(os.Getenv(versionEnv), "1.0")
		plugin.Serve(plugin.Config{Name: "probe", Version: version, Topics: []string{"t"}}, plugin.HandlerFunc(handle))
	case "doomed":
		plugin.Serve(plugin.Config{Name: "probe", Version: "doomed"}, plugin.HandlerFunc(func(context.Context, *plugin.Message) error {
			fmt.Fprintln(os.Stderr, "doomed")
			os.Exit(4)
			return nil
		}))
	case "namesake":
		plugin.Serve(plugin.Config{Name: "another"}, plugin.HandlerFunc(handle))
	case "noisy":
		fmt.Println("1|2")
		os.Stdout.Write(append(make([]byte, 10<<20), '\n'))
		fmt.Fprintln(os.Stderr, `{"@message":5}`)
		os.Stderr.Write([]byte(strings.Repeat("x", 10<<20)))
		plugin.Serve(plugin.Config{Name: "noisy"}, plugin.HandlerFunc(handle))
	case "host":
		hostHelper()
	case "exits":
		fmt.Fprintln(os.Stderr, "cannot read the configuration")
		os.Exit(7)
	case "mute":
		os.Stdout.Close()
		select {}
	case "old":
		fmt.Printf("1|7|unix|%s/s|grpc\n", os.Getenv("PLUGIN_UNIX_SOCKET_DIR"))
		select {}
	case "deaf": // listens, and never accepts
		listen()
		select {}
	default:
		serveRude(rude{mode: mode})
	}
}

// handle does what the record's value says.
func handle(ctx context.Context, m *plugin.Message) error {
	verb, arg, _ := strings.Cut(string(m.Value), " ")
	switch verb {
	case "fail":
		return plugin.Transient(errors.New("later"))
	case "panic":
		panic(arg)
	case "tell":
		return plugin.Permanent(fmt.Errorf("attempt %d", m.Attempt))
	case "environment":
		return plugin.Permanent(errors.New(strings.Join(os.Environ(), "\n")))
	case "exit":
		os.Exit(3)
	case "exit-once":
		if first(arg) {
			fmt.Fprintln(os.Stderr, "out of luck")
			os.Exit(3)
		}
	case "kill-once":
		if first(arg) {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	case "freeze-once":
		if first(arg) {
			syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			select {} // the stop takes hold a moment later
		}
	case "hang":
		select {}
	case "wait":
		first(arg)
		<-ctx.Done()
		return ctx.Err()
	case "hand-back": // the first time
		if first(arg) {
			<-plugin.Draining(ctx)
			return context.Canceled
		}
	case "gate":
		for {
			if _, err := os.Stat(arg); err == nil {
				return nil
			}
			time.Sleep(time.Millisecond)
		}
	case "note": // takes its time, and appends a line to a file
		time.Sleep(time.Millisecond)
		f, err := os.OpenFile(arg, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return plugin.Permanent(err)
		}
		defer f.Close()
		_, err = fmt.Fprintln(f, m.Offset)
		return err
	case "note-gate": // notes that it has come, and waits
		note := *m
		note.Value = []byte("note " + filepath.Join(arg, "notes"))
		if err := handle(ctx, &note); err != nil {
			return err
		}
		gate := *m
		gate.Value = []byte("gate " + filepath.Join(arg, "open"))
		return handle(ctx, &gate)
	case "noise":
		for range 3000 {
			fmt.Println(`{"@message":5}`)
			fmt.Fprintln(os.Stderr, "noise")
		}
		os.Stderr.Write(append(make([]byte, 10<<20), '\n'))
	case "grandchild":
		c := exec.Command("/bin/sh", "-c", "echo $$ >"+arg+".tmp && mv "+arg+".tmp "+arg+" && exec sleep 1000")
		c.Stdout, c.Stderr = os.Stderr, os.Stderr
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return c.Start()
	}
	return nil
}

// first reports whether nobody has made the file yet, and makes it.
func first(path string) bool {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// listen opens a socket where the host wants it and tells the host.
func listen() net.Listener {
	path := filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("1|1|unix|%s|grpc\n", path)
	return l
}

// rude is a handler without an SDK: it has the one service and no lifeline, no
// signals, no manners.
type rude struct{ mode string }

func serveRude(r rude) {
	s := grpc.NewServer(wire.ServerOptions()...)
	if r.mode != "stranger" {
		s.RegisterService(wire.ServiceDesc(), r)
	}
	s.Serve(listen())
}

func (r rude) Deliver(s grpc.BidiStreamingServer[wire.HostFrame, wire.PluginFrame]) error {
	hello := &wire.Hello{SDK: "none", Name: "rude\xff", Version: "2"}
	switch r.mode {
	case "no-hello":
		return s.SendMsg(&wire.PluginFrame{Acked: []uint64{1}})
	case "leaves":
		s.SendMsg(&wire.PluginFrame{Hello: &wire.Hello{Name: "probe"}})
		fmt.Fprintln(os.Stderr, "no database")
		os.Exit(9)
	case "silent":
		<-s.Context().Done()
		return nil
	case "holds":
		hello.MaxRecords = 1
	case "slow-beats":
		hello.BeatsMayWait = true
	}
	if err := s.SendMsg(&wire.PluginFrame{Hello: hello}); err != nil {
		return err
	}
	for {
		f := new(wire.HostFrame)
		if err := s.RecvMsg(f); err != nil {
			if r.mode == "stays" {
				<-s.Context().Done()
			}
			return err
		}
		out := &wire.PluginFrame{}
		for i := range f.Records {
			if r.record(&f.Records[i], out) {
				return nil
			}
		}
		if r.mode == "holds" {
			for _, n := range f.Cancel {
				out.Verdicts = append(out.Verdicts, wire.Verdict{Handle: n, Rule: "cancelled"})
			}
		}
		if err := s.SendMsg(out); err != nil {
			return err
		}
	}
}

// record answers one record; true ends the stream.
func (r rude) record(m *wire.Record, out *wire.PluginFrame) (end bool) {
	verb, arg, _ := strings.Cut(string(m.Value), " ")
	switch {
	case r.mode == "holds", verb == "forget-once" && first(arg):
		return false
	case verb == "end-once" && first(arg):
		return true
	case verb == "twice":
		out.Acked = append(out.Acked, m.Handle, m.Handle, m.Handle+12345)
		out.Verdicts = append(out.Verdicts, wire.Verdict{Handle: m.Handle, Class: wire.ClassPermanent})
		out.Ended = append(out.Ended, m.Handle)
	case verb == "no-class":
		out.Verdicts = append(out.Verdicts, wire.Verdict{Handle: m.Handle})
	case verb == "cancelled":
		out.Verdicts = append(out.Verdicts, wire.Verdict{Handle: m.Handle, Rule: plugin.RuleCancelled})
	case verb == "class-9":
		out.Verdicts = append(out.Verdicts, wire.Verdict{Handle: m.Handle, Class: 9, Reason: "x"})
	default:
		out.Acked = append(out.Acked, m.Handle)
	}
	return false
}

func (r rude) Control(s grpc.BidiStreamingServer[wire.Beat, wire.Beat]) error {
	for {
		var b wire.Beat
		if err := s.RecvMsg(&b); err != nil {
			return err
		}
		if r.mode == "slow-beats" {
			continue
		}
		if err := s.SendMsg(&b); err != nil {
			return err
		}
	}
}

// hostHelper starts a host with a handler, tells the handler's process and
// waits to be killed.
func hostHelper() {
	h, err := Start(context.Background(), Config{
		Path: os.Args[0], Env: []string{helperEnv + "=serve"}, Trust: TrustByPath,
		SocketDir: os.Getenv("HOST_TEST_SOCKETS"), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	h.Deliver([]plugin.Delivery{{Handle: 1, Message: plugin.Message{Value: []byte("hang")}}})
	fmt.Println(h.Status().PID)
	select {}
}

// config runs this binary as a helper.
func config(t testing.TB, mode string) Config {
	grace := 10 * time.Second
	if mode == "stays" || mode == "polite" || mode == "holds" || mode == "slow-beats" {
		grace = 100 * time.Millisecond // it does not end by itself, however long we wait
	}
	return Config{
		Path: os.Args[0], Env: []string{helperEnv + "=" + mode, "GORACE=atexit_sleep_ms=0"}, Trust: TrustByPath, Name: "probe",
		SocketDir: sockets(t), Concurrency: 8,
		StartTimeout: time.Minute, Grace: grace,
		BackoffMin: time.Millisecond, BackoffMax: 10 * time.Millisecond,
		Logger: testLog(t),
	}
}

// sockets is a short directory: t.TempDir's name is too long for a socket.
func sockets(t testing.TB) string {
	dir, err := os.MkdirTemp("", "k")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left in the socket directory: %v %v", left, err)
		}
		os.RemoveAll(dir)
	})
	return dir
}

// testLog writes to the test's log until the test ends.
func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// engine is the host's other side: it keeps all answers.
type engine struct {
	*Host
	t testing.TB

	mu      sync.Mutex
	changed sync.Cond
	batches []plugin.Answers
	acked   map[uint64]int
	answers map[uint64][]plugin.Answer
	ended   map[uint64]int
	last    time.Time     // of an answer
	pause   time.Duration // the longest one between two batches
	closed  bool
}

// start starts a host that is stopped with the test.
func start(t testing.TB, c Config) *engine {
	t.Helper()
	h, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{Host: h, t: t, acked: map[uint64]int{}, answers: map[uint64][]plugin.Answer{}, ended: map[uint64]int{}}
	e.changed.L = &e.mu
	var reading sync.WaitGroup
	reading.Go(e.read)
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel() // what hangs may hang
		h.Stop(over)
		reading.Wait()
	})
	return e
}

func (e *engine) read() {
	for a := range e.Answers() {
		e.mu.Lock()
		e.batches = append(e.batches, a)
		now := time.Now()
		if !e.last.IsZero() {
			e.pause = max(e.pause, now.Sub(e.last))
		}
		e.last = now
		for _, h := range a.Acked {
			e.acked[h]++
		}
		for _, v := range a.Verdicts {
			e.answers[v.Handle] = append(e.answers[v.Handle], v)
		}
		for _, h := range a.Ended {
			e.ended[h]++
		}
		e.changed.Broadcast()
		e.mu.Unlock()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.changed.Broadcast()
}

// await waits until done holds; it is called with mu held.
func (e *engine) await(done func() bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for !done() {
		if e.closed {
			e.t.Fatal("Answers was closed before it came")
		}
		e.changed.Wait()
	}
}

func (e *engine) longestPause() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pause
}

// verdict waits for the answer to a delivery that is no acknowledgement.
func (e *engine) verdict(handle uint64) plugin.Answer {
	e.await(func() bool { return len(e.answers[handle]) > 0 })
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.answers[handle][0]
}

// ack waits until the deliveries are acknowledged, and checks that each was
// answered once.
func (e *engine) ack(from, to uint64) {
	e.t.Helper()
	e.await(func() bool { return len(e.acked) >= int(to-from) })
	e.mu.Lock()
	defer e.mu.Unlock()
	for h := from; h < to; h++ {
		if e.acked[h] != 1 || len(e.answers[h]) != 0 {
			e.t.Errorf("delivery %d was acknowledged %d times, other answers %v", h, e.acked[h], e.answers[h])
		}
	}
}

// send delivers one record with each value, with handles from `from` on.
func (e *engine) send(from uint64, values ...string) {
	var list []plugin.Delivery
	for i, v := range values {
		list = append(list, record(from+uint64(i), v))
	}
	e.Deliver(list)
}

func record(handle uint64, value string) plugin.Delivery {
	return plugin.Delivery{Handle: handle, Message: plugin.Message{
		Topic: "t", Offset: int64(handle), Value: []byte(value), Time: time.UnixMilli(1), Attempt: 1, MaxAttempts: 3, Stage: "main",
	}}
}

// eventually waits for a condition that sends no event.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	eventuallyWithin(t, what, time.Minute, holds)
}

func eventuallyWithin(t testing.TB, what string, patience time.Duration, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func exists(path string) func() bool {
	return func() bool { _, err := os.Stat(path); return err == nil }
}

// running reports whether a process exists and is no zombie.
func running(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

func readLine(t *testing.T, r io.Reader) string {
	t.Helper()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}
