// Package daemon_test runs the real binary with a real handler process against
// a real Apache Kafka, stops it by real signals, and looks at what it wrote
// with kcat.
package daemon_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kconsume/kconsume/test/kafka"
	"github.com/kconsume/kconsume/test/suite"
	kafkago "github.com/segmentio/kafka-go"
)

var (
	broker kafka.Shared
	bin    string // the directory of the binaries built for these tests
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "kconsume-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = dir
	if err := suite.Build(dir, map[string]string{"kconsume": "cmd/kconsume", "kconsume-handler-probe": "test/probe"}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return broker.Run(m)
}

// daemon is `kconsume run` at work.
type daemon struct {
	t       *testing.T
	cmd     *exec.Cmd
	metrics string
	done    chan struct{}
	err     error

	mu  sync.Mutex
	log bytes.Buffer
}

// start runs the daemon on a topic with the probe as its handler. It is killed,
// if it still runs, when the test ends.
func start(t *testing.T, topic, group, probeLog string, flags ...string) *daemon {
	t.Helper()
	return launch(t, topic, group, append([]string{
		"--handler", filepath.Join(bin, "kconsume-handler-probe"), "--handler-env", "PROBE_LOG=" + probeLog,
	}, flags...)...)
}

// launch is start with another handler.
func launch(t *testing.T, topic, group string, flags ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, metrics: freeAddr(t), done: make(chan struct{})}
	args := append([]string{
		"run", "--brokers", broker.Cluster(t).Bootstrap(), "--group", group, "--topic", topic,
		"--session-timeout", "6s", "--metrics", d.metrics,
	}, flags...)
	d.cmd = exec.Command(filepath.Join(bin, "kconsume"), args...)
	d.cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir(), "STATE_DIRECTORY="+t.TempDir())
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			d.mu.Lock()
			fmt.Fprintln(&d.log, lines.Text())
			d.mu.Unlock()
		}
		d.err = d.cmd.Wait()
		close(d.done)
	}()
	t.Cleanup(func() {
		select {
		case <-d.done:
		default:
			_ = d.cmd.Process.Kill()
			<-d.done
		}
		if t.Failed() {
			d.mu.Lock()
			defer d.mu.Unlock()
			t.Logf("the daemon's log:\n%s", d.log.Bytes())
		}
	})
	return d
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := listenLoopback()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// stop sends SIGTERM and waits for a clean end.
func (d *daemon) stop() {
	d.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		d.t.Fatal(err)
	}
	select {
	case <-d.done:
	case <-time.After(time.Minute):
		d.t.Fatal("the daemon did not end within a minute of SIGTERM")
	}
	if d.err != nil {
		d.t.Fatalf("after SIGTERM: %v", d.err)
	}
}

// kill sends SIGKILL and waits until the process and its handler are gone.
func (d *daemon) kill() {
	d.t.Helper()
	if err := d.cmd.Process.Kill(); err != nil {
		d.t.Fatal(err)
	}
	<-d.done
}

// createTopic makes a main topic.
func createTopic(t *testing.T, topic string, partitions int) {
	t.Helper()
	err := broker.Cluster(t).CreateTopic(t.Context(), kafkago.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1})
	if err != nil {
		t.Fatal(err)
	}
}

// client has a view of the topics of its own: a shared one may be older than
// the topics of this test.
func client(t *testing.T) *kafkago.Client {
	transport := &kafkago.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &kafkago.Client{Addr: kafkago.TCP(broker.Cluster(t).Bootstrap()), Timeout: 10 * time.Second, Transport: transport}
}

// tp names a partition.
type tp struct {
	topic     string
	partition int
}

