package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/plugin/host"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// manager is a service manager's socket.
type manager struct {
	path string
	conn *net.UnixConn
}

func newManager(t *testing.T) *manager {
	t.Helper()
	dir, err := os.MkdirTemp("", "kc") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := &manager{path: filepath.Join(dir, "notify")}
	if m.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.conn.Close() })
	return m
}

// await reads messages up to one that begins so, and returns all of them.
func (m *manager) await(t *testing.T, prefix string) (all []string) {
	t.Helper()
	_ = m.conn.SetReadDeadline(time.Now().Add(time.Minute)) // only keeps a broken test from hanging
	b := make([]byte, 4096)
	for {
		n, err := m.conn.Read(b)
		if err != nil {
			t.Fatalf("no %q among %q: %v", prefix, all, err)
		}
		all = append(all, string(b[:n]))
		if strings.HasPrefix(all[len(all)-1], prefix) {
			return all
		}
	}
}

func (m *manager) shell(t *testing.T, env ...string) *shell {
	t.Helper()
	return newShell(t, append([]string{"NOTIFY_SOCKET=" + m.path}, env...)...)
}

// absent is a broker's address at which nobody answers until arrive.
type absent struct {
	*net.TCPListener
	refusing sync.WaitGroup
}

func newAbsent(t *testing.T) *absent {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	a := &absent{TCPListener: l}
	a.refusing.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	})
	return a
}

func (a *absent) arrive(t *testing.T) {
	t.Helper()
	if err := a.SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	a.refusing.Wait()
	if err := a.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	newBroker(t, kfake.SeedTopics(2, "t"), kfake.ListenFn(func(string, string) (net.Listener, error) { return a.TCPListener, nil }))
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// Without brokers the daemon is ready to its service manager and alive, and
// says what it waits for; once they are there it goes on without a restart.
func TestReadyBeforeTheBrokers(t *testing.T) {
	m, brokers := newManager(t), newAbsent(t)
	s := m.shell(t, "WATCHDOG_USEC=2000000", reportEnv+"=not for the handler")
	report := filepath.Join(s.dir, "report")
	p := s.start(t, daemonArgs(t, brokers.Addr().String(), "--handler-env", reportEnv+"="+report)...)
	metrics := field(t, p.await(t, "msg=started"), "metrics")

	if first := m.await(t, "READY=1"); len(first) != 1 {
		t.Errorf("said before it was ready: %q", first)
	}
	m.await(t, "STATUS=waiting for brokers since ")
	m.await(t, "WATCHDOG=1")
	if code, body := get(t, metrics, "/livez"); code != 200 {
		t.Errorf("/livez: %d %s", code, body)
	}
	if code, body := get(t, metrics, "/readyz"); code != 503 || !strings.Contains(body, "starting: ") {
		t.Errorf("/readyz: %d %s", code, body)
	}

	brokers.arrive(t)
	said := m.await(t, "STATUS=running in group ")
	if line := said[len(said)-1]; !strings.Contains(line, "with 2 partitions, handler probe v7") {
		t.Error(line)
	}
	if slices.Contains(said, "READY=1") {
		t.Errorf("ready twice: %q", said)
	}
	if code, body := get(t, metrics, "/readyz"); code != 200 {
		t.Errorf("/readyz: %d %s", code, body)
	}
	m.await(t, "WATCHDOG=1")

	// What is between the daemon and its service manager is no handler's business.
	b, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "not for the handler"} {
		if strings.Contains(string(b), name) {
			t.Errorf("the handler was given %s: %s", name, b)
		}
	}

	p.signal(t, syscall.SIGTERM)
	m.await(t, "STOPPING=1")
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// While what was begun is finished, the daemon asks for time.
func TestNotifyDraining(t *testing.T) {
	_, brokers := newBroker(t, kfake.SeedTopics(1, "t"))
	m := newManager(t)
	p := m.shell(t).start(t, daemonArgs(t, brokers)...)
	produce(t, brokers, "t", "hang")
	p.await(t, "handling hang")
	p.signal(t, syscall.SIGTERM)
	said := m.await(t, "STOPPING=1")
	if slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, "WATCHDOG") }) {
		t.Errorf("signs of life that nobody asked for: %q", said)
	}
	m.await(t, "EXTEND_TIMEOUT_USEC=15000000")
	m.await(t, "STATUS=draining 1 in flight since ")
	m.await(t, "EXTEND_TIMEOUT_USEC=15000000")
	p.signal(t, syscall.SIGTERM)
	if code := p.code(); code != 1 {
		t.Errorf("exit code %d", code)
	}
}

