package secure_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kconsume/kconsume/test/suite"
	kafkago "github.com/segmentio/kafka-go"
)

// daemon is `kconsume run` at work, as the user, with the probe as its handler.
type daemon struct {
	t        *testing.T
	cmd      *exec.Cmd
	probeLog string
	began    time.Time
	done     chan struct{}
	err      error // once done
	took     time.Duration

	mu  sync.Mutex
	log bytes.Buffer
}

// start runs a daemon on a topic, with one tier of 1s. It is killed, if it still
// runs, when the test ends.
func start(t *testing.T, brokers, topic, group string, flags ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, probeLog: filepath.Join(t.TempDir(), "probe"), done: make(chan struct{})}
	args := append([]string{
		"run", "--brokers", brokers, "--group", group, "--topic", topic, "--retry", "1s", "--metrics", "",
		"--handler", probe(), "--handler-env", "PROBE_LOG=" + d.probeLog,
	}, flags...)
	d.cmd = exec.Command(filepath.Join(bin, "kconsume"), args...)
	d.cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+shortDir(t), "STATE_DIRECTORY="+t.TempDir())
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.began = time.Now()
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
		d.took = time.Since(d.began)
		close(d.done)
	}()
	t.Cleanup(func() {
		select {
		case <-d.done:
		default:
			_ = d.cmd.Process.Kill()
			<-d.done
		}
		if text := d.said(); strings.Contains(text, password) || strings.Contains(text, wrongSecret) || strings.Contains(text, clientSecret) {
			t.Error("the log holds a secret")
		}
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", d.said())
		}
	})
	return d
}

// seconds is how long an ended daemon ran.
func (d *daemon) seconds() float64 { return d.took.Seconds() }

// said is the log so far.
func (d *daemon) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

// says waits until the log holds a text that comes after so many bytes of it,
// and returns its length then.
func (d *daemon) says(after int, text string) int {
	d.t.Helper()
	until(d.t, "the log says "+text, func() bool {
		select {
		case <-d.done:
			d.t.Fatalf("the daemon ended: %v", d.err)
		default:
		}
		said := d.said()
		return strings.Contains(said[after:], text)
	})
	return len(d.said())
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

// until polls a condition; the bound only keeps a broken test from hanging.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	suite.Until(t, 3*time.Minute, what, ok)
}

// call is one line of the probe's log.
type call struct {
	end      bool
	at       int64 // unix ns
	attempt  int
	stage    string
	id, word string
}

func (d *daemon) calls() (out []call) {
	d.t.Helper()
	f, err := os.Open(d.probeLog)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var c call
		var what, key string
		if _, err := fmt.Sscanf(lines.Text(), "%s %d %d %s %s %q %q", &what, &c.at, &c.attempt, &c.stage, &c.id, &key, &c.word); err != nil {
			continue // still being written
		}
		c.end = what == "end"
		out = append(out, c)
	}
	return out
}

// handled waits until so many deliveries of a stage have ended.
func (d *daemon) handled(stage string, n int) {
	d.t.Helper()
	until(d.t, fmt.Sprintf("%d deliveries of %s", n, stage), func() bool {
		ended := 0
		for _, c := range d.calls() {
			if c.end && c.stage == stage {
				ended++
			}
		}
		return ended >= n
	})
}

// send writes records to a topic by the rig's own listener.
func send(t *testing.T, topic string, values ...string) {
	t.Helper()
	w := &kafkago.Writer{Addr: kafkago.TCP(cluster(t).Bootstrap()), Topic: topic, RequiredAcks: kafkago.RequireAll, BatchTimeout: time.Millisecond, Transport: admin(t).Transport}
	defer w.Close()
	var msgs []kafkago.Message
	for _, v := range values {
		msgs = append(msgs, kafkago.Message{Value: []byte(v)})
	}
	if err := w.WriteMessages(t.Context(), msgs...); err != nil {
		t.Fatal(err)
	}
}
