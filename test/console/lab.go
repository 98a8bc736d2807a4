// Package console runs a daemon on real Kafka with thousands of dead letters,
// and looks at its console in a real browser.
package console

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine/history"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Tokens of the daemon's callers.
const (
	AdminToken    = "admin-token-admin-token-admin-token-admin"
	OperatorToken = "operator-token-operator-token-operator"
	ViewerToken   = "viewer-token-viewer-token-viewer-token-v"
)

// Failure is a way in which records failed.
type Failure struct {
	Class, Code, Message string // of which %d is the record's number
	Handler              string
	Value                string // what the probe does with a copy
	Hours                float64
}

// Failures are twelve groups of dead letters. The first line of each value is
// what the probe does when it is sent again: most are handled then.
func Failures() []Failure {
	return []Failure{
		{"transient", "503", "gateway payments answered 503 after %d ms: busy", "orders@1.4.2", "ok", 6},
		{"permanent", "validation", "order %d: total_cents does not match the sum of its items", "orders@1.4.2", "ok", 20},
		{"poison", "json", "decode JSON: unexpected end of input at byte %d", "orders@1.4.1", "perm", 23},
		{"permanent", "404", "customer %d is not known", "orders@1.4.2", "perm", 12},
		{"timeout", "timeout", "the handler took longer than 30s on record %d", "orders@1.4.2", "ok", 3},
		{"transient", "ECONNREFUSED", "dial tcp 10.20.30.%d:5432: connect: connection refused", "orders@1.4.2", "ok", 2},
		{"permanent", "23505", "duplicate key value violates unique constraint \"orders_pkey\" (order %d)", "orders@1.4.0", "ok", 22},
		{"panic", "panic", "runtime error: index out of range [%d] with length 3", "orders@1.4.1", "ok", 15},
		{"permanent", "currency", "currency \"<script>alert(%d)</script>\" is not supported", "orders@1.4.2", "perm", 9},
		{"handler_crash", "handler_crash", "the handler died of this record %d times: killed by SIGSEGV", "orders@1.4.1", "ok", 8},
		{"transient", "57P01", "terminating connection due to administrator command (session %d)", "orders@1.4.2", "ok", 1},
		{"permanent", "schema", "schema id %d is not registered", "orders@1.4.2", "perm", 5},
	}
}

// Seed writes n dead letters of a group to a DLQ, of a main topic in which their
// numbers as offsets are, spread over the last hours.
func Seed(ctx context.Context, bootstrap, topic, group string, partitions int32, n int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(50*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	all := Failures()
	now := time.Now()
	var failed error
	var once sync.Once
	for i := range n {
		f := all[(i*i+i/7)%len(all)]
		age := time.Duration(f.Hours * float64(time.Hour) * float64(n-i) / float64(n))
		at := now.Add(-age)
		m := history.Meta{
			Group: group, Failed: 3, Origin: history.Origin{Topic: topic, Partition: int32(i) % partitions, Offset: int64(i), Timestamp: at.Add(-time.Minute).UnixMilli()},
			FirstFailure: at.Add(-40 * time.Second).UnixMilli(), Class: f.Class, Code: f.Code, Message: fmt.Sprintf(f.Message, i), ErrorTime: at.UnixMilli(), Handler: f.Handler,
		}
		if f.Class != "transient" && f.Class != "timeout" {
			m.Failed = 1
		}
		r := &kgo.Record{
			Topic: topic + ".dlq", Partition: int32(i) % partitions, Timestamp: at, Key: fmt.Appendf(nil, "customer-%d", i%97),
			Value: fmt.Appendf(nil, "%s\n{\"order\":%d,\"customer\":\"<b>Ada</b>\",\"items\":[{\"sku\":\"A-%d\",\"cents\":1299}],\"total_cents\":2598}", f.Value, 100000+i, i%31),
		}
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "traceparent", Value: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")}, kgo.RecordHeader{Key: "source", Value: []byte("shop")}, kgo.RecordHeader{Key: "empty", Value: []byte{}}, kgo.RecordHeader{Key: "nothing"})
		for _, h := range m.Headers(nil, false) {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		client.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				once.Do(func() { failed = err })
			}
		})
	}
	return errors.Join(client.Flush(ctx), failed)
}

// DLQ is the DLQ of a main topic whose records keep the times they are written
// with, as those of a DLQ that somebody made by hand.
func DLQ(topic string, partitions int) kafka.TopicConfig {
	return kafka.TopicConfig{Topic: topic + ".dlq", NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: []kafka.ConfigEntry{
		{ConfigName: "retention.ms", ConfigValue: "-1"}, {ConfigName: "message.timestamp.type", ConfigValue: "CreateTime"},
	}}
}

// Daemon is `kconsume run` with a console over TCP.
type Daemon struct {
	URL    string
	Socket string
	cmd    *exec.Cmd
	done   chan struct{}
	err    error

	mu  sync.Mutex
	log strings.Builder
}

// StartDaemon runs a daemon on a topic with the probe as its handler. The
// binaries are in bin.
func StartDaemon(t *testing.T, bin, bootstrap, group, topic string, flags ...string) *Daemon {
	t.Helper()
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	text := "admin root " + AdminToken + "\noperator olga " + OperatorToken + "\nviewer vera " + ViewerToken + "\n"
	if err := os.WriteFile(tokens, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	runtime, err := os.MkdirTemp("", "kc-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(runtime) })
	d := &Daemon{URL: "http://" + address, done: make(chan struct{})}
	d.cmd = exec.Command(filepath.Join(bin, "kconsume"), append([]string{
		"run", "--brokers", bootstrap, "--group", group, "--topic", topic, "--session-timeout", "6s", "--metrics", "",
		"--handler", filepath.Join(bin, "kconsume-handler-probe"), "--handler-env", "PROBE_LOG=" + filepath.Join(dir, "probe.log"),
		"--admin", "tcp:" + address, "--admin-tokens", tokens,
	}, flags...)...)
	d.cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+runtime, "STATE_DIRECTORY="+dir)
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go d.read(stderr)
	t.Cleanup(func() {
		select {
		case <-d.done:
		default:
			_ = d.cmd.Process.Signal(syscall.SIGTERM)
			<-d.done
		}
		if t.Failed() {
			d.mu.Lock()
			defer d.mu.Unlock()
			t.Logf("the daemon's log:\n%s", d.log.String())
		}
	})
	d.wait(t, address)
	found, err := filepath.Glob(filepath.Join(runtime, "kconsume", "*.sock"))
	if err != nil || len(found) != 1 {
		t.Fatalf("sockets %q (%v)", found, err)
	}
	d.Socket = found[0]
	return d
}

func (d *Daemon) read(stderr io.Reader) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		d.mu.Lock()
		fmt.Fprintln(&d.log, lines.Text())
		d.mu.Unlock()
	}
	d.err = d.cmd.Wait()
	close(d.done)
}

// wait returns once the API answers.
func (d *Daemon) wait(t *testing.T, address string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
			return
		}
		select {
		case <-d.done:
			t.Fatal("the daemon ended")
		default:
		}
		if time.Now().After(end) {
			t.Fatal("the API does not answer")
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Client calls the API with a token.
func Client(token string) *http.Client {
	return &http.Client{Transport: bearer{token, &http.Transport{TLSClientConfig: &tls.Config{}}}}
}

type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}