// An open transaction is not our fault: alive, ready, and told of.
func TestOpenTransactionIsTold(t *testing.T) {
	_, brokers := newBroker(t, kfake.SeedTopics(1, "t"))
	c, err := kgo.NewClient(kgo.SeedBrokers(brokers), kgo.TransactionalID("open"), kgo.DefaultProduceTopic("t"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := c.ProduceSync(t.Context(), kgo.StringRecord("ok")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	m := newManager(t)
	s := m.shell(t)
	p := s.start(t, daemonArgs(t, brokers)...)
	metrics := field(t, p.await(t, "msg=started"), "metrics")
	var line string
	until(t, "the open transaction is told of", func() bool {
		said := m.await(t, "STATUS=")
		line = said[len(said)-1]
		return strings.Contains(line, "an open transaction holds up t/0 at offset 0 since ")
	})
	for _, path := range []string{"/livez", "/readyz"} {
		if code, body := get(t, metrics, path); code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if r := s.run(t, "status", "--group", testGroup); r.code != 0 || !strings.Contains(r.stdout, "an open transaction holds up t/0 at offset 0 since ") {
		t.Errorf("%+v", r)
	}
	if err := c.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	until(t, "it is over", func() bool {
		said := m.await(t, "STATUS=")
		return !strings.Contains(said[len(said)-1], "transaction")
	})
	p.await(t, "handling ok")
}

// standing is a daemon in this process whose engine's loop stands still from the
// first record on, until release is called.
func standing(t *testing.T) (d *daemon, release func()) {
	t.Helper()
	_, brokers := newBroker(t, kfake.SeedTopics(1, "t"))
	dir, err := os.MkdirTemp("", "kc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.Start(t.Context(), host.Config{
		Path: exe, Env: []string{roleEnv + "=handler"}, Trust: host.TrustByPath, SocketDir: filepath.Join(dir, "h"), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	held, reached := make(chan struct{}), make(chan struct{}, 1)
	e, err := engine.New(engine.Config{
		Brokers: []string{brokers}, Group: "g", Topics: []string{"t"}, Deliverer: h, Logger: slog.New(slog.DiscardHandler),
		Observer: func(engine.Event) {
			select {
			case reached <- struct{}{}:
			default:
			}
			<-held
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	release = sync.OnceFunc(func() { close(held) })
	t.Cleanup(func() {
		release()
		stop()
		if err := errors.Join(<-ended, h.Stop(context.Background())); err != nil {
			t.Error(err)
		}
	})
	d = &daemon{engine: e, host: h}
	until(t, "it is ready", func() bool { return d.ready(t.Context()) == nil })
	produce(t, brokers, "t", "ok")
	<-reached
	return d, release
}

// A loop that does not answer gives no sign of life; one that goes on does again.
func TestNoSignOfLifeOfALoopThatStands(t *testing.T) {
	d, release := standing(t)
	m := newManager(t)
	t.Setenv("NOTIFY_SOCKET", m.path)
	n := &notifier{of: d, logger: slog.New(slog.DiscardHandler), watchdog: 500 * time.Millisecond}
	for range 3 {
		n.live(t.Context())
	}
	release()
	n.watchdog = time.Minute
	n.live(t.Context())
	said := m.await(t, "WATCHDOG=1")
	if len(said) != 2 || !strings.HasPrefix(said[0], "STATUS=no sign of life: ask the engine's loop") {
		t.Errorf("said %q", said)
	}
}

// A service manager that does not read holds up nothing.
func TestManagerThatDoesNotRead(t *testing.T) {
	m := newManager(t)
	t.Setenv("NOTIFY_SOCKET", m.path)
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: m.path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for err == nil { // until its queue is full
		_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		_, err = c.Write([]byte("STATUS=more"))
	}
	sent := make(chan struct{})
	n := &notifier{logger: slog.New(slog.DiscardHandler), stop: func() {}}
	n.running.Go(func() { n.send("STATUS=one too many"); close(sent) })
	n.close()
	select {
	case <-sent:
		t.Error("its queue was not full")
	default:
	}
	_ = m.conn.Close() // which ends the write
	n.running.Wait()
}

func TestNotifyWithoutManager(t *testing.T) {
	n := notify(nil, func(string) string { return "" }, nil)
	if n != nil {
		t.Fatal("there is nobody to tell")
	}
	n.reloading()()
	n.close()
}

func TestStatusLine(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	up := host.Status{State: host.StateRunning, Name: "orders", Version: "7", Since: at}
	down := host.Status{State: host.StateFailing, Name: "orders", Version: "7", Since: at, LastExit: "exit status 1: boom"}
	running := engine.Status{State: engine.StateRunning, Since: at, Group: "billing", Stages: []engine.StageStatus{
		{Topic: "t", Of: "t", Partitions: make([]engine.PartitionStatus, 3)}, {Topic: "t.retry.5s", Of: "t", Partitions: make([]engine.PartitionStatus, 3)},
	}}
	with := func(change func(*engine.Status)) engine.Status {
		s := running
		change(&s)
		return s
	}
	for _, c := range []struct {
		s    engine.Status
		h    host.Status
		want string
	}{
		{engine.Status{State: engine.StateStarting, Since: at}, up, "waiting for brokers since 2026-11-30T12:00:00Z: asking them"},
		{engine.Status{State: engine.StateStarting, Since: at, Problem: "connection refused"}, up, "waiting for brokers since 2026-11-30T12:00:00Z: connection refused"},
		{engine.Status{State: engine.StateJoining, Since: at, Group: "billing"}, up, "joining group billing since 2026-11-30T12:00:00Z"},
		{engine.Status{State: engine.StateJoining, Since: at, Group: "billing", Problem: "no coordinator"}, up, "joining group billing since 2026-11-30T12:00:00Z: no coordinator"},
		{running, up, "running in group billing with 3 partitions, handler orders 7"},
		{with(func(s *engine.Status) { s.Stages = s.Stages[1:] }), up, "running in group billing with 0 partitions, handler orders 7"},
		{with(func(s *engine.Status) { s.InFlight, s.Buffered = 5, 6 }), up, "running in group billing with 3 partitions, handler orders 7"},
		{with(func(s *engine.Status) { s.Problem = "commit: too slow" }), up, "running in group billing with 3 partitions, handler orders 7; commit: too slow"},
		{with(func(s *engine.Status) {
			s.Writes = []engine.WriteStatus{{Topic: "t.dlq", Partition: 2, Reason: "denied"}}
		}), up, "running in group billing with 3 partitions, handler orders 7; cannot write to t.dlq/2: denied"},
		{with(func(s *engine.Status) {
			s.Stages = []engine.StageStatus{{Topic: "t", Of: "t", Partitions: []engine.PartitionStatus{{Partition: 4, Position: 9, OpenSince: at}}}}
		}), up, "running in group billing with 1 partition, handler orders 7; an open transaction holds up t/4 at offset 9 since 2026-11-30T12:00:00Z"},
		{running, down, "paused since 2026-11-30T12:00:00Z: handler orders is failing: exit status 1: boom"},
		{engine.Status{State: engine.StateDraining, Since: at, InFlight: 3}, up, "draining 3 in flight since 2026-11-30T12:00:00Z"},
		{engine.Status{State: engine.StateStopped}, up, "stopped"},
	} {
		if got := statusLine(&c.s, &c.h); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

// What is said is one line, whatever it is made of: no message within a message.
func TestStatusIsOneLine(t *testing.T) {
	m := newManager(t)
	t.Setenv("NOTIFY_SOCKET", m.path)
	n := &notifier{logger: slog.New(slog.DiscardHandler)}
	n.say("boom\nMAINPID=1\n\x1b[31m\u202e" + strings.Repeat("x", 1000))
	n.say("over")
	said := m.await(t, "STATUS=over")
	if len(said) != 2 || !strings.HasPrefix(said[0], `STATUS=boom\nMAINPID=1\n\x1b[31m\u202exx`) || len(said[0]) > 2*statusWidth {
		t.Errorf("said %q", said)
	}
}
