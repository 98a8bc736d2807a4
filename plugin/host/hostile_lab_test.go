package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/host"
)

// patience bounds every wait. What comes later does not come.
const patience = time.Minute

// lab is where one hostile handler is kept: its files, the host that runs it,
// what it answered and what was logged.
type lab struct {
	t    testing.TB
	dir  string
	cfg  host.Config
	host *host.Host
	log  *logbook
	*answers
	reading sync.WaitGroup // of the answers, which Stop ends
}

// secret is in the handler's environment and nowhere else.
const secret = "s3cr3t-w0rd"

// newLab prepares a handler of the given mode, whose given life misbehaves at
// the start. Records that were given to it stay the caller's to judge.
func newLab(t testing.TB, mode string, life int) *lab {
	l := &lab{t: t, dir: t.TempDir(), log: &logbook{}, answers: newAnswers()}
	l.cfg = host.Config{
		Path: os.Args[0], Args: []string{"-test.run=^TestHostileProcess$"}, Trust: host.TrustByPath, Name: "hostile",
		Env: []string{
			hostileMode + "=" + mode, hostileDir + "=" + l.dir, hostileLife + "=" + strconv.Itoa(life),
			hostileFlood + "=" + strconv.Itoa(floodBytes()), "GORACE=atexit_sleep_ms=0",
			"DSN=postgres://kconsume:" + secret + "@db/orders",
		},
		SocketDir: shortDir(t), Concurrency: 8, StartTimeout: patience, Grace: 2 * time.Second,
		BackoffMin: time.Millisecond, BackoffMax: 10 * time.Millisecond,
		Logger: slog.New(slog.NewJSONHandler(l.log, nil)),
	}
	return l
}

// floodBytes is how much a flood is: 64 MiB, or what HOSTILE_FLOOD says.
func floodBytes() int {
	if n, err := strconv.Atoi(os.Getenv(hostileFlood)); err == nil {
		return n
	}
	return 64 << 20
}

// shortDir is a directory whose path leaves room for a socket's.
func shortDir(t testing.TB) string {
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

// start starts the host, which is stopped with the test at the latest.
func (l *lab) start() {
	l.t.Helper()
	h, err := host.Start(l.t.Context(), l.cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	l.host = h
	l.reading.Go(func() { l.read(h.Answers()) })
	l.t.Cleanup(func() { l.stop() })
}

// stop gives what is in flight no time, and fails the test when the host does
// not stop: its own grace and a second for the last frames are all it needs.
func (l *lab) stop() error {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- l.host.Stop(over) }()
	select {
	case err := <-stopped:
		l.reading.Wait()
		return err
	case <-time.After(patience):
		l.t.Error("the host does not stop")
		return nil
	}
}

// send delivers one record for each value, with handles and offsets from 0 on.
func (l *lab) send(timeout time.Duration, bulk int, values ...string) {
	l.deliver(0, timeout, bulk, values...)
}

func (l *lab) deliver(from uint64, timeout time.Duration, bulk int, values ...string) {
	list := make([]plugin.Delivery, len(values))
	for i, v := range values {
		handle := from + uint64(i)
		list[i] = plugin.Delivery{Handle: handle, Timeout: timeout, Message: plugin.Message{
			Topic: "t\xff", Offset: int64(handle), Value: []byte(v), Time: time.UnixMilli(1),
			Headers: []plugin.Header{{Key: "\xff", Value: make([]byte, bulk)}},
			Attempt: 1, MaxAttempts: 3, Stage: "main",
		}}
	}
	l.host.Deliver(list)
}

// feed delivers good records, one after the other, until a delivery has its
// answer: what is proven against it, others prove.
func (l *lab) feed(handle uint64) {
	for next := uint64(1000); ; next++ {
		l.deliver(next, 0, 0, good)
		if !l.await(func() bool { return l.has(next) || l.has(handle) }) {
			l.t.Errorf("record %d is not answered: %+v", next, l.host.Status())
			return
		}
		l.mu.Lock()
		done := l.has(handle)
		l.mu.Unlock()
		if done {
			return
		}
	}
}

// processes are the process ids of all lives so far.
func (l *lab) processes() []int {
	var pids []int
	for n := 1; ; n++ {
		pid, err := l.note("life-" + strconv.Itoa(n))
		if err != nil {
			return pids
		}
		pids = append(pids, pid)
	}
}

// note reads a note of the handler.
func (l *lab) note(name string) (pid int, err error) {
	b, err := os.ReadFile(filepath.Join(l.dir, name))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(b))
}

