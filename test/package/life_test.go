package package_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

const partitions = 4

// The life of an installed daemon, as a person leads it.
func TestInstallUpgradeRemovePurge(t *testing.T) {
	topic, group := "orders.confirmed", "billing"
	createTopic(t, topic)
	m := boot(t)
	before := m.files()

	m.copy(made.deb(firstVersion, otherArch()), "/srv/other.deb", 0o644)
	if out := m.fails("dpkg -i other.deb"); !strings.Contains(out, "does not match system") {
		t.Errorf("dpkg does not say why")
	}
	m.sh("rm other.deb")

	m.install(firstVersion)
	if out := m.sh("systemctl list-units --all --plain --no-legend 'kconsume*'"); out != "" {
		t.Error("something runs that nobody started")
	}
	if out := m.sh("systemctl list-unit-files --no-legend 'kconsume*'"); strings.Contains(strings.ReplaceAll(out, "disabled enabled", ""), "enabled") {
		t.Error("something is enabled that nobody enabled")
	}

	if out := m.unknown("systemd-analyze verify --man=no kconsume@x.service kconsume.target"); out != "" {
		t.Errorf("systemd does not understand the units: %s", out)
	}

	m.dropIn("probe")
	m.instance("orders", topic, group, "handler: probe", "handler-env: [PROBE_LOG=/var/lib/kconsume/orders/probe.log]")
	m.instance("idle", topic, "idle", "handler: orders")
	m.sh("systemctl enable kconsume@idle")
	begun := time.Now()
	m.sh("systemctl enable --now kconsume@orders")
	feeding := startFeed(t, topic)
	until(t, "the first record is handled", func() bool { return len(m.calls("orders")) > 0 })
	t.Logf("from systemctl start to the first record: %v", time.Since(begun).Round(time.Millisecond))
	until(t, "records are handled", func() bool { return len(m.calls("orders")) > 1000 })
	m.sh("systemctl status --no-pager kconsume@orders | grep -vE '(level|time)='")
	m.sh("kconsume status | head -20")
	m.sh("setpriv --reuid 65534 --regid 65534 --clear-groups kconsume status; test $? = 69")

	running, started := m.property("kconsume@orders", "MainPID"), len(m.calls("orders"))
	m.sh("echo '# of ours' >>/etc/kconsume/example.yaml")
	m.copy(made.deb(secondVersion, runtime.GOARCH), "/srv/kconsume.deb", 0o644)
	m.sh("dpkg -i kconsume.deb")
	if now := m.property("kconsume@orders", "MainPID"); now == running || now == "0" {
		t.Errorf("what ran was not restarted: process %s before, %s now", running, now)
	}
	if state := m.property("kconsume@idle", "ActiveState"); state != "inactive" {
		t.Errorf("what did not run is %s", state)
	}
	m.sh("tail -1 /etc/kconsume/example.yaml | grep -x '# of ours'")
	upgraded := len(m.calls("orders"))
	until(t, "the upgraded one handles records", func() bool { return len(m.calls("orders")) > upgraded+1000 })
	sent := feeding()
	until(t, "the lag is zero", func() bool { return lag(t, group, topic) == 0 })
	m.account(sent, started)

	m.sh("grep VmRSS /proc/$(systemctl show --value -p MainPID kconsume@orders)/status")
	m.sh("apt-get remove -qq -y kconsume")
	if state := m.property("kconsume@orders", "ActiveState"); state != "inactive" {
		t.Errorf("what was removed is %s", state)
	}
	m.sh("! grep -l kconsume /proc/[0-9]*/comm")
	m.sh("ls /etc/kconsume /var/lib/kconsume/orders") // both are kept
	m.sh("rm -r /usr/local/libexec kconsume.deb")     // what we put there ourselves
	m.sh("dpkg --purge kconsume")
	m.sh(`! find / -xdev -path /proc -prune -o \( -name '*kconsume*' -o -user kconsume -o -group kconsume \) -print | grep .`)
	if left := m.left(before); len(left) > 0 {
		t.Errorf("purging leaves %q", left)
	}
}

// unknown is what a command prints, but for the two keys that a systemd before
// 254 does not know.
func (m *machine) unknown(line string) string {
	_, out := m.try(line)
	return strings.TrimSpace(regexp.MustCompile(`(?m)^.*Unknown key.* '(RestartSteps|RestartMaxDelaySec)'.*$`).ReplaceAllString(out, ""))
}

// account holds what was handled against what was sent, upgrade included.
func (m *machine) account(sent, before int) {
	m.t.Helper()
	times := map[string]int{}
	var longest time.Duration
	calls := m.calls("orders")
	for i, c := range calls {
		times[c.id]++
		if i > 0 {
			longest = max(longest, time.Duration(c.at-calls[i-1].at))
		}
	}
	twice := 0
	for _, n := range times {
		if n > 1 {
			twice++
		}
	}
	m.t.Logf("upgrade while records flow: %d sent, %d handled before it, %d in all, %d lost, %d handled twice; longest time without a new call %v",
		sent, before, len(times), sent-len(times), twice, longest.Round(time.Millisecond))
	if len(times) != sent || twice > 0 {
		m.t.Error("records were lost, or handled twice though the daemon was stopped cleanly")
	}
}

