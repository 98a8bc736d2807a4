package kafka_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kconsume/kconsume/test/kafka"
)

// helperEnv makes this test binary start a broker, tell its address and wait
// for its own end.
const helperEnv = "KCONSUME_KAFKA_TEST_HELPER"

// quickFencing makes leaders move away from a killed node, and lets it back,
// sooner than the default 9 s.
var quickFencing = map[string]string{
	"broker.session.timeout.ms":    "3000",
	"broker.heartbeat.interval.ms": "500",
}

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) == "" {
		os.Exit(m.Run())
	}
	c, err := kafka.Open(context.Background(), kafka.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(c.Bootstrap())
	select {}
}

func TestDataSurvivesKillAndStop(t *testing.T) {
	c := kafka.Start(t, kafka.Options{Properties: quickFencing})
	create(t, c, "t", 3)
	write(t, c, "t", "one")
	for i, end := range []func(...int) error{c.Kill, c.Stop} {
		pid := c.PID(0)
		if err := end(0); err != nil {
			t.Fatal(err)
		}
		if c.PID(0) != 0 {
			t.Fatalf("a node that was ended runs as %d", c.PID(0))
		}
		if conn, err := net.Dial("tcp", c.Addr(0)); err == nil {
			conn.Close()
			t.Fatal("an ended broker takes connections")
		}
		if err := c.Start(0); err != nil {
			t.Fatal(err)
		}
		if c.PID(0) == pid {
			t.Fatal("the same process is back")
		}
		write(t, c, "t", fmt.Sprint("again ", i))
	}
	if got := size(t, c, "t"); got != 3 {
		t.Fatalf("the topic holds %d records, want 3", got)
	}
}

func TestThreeNodesWithOneKilled(t *testing.T) {
	c := kafka.Start(t, kafka.Options{Nodes: 3, Properties: quickFencing})
	create(t, c, "t", 3)
	if err := c.Kill(1); err != nil {
		t.Fatal(err)
	}
	write(t, c, "t", "by two of three") // goes on once the leaders have moved
	if err := c.Start(1); err != nil {
		t.Fatal(err)
	}
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	// A write whose answer the killed node took along is there twice.
	if got := size(t, c, "t"); got < 1 {
		t.Fatalf("the topic holds %d records, want 1 or more", got)
	}
}

func TestTool(t *testing.T) {
	c := kafka.Start(t, kafka.Options{Properties: map[string]string{"num.partitions": "7"}})
	out, err := c.Tool("org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", c.Bootstrap(),
		"--entity-type", "brokers", "--entity-name", "1", "--describe", "--all")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "num.partitions=7") {
		t.Errorf("the broker does not name the property that was set:\n%s", out)
	}
	if _, err := c.Tool("no.such.Class"); err == nil || !strings.Contains(err.Error(), "ClassNotFoundException") {
		t.Errorf("a missing class gives %v, want Java's own words", err)
	}
}

func TestBrokerThatCannotStartSaysWhy(t *testing.T) {
	_, err := kafka.Open(t.Context(), kafka.Options{Properties: map[string]string{"num.io.threads": "none"}})
	if err == nil || !strings.Contains(err.Error(), "num.io.threads") {
		t.Fatalf("got %v, want an error that names the wrong property", err)
	}
}

// The broker's end is seen by its port, as a dead process may stay a zombie.
func TestBrokerEndsWithKilledTests(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	helper := exec.CommandContext(t.Context(), self)
	helper.Env = append(os.Environ(), helperEnv+"=1", "TMPDIR="+t.TempDir())
	helper.Stderr = os.Stderr
	stdout, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("read the broker's address: %v", err)
	}
	addr = strings.TrimSpace(addr)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := helper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = helper.Wait() // killed
	// The kernel closes the connection when the broker is gone.
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Fatal("the broker sent something unasked")
	}
	// Its listener goes in the same exit, a moment sooner or later.
	for {
		conn, err := net.Dial("tcp", addr)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
		if err == nil {
			conn.Close()
		}
		if t.Context().Err() != nil {
			t.Fatalf("dial the broker of a killed process: %v, want connection refused", err)
		}
	}
}

func BenchmarkStart(b *testing.B) {
	for _, nodes := range []int{1, 3} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			for b.Loop() {
				c, err := kafka.Open(b.Context(), kafka.Options{Nodes: nodes})
				if err != nil {
					b.Fatal(err)
				}
				if err := c.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func create(t *testing.T, c *kafka.Cluster, topic string, partitions int) {
	t.Helper()
	if err := c.CreateTopic(t.Context(), kafkago.TopicConfig{Topic: topic, NumPartitions: partitions}); err != nil {
		t.Fatal(err)
	}
}

// write sends one record, however long leaders take to move.
func write(t *testing.T, c *kafka.Cluster, topic, value string) {
	t.Helper()
	transport := &kafkago.Transport{MetadataTTL: 100 * time.Millisecond}
	defer transport.CloseIdleConnections()
	w := &kafkago.Writer{
		Addr:         kafkago.TCP(strings.Split(c.Bootstrap(), ",")...),
		Topic:        topic,
		RequiredAcks: kafkago.RequireAll,
		BatchTimeout: time.Millisecond,
		Transport:    transport,
	}
	defer w.Close()
	for {
		err := w.WriteMessages(t.Context(), kafkago.Message{Value: []byte(value)})
		if err == nil {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
		t.Logf("write again after: %v", err)
	}
}

// size returns how many records a topic holds.
func size(t *testing.T, c *kafka.Cluster, topic string) int64 {
	t.Helper()
	out, err := c.Tool("org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server", c.Bootstrap(), "--topic", topic)
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	for line := range strings.Lines(string(out)) {
		var partition int
		var offset int64
		if _, err := fmt.Sscanf(line, topic+":%d:%d", &partition, &offset); err != nil {
			t.Fatalf("read %q: %v", line, err)
		}
		total += offset
	}
	return total
}