// noted is when the handler made a note, zero if it did not.
func (l *lab) noted(name string) time.Time {
	info, err := os.Stat(filepath.Join(l.dir, name))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// acknowledged are the offsets that the handler says it acknowledged.
func (l *lab) acknowledged() map[uint64]int {
	times := map[uint64]int{}
	b, err := os.ReadFile(filepath.Join(l.dir, "acknowledged"))
	if err != nil && !os.IsNotExist(err) {
		l.t.Fatal(err)
	}
	for word := range strings.FieldsSeq(string(b)) {
		n, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			l.t.Fatal(err)
		}
		times[n]++
	}
	return times
}

// answers are all that a host answered.
type answers struct {
	mu       sync.Mutex
	changed  *sync.Cond
	acked    map[uint64]int             // guarded by mu
	verdicts map[uint64][]plugin.Answer // guarded by mu
	ended    map[uint64]int             // guarded by mu
	handlers map[string]bool            // guarded by mu; who answered
}

func newAnswers() *answers {
	a := &answers{acked: map[uint64]int{}, verdicts: map[uint64][]plugin.Answer{}, ended: map[uint64]int{}, handlers: map[string]bool{}}
	a.changed = sync.NewCond(&a.mu)
	return a
}

func (a *answers) read(from <-chan plugin.Answers) {
	for batch := range from {
		a.mu.Lock()
		a.handlers[batch.Handler] = true
		for _, h := range batch.Acked {
			a.acked[h]++
		}
		for _, v := range batch.Verdicts {
			if v.Verdict.Class == plugin.ClassAck {
				a.acked[v.Handle]++
			} else {
				a.verdicts[v.Handle] = append(a.verdicts[v.Handle], v)
			}
		}
		for _, h := range batch.Ended {
			a.ended[h]++
		}
		a.changed.Broadcast()
		a.mu.Unlock()
	}
}

// await reports whether done holds in time; done is called with mu held.
func (a *answers) await(done func() bool) bool {
	late := false
	t := time.AfterFunc(patience, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		late = true
		a.changed.Broadcast()
	})
	defer t.Stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	for !done() && !late {
		a.changed.Wait()
	}
	return done()
}

// has reports whether a delivery has an answer; it is called with mu held.
func (a *answers) has(handle uint64) bool { return a.acked[handle]+len(a.verdicts[handle]) > 0 }

// answered is how many of the first deliveries have an answer; it is called
// with mu held.
func (a *answers) answered(of uint64) int {
	n := 0
	for h := range of {
		if a.has(h) {
			n++
		}
	}
	return n
}

// logbook keeps what is logged, up to a bound.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

const logLimit = 4 << 20

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.text.Len() < logLimit {
		b.text.Write(p)
	}
	return len(p), nil
}

