package daemon_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

const upgrades = 20

// A handler is replaced twenty times under load, by the change of its file and
// by SIGHUP in turn: no record fails, and none is handled twice.
func TestUpgradesUnderLoad(t *testing.T) {
	topic, group := "upgrade", "upgrade-group"
	createTopic(t, topic, 4)
	dir := t.TempDir()
	versions := []string{filepath.Join(bin, "kconsume-handler-probe"), probeOf(t, "2")}
	handler := filepath.Join(dir, "kconsume-handler-probe")
	replace := func(n int) {
		t.Helper()
		b, err := os.ReadFile(versions[n%2])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(handler+".new", b, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(handler+".new", handler); err != nil {
			t.Fatal(err)
		}
	}
	replace(0)
	log := filepath.Join(t.TempDir(), "probe.log")
	d := launch(t, topic, group, "--handler", handler, "--handler-env", "PROBE_LOG="+log)
	calls := counter{path: log}
	ctx, stop := context.WithCancel(t.Context())
	var feeding sync.WaitGroup
	sent := 0
	feeding.Go(func() { sent = feed(ctx, t, topic) })
	until(t, "records are handled", func() bool { return calls.count(t) > 500 })
	for n := 1; n <= upgrades; n++ {
		before := calls.count(t)
		replace(n)
		if n%2 == 0 {
			if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
		}
		until(t, fmt.Sprintf("upgrade %d", n), func() bool { return d.times("handler upgraded") >= n })
		until(t, "the new one handles records", func() bool { return calls.count(t) > before+100 })
	}
	stop()
	feeding.Wait()
	until(t, "the lag is zero", func() bool { return lag(t, group, []string{topic, topic + ".retry.5s", topic + ".retry.30s"}, 4) == 0 })
	if n := lag(t, group, []string{topic + ".dlq"}, 4); n != 0 {
		t.Errorf("%d records are in the DLQ", n)
	}
	d.stop()

	var longest time.Duration
	var last int64
	times := map[string]int{}
	for _, c := range deliveries(t, log) {
		times[c.id]++
		if c.attempt != 1 || c.end == 0 {
			t.Fatalf("delivery %+v", c)
		}
		if last > 0 {
			longest = max(longest, time.Duration(c.begin-last))
		}
		last = c.begin
	}
	twice := 0
	for _, n := range times {
		if n > 1 {
			twice++
		}
	}
	if len(times) != sent || twice > 0 {
		t.Errorf("%d records were sent, %d handled, %d of them twice", sent, len(times), twice)
	}
	t.Logf("%d upgrades under load: %d records handled, 0 failed, %d twice; the longest time without a new call %v", upgrades, len(times), twice, longest.Round(time.Millisecond))
}

// probeOf builds the probe as another version.
func probeOf(t *testing.T, version string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kconsume-handler-probe")
	out, err := exec.Command("go", "build", "-ldflags", "-X main.version="+version, "-o", path, "github.com/kconsume/kconsume/test/probe").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// feed writes about 1,000 records a second until ctx ends, and returns how many.
func feed(ctx context.Context, t *testing.T, topic string) (sent int) {
	transport := &kafkago.Transport{}
	defer transport.CloseIdleConnections()
	w := &kafkago.Writer{
		Addr: kafkago.TCP(broker.Cluster(t).Bootstrap()), Topic: topic, RequiredAcks: kafkago.RequireAll, Transport: transport,
		BatchSize: 20, BatchTimeout: time.Millisecond, Balancer: &kafkago.RoundRobin{}, MaxAttempts: 1, // a record that was told of once is there once
	}
	defer w.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return sent
		case <-tick.C:
		}
		var batch []kafkago.Message
		for range 20 {
			batch = append(batch, kafkago.Message{Key: fmt.Appendf(nil, "k%d", sent+len(batch)), Value: []byte("ok")})
		}
		if err := w.WriteMessages(context.WithoutCancel(ctx), batch...); err != nil {
			t.Errorf("feed: %v", err)
			return sent
		}
		sent += len(batch)
	}
}

// times is how many lines of the daemon's log hold a text.
func (d *daemon) times(text string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for line := range strings.Lines(d.log.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
