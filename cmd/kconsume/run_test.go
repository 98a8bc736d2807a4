package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kconsume/kconsume/admin"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
)

// produce writes one record to a topic.
func produce(t *testing.T, brokers, topic, value string) {
	t.Helper()
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	w := &kafka.Writer{Addr: kafka.TCP(strings.Split(brokers, ",")...), Topic: topic, RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond, Transport: transport}
	if err := w.WriteMessages(t.Context(), kafka.Message{Value: []byte(value)}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// testGroup is no other daemon's on this host.
const testGroup = "kconsume's test, run.go"

// daemonArgs run the probe on topic t with a metrics port that the system chooses.
func daemonArgs(t *testing.T, brokers string, more ...string) []string {
	t.Helper()
	args := append([]string{"run", "--brokers", brokers, "--group", testGroup, "--topic", "t", "--retry", "1s", "--metrics", "127.0.0.1:0"}, probe(t)...)
	return append(args, more...)
}

func get(t *testing.T, address, path string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// field is a key's value in a line of the text log.
func field(t *testing.T, line, key string) string {
	t.Helper()
	_, rest, ok := strings.Cut(line, " "+key+"=")
	if !ok {
		t.Fatalf("no %s in %s", key, line)
	}
	return strings.Trim(strings.Fields(rest)[0], `"`)
}

func TestRun(t *testing.T) {
	_, brokers := newBroker(t, kfake.SeedTopics(2, "t"))
	s := newShell(t)
	p := s.start(t, daemonArgs(t, brokers)...)
	line := p.await(t, "msg=started")
	metrics := field(t, line, "metrics")
	produce(t, brokers, "t", "ok")
	p.await(t, "handling ok") // it is in its group: what follows sees it so

	r := s.run(t, "status", "--group", testGroup, "-o", "json")
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	st := decode[daemonStatus](t, r.stdout)
	if st.Group != testGroup || st.State != "running" || st.PID != p.cmd.Process.Pid || st.Handler.Name != "probe" || st.Handler.Version != "v7" || len(st.Stages) == 0 {
		t.Errorf("%+v", st)
	}
	for _, args := range [][]string{{"status", "--group", testGroup}, {"status", "--admin", "unix:" + filepath.Join(s.dir, "kconsume", admin.SocketName(testGroup, ""))}} {
		if r := s.run(t, args...); r.code != 0 || !strings.Contains(r.stdout, testGroup) || !strings.Contains(r.stdout, "t.retry.1s") {
			t.Errorf("%v: %+v", args, r)
		}
	}
	for path, want := range map[string]string{"/livez": "ok\n", "/readyz": "ok\n", "/metrics": `kafka_dlq_messages_total{topic="t.dlq"} 0`} {
		if code, body := get(t, metrics, path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, _ := get(t, metrics, "/"); code != 404 {
		t.Errorf("/: %d", code)
	}

	// A second one of the group started by hand: neither replaces the first one's socket.
	second := s.run(t, daemonArgs(t, brokers)...)
	if second.code != 78 || !strings.Contains(second.stderr, field(t, line, "admin")[len("unix:"):]) {
		t.Errorf("%+v", second)
	}
	if r := s.run(t, "status", "--group", testGroup); r.code != 0 {
		t.Errorf("%+v", r)
	}

	p.signal(t, syscall.SIGTERM)
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	left, err := os.ReadDir(filepath.Join(s.dir, "kconsume"))
	if err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if r := s.run(t, "status", "--group", testGroup); r.code != 69 {
		t.Errorf("%+v", r)
	}
}

// The main topic is never created, and its absence ends run.
func TestRunWithoutItsTopic(t *testing.T) {
	_, brokers := newBroker(t)
	r := newShell(t).run(t, daemonArgs(t, brokers)...)
	last := r.stderr[strings.LastIndex(strings.TrimSuffix(r.stderr, "\n"), "\n")+1:]
	if r.code != 78 || !strings.HasPrefix(last, "kconsume: ") || !strings.Contains(last, "topic t") {
		t.Errorf("%+v", r)
	}
}

func TestRunExitsIfUnreachable(t *testing.T) {
	r := newShell(t).run(t, daemonArgs(t, "127.0.0.1:1", "--exit-if-unreachable")...)
	if r.code != 69 || !strings.Contains(r.stderr, "kconsume: ") {
		t.Errorf("%+v", r)
	}
}

// While it waits for brokers it lives, is not ready, and stops when told to.
func TestRunWaitsForBrokers(t *testing.T) {
	s := newShell(t)
	p := s.start(t, daemonArgs(t, "127.0.0.1:1")...)
	metrics := field(t, p.await(t, "msg=started"), "metrics")
	if code, body := get(t, metrics, "/livez"); code != 200 {
		t.Errorf("/livez: %d %s", code, body)
	}
	if code, body := get(t, metrics, "/readyz"); code != 503 || body == "" {
		t.Errorf("/readyz: %d %s", code, body)
	}
	p.signal(t, syscall.SIGINT)
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A second signal does not wait for a delivery that hangs.
func TestSecondSignal(t *testing.T) {
	_, brokers := newBroker(t, kfake.SeedTopics(1, "t"))
	s := newShell(t)
	p := s.start(t, daemonArgs(t, brokers)...)
	produce(t, brokers, "t", "hang")
	p.await(t, "handling hang")
	p.signal(t, syscall.SIGTERM)
	p.await(t, "draining")
	p.signal(t, syscall.SIGTERM)
	p.await(t, "kconsume: stopped at once")
	if code := p.code(); code != 1 {
		t.Errorf("exit code %d", code)
	}
}