// install installs a version as a person would who has the file.
func (m *machine) install(version string) {
	m.t.Helper()
	m.copy(made.deb(version, runtime.GOARCH), "/srv/kconsume.deb", 0o644)
	m.sh("apt-get install -qq -y --no-install-recommends ./kconsume.deb")
}

// dropIn installs a handler as an administrator would.
func (m *machine) dropIn(handler string) {
	m.t.Helper()
	m.copy(made.handler(handler), "/srv/handler", 0o755)
	m.sh("install -D handler /usr/local/libexec/kconsume/handlers/kconsume-handler-" + handler + "; rm handler")
}

// instance writes an instance's settings, with a port of its own.
func (m *machine) instance(name, topic, group string, more ...string) {
	m.t.Helper()
	lines := append([]string{
		"brokers: [" + broker.Cluster(m.t).Bootstrap() + "]", "group: " + group, "topic: " + topic, "metrics: " + freeAddr(m.t),
	}, more...)
	m.write("/etc/kconsume/"+name+".yaml", 0o644, []byte(strings.Join(lines, "\n")+"\n"))
	m.sh("cat /etc/kconsume/" + name + ".yaml")
}

// call is the beginning of one call of the probe.
type call struct {
	id string
	at int64 // unix ns
}

// calls reads the probe's log of an instance.
func (m *machine) calls(instance string) (out []call) {
	m.t.Helper()
	f, err := os.Open(m.path("/var/lib/kconsume/" + instance + "/probe.log"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 5 || words[0] != "begin" {
			continue
		}
		at, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			m.t.Fatal(err)
		}
		out = append(out, call{words[4], at})
	}
	return out
}

// files are the paths in the machine's root, without what is in memory or belongs
// to dpkg, apt and the journal.
func (m *machine) files() []string {
	m.t.Helper()
	code, out := m.try(`find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var/tmp -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache -o -path /var/log \) -prune -o -print`)
	if code != 0 {
		m.t.Fatal(out)
	}
	return strings.Split(out, "\n")
}

// left are the files that there are now and were not before. The databases of
// users keep a copy of what they were.
func (m *machine) left(before []string) (left []string) {
	m.t.Helper()
	was := map[string]bool{}
	for _, f := range before {
		was[f] = true
	}
	for _, f := range m.files() {
		if !was[f] && !slices.Contains([]string{"/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-", "/etc/.pwd.lock"}, f) {
			left = append(left, f)
		}
	}
	return left
}

func otherArch() string {
	if runtime.GOARCH == "arm64" {
		return "amd64"
	}
	return "arm64"
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func createTopic(t *testing.T, topic string) {
	t.Helper()
	err := broker.Cluster(t).CreateTopic(t.Context(), kafkago.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1})
	if err != nil {
		t.Fatal(err)
	}
}

// startFeed writes about 500 records a second until it is stopped, which tells
// how many.
func startFeed(t *testing.T, topic string) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	transport := &kafkago.Transport{}
	w := &kafkago.Writer{
		Addr: kafkago.TCP(broker.Cluster(t).Bootstrap()), Topic: topic, RequiredAcks: kafkago.RequireAll, Transport: transport,
		BatchSize: 10, BatchTimeout: time.Millisecond, Balancer: &kafkago.RoundRobin{}, MaxAttempts: 1, // a record that was told of once is there once
	}
	var feeding sync.WaitGroup
	sent := 0
	feeding.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			var batch []kafkago.Message
			for range 10 {
				batch = append(batch, kafkago.Message{Key: fmt.Appendf(nil, "k%d", sent+len(batch)), Value: []byte("ok")})
			}
			if err := w.WriteMessages(context.WithoutCancel(ctx), batch...); err != nil {
				t.Errorf("feed: %v", err)
				return
			}
			sent += len(batch)
		}
	})
	stop = sync.OnceValue(func() int {
		cancel()
		feeding.Wait()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
		return sent
	})
	t.Cleanup(func() { stop() })
	return stop
}

// lag is what a group has not committed of a topic.
func lag(t *testing.T, group, topic string) (n int64) {
	t.Helper()
	transport := &kafkago.Transport{}
	defer transport.CloseIdleConnections()
	c := &kafkago.Client{Addr: kafkago.TCP(broker.Cluster(t).Bootstrap()), Timeout: 10 * time.Second, Transport: transport}
	var all []int
	var last []kafkago.OffsetRequest
	for p := range partitions {
		all = append(all, p)
		last = append(last, kafkago.LastOffsetOf(p))
	}
	ends, err := c.ListOffsets(t.Context(), &kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{topic: last}})
	if err != nil {
		t.Fatal(err)
	}
	done, err := c.OffsetFetch(t.Context(), &kafkago.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: all}})
	if err != nil {
		t.Fatal(err)
	}
	committed := map[int]int64{}
	for _, p := range done.Topics[topic] {
		committed[p.Partition] = p.CommittedOffset
	}
	for _, p := range ends.Topics[topic] {
		if p.Error != nil {
			t.Fatal(p.Error)
		}
		n += p.LastOffset - max(0, committed[p.Partition])
	}
	return n
}