func (b *logbook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// find is the message of the first line that contains a text.
func (b *logbook) find(text string) (message string, ok bool) {
	for line := range strings.Lines(b.String()) {
		var entry struct{ Msg string }
		if strings.Contains(line, text) && json.Unmarshal([]byte(line), &entry) == nil {
			return entry.Msg, true
		}
	}
	return "", false
}

// check checks that nothing in the log could do harm, to a terminal or to
// whoever may read it.
func (b *logbook) check(t testing.TB) {
	t.Helper()
	text := b.String()
	if strings.Contains(text, secret) {
		t.Error("the log has the secret of the handler's environment")
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimSuffix(line, "\n"); !oneLine(line) || !json.Valid([]byte(line)) {
			t.Errorf("logged: %q", line)
		}
	}
}

// neighbour is a host with a good handler in the same process, which is given a
// record every now and then, each after the answer to the one before.
type neighbour struct {
	*lab
	quit, done chan struct{}
	slowest    time.Duration // guarded by answers.mu; since the last call of lull
	sent       uint64        // guarded by answers.mu
}

func newNeighbour(t testing.TB) *neighbour {
	n := &neighbour{lab: newLab(t, "well", 0), quit: make(chan struct{}), done: make(chan struct{})}
	n.start()
	go n.work()
	return n
}

func (n *neighbour) work() {
	defer close(n.done)
	often := time.NewTicker(20 * time.Millisecond)
	defer often.Stop()
	for handle := uint64(0); ; handle++ {
		select {
		case <-often.C:
		case <-n.quit:
			return
		}
		began := time.Now()
		n.host.Deliver([]plugin.Delivery{{Handle: handle, Message: plugin.Message{Topic: "n", Offset: int64(handle), Value: []byte(good)}}})
		if !n.await(func() bool { return n.acked[handle] > 0 }) {
			n.t.Error("a neighbour's record is not answered")
			return
		}
		n.mu.Lock()
		n.sent = handle + 1
		n.slowest = max(n.slowest, time.Since(began))
		n.mu.Unlock()
	}
}

// goesOn waits for the answers to three more records.
func (n *neighbour) goesOn() bool {
	n.mu.Lock()
	before := uint64(len(n.acked))
	n.mu.Unlock()
	return n.await(func() bool { return uint64(len(n.acked)) >= before+3 })
}

// end stops the neighbour and checks that nothing has happened to it.
func (n *neighbour) end() {
	close(n.quit)
	<-n.done
	if s := n.host.Status(); s.Restarts != 0 || s.BadAnswers != 0 {
		n.t.Errorf("the neighbour: %+v", s)
	}
	if err := n.stop(); err != nil {
		n.t.Errorf("the neighbour: %v", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for h := range n.sent {
		if n.acked[h] != 1 || len(n.verdicts[h]) != 0 {
			n.t.Errorf("the neighbour's record %d: acknowledged %d times, verdicts %v", h, n.acked[h], n.verdicts[h])
		}
	}
}

// alive reports whether a process exists and is no zombie.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

// soon waits for a condition that sends no event.
func soon(holds func() bool) bool {
	for end := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// labelled returns the stacks of the goroutines that bear our label, which every
// goroutine started by one that bears it does.
func labelled(row string) string {
	var all bytes.Buffer
	pprof.Lookup("goroutine").WriteTo(&all, 1)
	var found strings.Builder
	for stack := range strings.SplitSeq(all.String(), "\n\n") {
		if strings.Contains(stack, fmt.Sprintf("# labels: {%q:%q}", "row", row)) {
			found.WriteString(stack + "\n\n")
		}
	}
	return found.String()
}

// descriptors are our open files.
func descriptors(t testing.TB) map[string]string {
	links := map[string]string{}
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.Contains(to, "/proc/") {
			links[e.Name()] = to
		}
	}
	return links
}

// watchMemory watches what is alive in the heap until it is asked for the most
// that it grew by, and for the most that the process had in memory.
func watchMemory() (most func() (heap, resident int64)) {
	live := func() int64 {
		s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(s)
		return int64(s[0].Value.Uint64())
	}
	runtime.GC()
	os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // VmHWM begins anew
	first, peak := live(), int64(0)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		often := time.NewTicker(time.Millisecond)
		defer often.Stop()
		for {
			peak = max(peak, live()-first)
			select {
			case <-often.C:
			case <-quit:
				return
			}
		}
	}()
	return func() (heap, resident int64) {
		close(quit)
		<-done
		b, _ := os.ReadFile("/proc/self/status")
		_, rest, _ := strings.Cut(string(b), "VmHWM:")
		fmt.Sscan(rest, &resident)
		return peak, resident << 10
	}
}

// oneLine reports whether a text can be shown on a terminal as it is.
func oneLine(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// writeFile writes a file with exactly that mode, whatever the umask is.
func writeFile(t testing.TB, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}
