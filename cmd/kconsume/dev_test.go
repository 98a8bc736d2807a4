package main

import (
	"bufio"
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// devGroup is no other daemon's on this host: status finds those of other users' directories too.
const devGroup = "kconsume's test, dev.go"

// watched is a kconsume dev whose story is read.
type watched struct {
	*process
	told strings.Builder // read so far
}

// watch starts kconsume dev in a process group of its own.
func (s *shell) watch(t *testing.T, args ...string) *watched {
	t.Helper()
	cmd := s.command(append([]string{"dev", "--group", devGroup}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd, make(chan string, 10_000), make(chan struct{})}
	go func() {
		defer close(p.exited)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			p.lines <- lines.Text() + "\n"
		}
		close(p.lines)
		_ = cmd.Wait() // its code is looked at
	}()
	w := &watched{process: p}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		w.rest()
		<-p.exited
		if t.Failed() {
			t.Log(w.told.String())
		}
	})
	return w
}

// until reads on until each pattern was in the story.
func (w *watched) until(t *testing.T, patterns ...string) {
	t.Helper()
	giveUp := time.After(time.Minute)
	for _, p := range patterns {
		for re := regexp.MustCompile(p); !re.MatchString(w.told.String()); {
			select {
			case line, more := <-w.lines:
				if !more {
					t.Fatalf("dev ended before it told %q", p)
				}
				w.told.WriteString(line)
			case <-giveUp:
				t.Fatalf("dev does not tell %q", p)
			}
		}
	}
}

func (w *watched) rest() {
	for line := range w.lines {
		w.told.WriteString(line)
	}
}

// find is what a pattern's group holds in the story so far.
func (w *watched) find(t *testing.T, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(w.told.String())
	if m == nil {
		t.Fatalf("no %q in the story", pattern)
	}
	return m[1]
}

// The real program tells its stories; the metric and the DLQ, read by a client
// of another make, agree with them; Ctrl-C ends it and leaves nothing.
func TestDev(t *testing.T) {
	s := newShell(t)
	w := s.watch(t, "--retry", "300ms,700ms", "--concurrency", "8", "--order", "partition")
	w.until(t,
		`order 1001 .*done in`,
		`order 1002 .*retry.300ms 2nd +done in`,
		`order 1004 .*retry.700ms 3rd +failed: gateway payments 503: busy → DLQ`,
		`text 1006 .*main +1st +cannot be read: .* → DLQ`,
		`order 1008 .*main +1st +failed: invalid order: .* → DLQ`,
	)
	st := decode[daemonStatus](t, s.run(t, "status", "--group", devGroup, "-o", "json").stdout)
	if st.Handler.Name != "dev-orders" || st.Handler.PID == 0 || st.PID != w.cmd.Process.Pid {
		t.Errorf("%+v", st)
	}

	dead := regexp.MustCompile(`(\d+)/(\d+) .*→ DLQ`).FindAllStringSubmatch(w.told.String(), -1)
	_, metrics := get(t, strings.TrimSuffix(strings.TrimPrefix(w.find(t, `metrics +(\S+)`), "http://"), "/metrics"), "/metrics")
	counted := regexp.MustCompile(`(?m)^kafka_dlq_messages_total\{topic="orders\.confirmed\.dlq"\} (\d+)$`).FindStringSubmatch(metrics)
	if counted == nil {
		t.Fatalf("no counter in %s", metrics)
	}
	if !regexp.MustCompile(`(?m)^kconsume_handler_duration_seconds_count\{stage="main",topic="orders\.confirmed"\} [1-9]`).MatchString(metrics) {
		t.Errorf("the handler's calls are not timed in %s", metrics)
	}
	// What is counted may be ahead of what was read of the story.
	if n, err := strconv.Atoi(counted[1]); err != nil || n < len(dead) {
		t.Errorf("%s dead letters are counted, %d were told", counted[1], len(dead))
	}
	origins := readOrigins(t, w.find(t, `broker +(\S+),`), "orders.confirmed.dlq", len(dead))
	for _, d := range dead {
		if !origins[d[1]+"/"+d[2]] {
			t.Errorf("%s/%s was told to be in the DLQ and is not among %v", d[1], d[2], origins)
		}
	}

	// As a terminal does it: to the whole foreground process group.
	if err := syscall.Kill(-w.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	w.rest()
	if code := w.code(); code != 0 || !strings.Contains(w.told.String(), "in all: ") {
		t.Errorf("exit code %d", code)
	}
	for _, pid := range []int{-w.cmd.Process.Pid, st.Handler.PID, -st.Handler.PID} {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process (group) %d is left: %v", pid, err)
		}
	}
	if left, err := os.ReadDir(s.dir + "/kconsume"); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// readOrigins reads n records and returns where they come from.
func readOrigins(t *testing.T, broker, topic string, n int) map[string]bool {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumeTopics(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	origins := map[string]bool{}
	for read := 0; read < n; {
		fetches := c.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			read++
			h := map[string]string{}
			for _, header := range r.Headers {
				h[header.Key] = string(header.Value)
			}
			origins[h["X-Original-Partition"]+"/"+h["X-Original-Offset"]] = true
		})
	}
	return origins
}