// committedOffsets are a group's offsets, read from the coordinator.
func committedOffsets(t *testing.T, group string, topics []string, partitions int) map[tp]int64 {
	t.Helper()
	ask := map[string][]int{}
	for _, topic := range topics {
		for p := range partitions {
			ask[topic] = append(ask[topic], p)
		}
	}
	res, err := client(t).OffsetFetch(t.Context(), &kafkago.OffsetFetchRequest{GroupID: group, Topics: ask})
	if err != nil {
		t.Fatal(err)
	}
	out := map[tp]int64{}
	for topic, parts := range res.Topics {
		for _, p := range parts {
			out[tp{topic, p.Partition}] = p.CommittedOffset
		}
	}
	return out
}

// lag is what a group has not committed of its topics, -1 while they are not
// all there.
func lag(t *testing.T, group string, topics []string, partitions int) int64 {
	t.Helper()
	ask := map[string][]kafkago.OffsetRequest{}
	for _, topic := range topics {
		for p := range partitions {
			ask[topic] = append(ask[topic], kafkago.LastOffsetOf(p))
		}
	}
	ends, err := client(t).ListOffsets(t.Context(), &kafkago.ListOffsetsRequest{Topics: ask})
	if notYet(err) {
		return -1
	}
	if err != nil {
		t.Fatal(err)
	}
	done := committedOffsets(t, group, topics, partitions)
	var n int64
	for topic, parts := range ends.Topics {
		for _, p := range parts {
			if notYet(p.Error) {
				return -1
			}
			if p.Error != nil {
				t.Fatal(p.Error)
			}
			n += p.LastOffset - max(0, done[tp{topic, p.Partition}])
		}
	}
	return n
}

// notYet reports an error of a topic that is just being made.
func notYet(err error) bool {
	e, ok := errors.AsType[kafkago.Error](err)
	return ok && (e.Temporary() || e == kafkago.UnknownTopicOrPartition)
}

// until polls a condition; the bound only keeps a broken test from hanging.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	suite.Until(t, 5*time.Minute, what, ok)
}

// delivery is one call of the probe.
type delivery struct {
	id, stage, key, word string
	attempt              int
	begin, end           int64 // unix ns; end 0 = the call never ended
}

// counter counts the calls that a probe's log says have begun, as it grows.
type counter struct {
	path  string
	at    int64
	begun int
}

func (c *counter) count(t *testing.T) int {
	t.Helper()
	f, err := os.Open(c.path)
	if os.IsNotExist(err) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rest, err := io.ReadAll(io.NewSectionReader(f, c.at, 1<<62))
	if err != nil {
		t.Fatal(err)
	}
	whole := rest[:bytes.LastIndexByte(rest, '\n')+1]
	c.at += int64(len(whole))
	c.begun += bytes.Count(whole, []byte("begin "))
	return c.begun
}

// deliveries reads the probe's log, in the order of the calls' beginnings.
func deliveries(t *testing.T, path string) []delivery {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		if os.IsNotExist(err) {
			return nil
		}
		t.Fatal(err)
	}
	defer f.Close()
	var out []delivery
	open := map[string]int{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var what string
		var at int64
		var d delivery
		if _, err := fmt.Sscanf(lines.Text(), "%s %d %d %s %s %q %q", &what, &at, &d.attempt, &d.stage, &d.id, &d.key, &d.word); err != nil {
			continue // cut off by a kill
		}
		name := d.id + " " + strconv.Itoa(d.attempt)
		if what == "begin" {
			d.begin = at
			open[name] = len(out)
			out = append(out, d)
		} else if i, ok := open[name]; ok {
			out[i].end = at
		}
	}
	return out
}

// origin splits a record id: topic/partition/offset@timestamp.
func origin(t *testing.T, id string) (partition int, offset int64) {
	t.Helper()
	place, _, _ := strings.Cut(id, "@")
	parts := strings.Split(place, "/")
	if len(parts) != 3 {
		t.Fatalf("record id %q", id)
	}
	p, err1 := strconv.Atoi(parts[1])
	o, err2 := strconv.ParseInt(parts[2], 10, 64)
	if err1 != nil || err2 != nil {
		t.Fatalf("record id %q", id)
	}
	return p, o
}