// A handler of one's own takes the sample one's place, and no retry is none.
func TestDevWithAHandler(t *testing.T) {
	w := newShell(t).watch(t, append(probe(t), "--retry", "", "--metrics", "")...)
	w.until(t, `sample orders, and what .* makes of them`, `order 1001 .*done in`, `order 1004 .*done in`, `text 1006 .*done in`)
	if told := w.told.String(); strings.Contains(told, "metrics") || strings.Contains(told, "DLQ:") {
		t.Error("metrics are off, and this handler fails nothing")
	}
	w.signal(t, syscall.SIGTERM)
	w.rest()
	if code := w.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// kconsume dev | head -1
func TestDevEndsWithItsReader(t *testing.T) {
	s := newShell(t)
	cmd := s.command("dev", "--group", devGroup)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || !strings.HasPrefix(line, "kconsume dev") {
		t.Errorf("%q, %v", line, err)
	}
	if err := stdout.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(s.dir + "/kconsume"); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestDevRefuses(t *testing.T) {
	tests := []struct {
		args []string
		code int
		says string
	}{
		{[]string{"dev", "--brokers", "127.0.0.1:9092"}, 64, "brings its own broker"},
		{[]string{"dev", "--handler", "no-such"}, 78, "no-such"},
		{[]string{"dev", "--retry", "5"}, 78, "--retry"},
		{[]string{"dev", "--heartbeat-interval", "50s"}, 78, "heartbeat"},
		{[]string{"dev", "orders"}, 64, "stray argument"},
		{[]string{"dev-handler"}, 64, "is a kconsume handler"},
	}
	for _, tt := range tests {
		r := newShell(t).run(t, tt.args...)
		if r.code != tt.code || !strings.Contains(r.stderr, tt.says) || r.stdout != "" {
			t.Errorf("%v: %+v, want code %d and %q", tt.args, r, tt.code, tt.says)
		}
	}
}

func TestHelpShowsDevWithItsOwnDefaults(t *testing.T) {
	s := newShell(t)
	if r := s.run(t, "--help"); !strings.Contains(r.stdout, "dev ") || strings.Contains(r.stdout, "dev-handler") {
		t.Errorf("%s", r.stdout)
	}
	if r := s.run(t, "dev", "--help"); !strings.Contains(r.stdout, "default: 2s,5s") {
		t.Errorf("%s", r.stdout)
	}
	if r := s.run(t, "run", "--help"); !strings.Contains(r.stdout, "default: 5s,30s") {
		t.Errorf("%s", r.stdout)
	}
}
