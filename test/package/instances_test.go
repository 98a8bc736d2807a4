package package_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Three instances on one host, two of them in one group: none takes anything
// from another, neither while they run nor when one stops.
func TestInstancesShareNothing(t *testing.T) {
	topic := "shared"
	createTopic(t, topic)
	m := boot(t)
	m.install(firstVersion)
	for name, group := range map[string]string{"a": "ga", "b": "gb", "c": "ga"} {
		m.instance(name, topic, group, "handler: orders")
	}
	m.sh("systemctl start kconsume@a kconsume@b kconsume@c")
	m.sh("systemctl is-active kconsume@a kconsume@b kconsume@c")
	m.sh("systemctl stop kconsume@a")
	m.sh("ls /run/kconsume/b /run/kconsume/c")
	for name, group := range map[string]string{"b": "gb", "c": "ga"} {
		out := m.sh("kconsume status --admin unix:$(ls /run/kconsume/" + name + "/*.sock)")
		if !strings.Contains(out, "instance   "+name) || !strings.Contains(out, "group      "+group) {
			t.Errorf("not the status of %s", name)
		}
	}
	m.sh("systemctl start kconsume@a")
	pids := m.pids("a", "b", "c")
	m.sh("systemctl restart kconsume.target") // it does not wait for them
	until(t, "all run anew", func() bool {
		code, _ := m.try("systemctl is-active kconsume@a kconsume@b kconsume@c")
		for i, pid := range m.pids("a", "b", "c") {
			if pid == pids[i] {
				return false
			}
		}
		return code == 0
	})
	for _, name := range []string{"a", "b", "c"} {
		if n := m.property("kconsume@"+name, "NRestarts"); n != "0" {
			t.Errorf("%s was started again %s times", name, n)
		}
	}
	m.sh("systemctl stop kconsume.target")
	until(t, "none runs", func() bool {
		_, states := m.try("systemctl is-active kconsume@a kconsume@b kconsume@c")
		return states == "inactive\ninactive\ninactive"
	})
}

// pids are the main processes of instances.
func (m *machine) pids(instances ...string) (pids []string) {
	for _, name := range instances {
		pids = append(pids, m.property("kconsume@"+name, "MainPID"))
	}
	return pids
}

// What no restart can mend is told once: the unit fails, and stays failed.
func TestStartsThatCannotSucceed(t *testing.T) {
	topic := "refused"
	createTopic(t, topic)
	m := boot(t)
	m.install(firstVersion)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	m.write("/etc/kconsume/port.yaml", 0o644, []byte("brokers: ["+broker.Cluster(t).Bootstrap()+"]\ngroup: g\ntopic: "+topic+"\nhandler: orders\nmetrics: "+taken.Addr().String()+"\n"))
	m.instance("later", topic, "g", "handler: orders", "retry-jitter: 10%")
	m.instance("nobody", topic, "g", "handler: nobody")
	m.instance("state", topic, "g", "handler: orders", "state-dir: /etc/kconsume/state")
	m.instance("theirs", topic, "g", "handler: orders", "state-dir: /var/lib/kconsume")
	for name, want := range map[string]string{
		"port":    "give another address with --metrics",
		"later":   `unknown key "retry-jitter"`,
		"nobody":  `no kconsume-handler-nobody in /usr/local/libexec/kconsume/handlers, /usr/libexec/kconsume/handlers`,
		"state":   "choose another --state-dir",
		"theirs":  ".journal.lock: read-only file system: give this one a state folder (--state-dir) of its own",
		"missing": "cannot read the configuration file (no such file or directory)",
	} {
		_, _ = m.try("systemctl start kconsume@" + name) // some are found wrong only when the brokers have answered
		until(t, name+" has failed", func() bool { return m.property("kconsume@"+name, "ActiveState") == "failed" })
		if got := m.property("kconsume@"+name, "ExecMainStatus"); got != "78" {
			t.Errorf("%s: exit code %s; want 78", name, got)
		}
		if n := m.property("kconsume@"+name, "NRestarts"); n != "0" {
			t.Errorf("%s: started again %s times", name, n)
		}
		log := m.journal(name)
		t.Logf("%s", log)
		if !strings.Contains(log, want) {
			t.Errorf("%s: the log does not hold %q", name, want)
		}
	}
}

// A state folder without space costs the care after a crash, and nothing else.
func TestNoSpaceForState(t *testing.T) {
	topic := "full"
	createTopic(t, topic)
	m := boot(t)
	m.install(firstVersion)
	m.dropIn("probe")
	m.sh("mkdir -p /mnt/full; mount -t tmpfs -o size=8k tmpfs /mnt/full; install -d -o kconsume /mnt/full/state; ! dd if=/dev/zero of=/mnt/full/all bs=4k count=9")
	m.instance("full", topic, "full", "handler: probe", "handler-env: [PROBE_LOG=/var/lib/kconsume/full/probe.log]", "state-dir: /mnt/full/state")
	m.write("/etc/systemd/system/kconsume@full.service.d/more.conf", 0o644, []byte("[Service]\nReadWritePaths=/mnt/full\n"))
	m.sh("systemctl daemon-reload; systemctl start kconsume@full")
	feeding := startFeed(t, topic)
	until(t, "records are handled", func() bool { return len(m.calls("full")) > 100 })
	feeding()
	m.sh("systemctl stop kconsume@full")
	if state, log := m.property("kconsume@full", "ExecMainStatus"), m.journal("full"); state != "0" || !strings.Contains(log, "no space left on device") {
		t.Errorf("it ended with %s and logged\n%s", state, log)
	}
}

// A handler that compiles while it runs dies in the unit as it is, and lives with
// the drop-in that is shipped for it.
func TestHandlerThatNeedsMore(t *testing.T) {
	topic := "jit"
	createTopic(t, topic)
	m := boot(t)
	m.install(firstVersion)
	m.dropIn("jit")
	m.instance("jit", topic, "jit", "handler: jit")
	m.fails("systemctl start kconsume@jit")
	log := m.journal("jit")
	t.Logf("%s", log)
	for _, want := range []string{"make executable memory: operation not permitted", "needs /usr/share/kconsume/systemd/jit.conf"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not hold %q", want)
		}
	}
	m.sh("install -Dm644 /usr/share/kconsume/systemd/jit.conf /etc/systemd/system/kconsume@jit.service.d/jit.conf")
	m.sh("systemctl daemon-reload && systemctl restart kconsume@jit && systemctl is-active kconsume@jit")
	m.sh("systemctl stop kconsume@jit")
}

// A daemon that gives no sign of life is ended and started again.
func TestWatchdog(t *testing.T) {
	topic := "watched"
	createTopic(t, topic)
	m := boot(t)
	m.install(firstVersion)
	m.instance("frozen", topic, "frozen", "handler: orders")
	m.write("/etc/systemd/system/kconsume@frozen.service.d/soon.conf", 0o644, []byte("[Service]\nWatchdogSec=3s\nTimeoutAbortSec=1s\nRestartSec=100ms\n"))
	m.sh("systemctl daemon-reload && systemctl start kconsume@frozen")
	before := m.pids("frozen")[0]
	m.sh("kill -STOP " + before)
	until(t, "it is started again", func() bool {
		return m.property("kconsume@frozen", "NRestarts") == "1" && m.property("kconsume@frozen", "ActiveState") == "active"
	})
	if log := m.journal("frozen"); !strings.Contains(log, "Watchdog timeout") {
		t.Errorf("it was not the watchdog:\n%s", log)
	}
	m.sh("test ! -e /proc/" + before)
	m.sh("systemctl stop kconsume@frozen")
}

// A secret that root alone may read is handed over, and found under its name.
func TestSecretsAreHandedOver(t *testing.T) {
	topic := "secret"
	createTopic(t, topic)
	m := boot(t)
	m.install(firstVersion)
	token := strings.Repeat("5ecret", 8)
	m.write("/etc/kconsume/credentials/tokens", 0o600, []byte("viewer dashboard "+token+"\n"))
	address := freeAddr(t)
	m.instance("secret", topic, "secret", "handler: orders", "admin: tcp:"+address,
		"admin-tokens: /run/credentials/kconsume@secret.service/kconsume_tokens")
	m.sh("systemctl start kconsume@secret")
	m.sh("ls -l /run/credentials/kconsume@secret.service")
	if log := m.journal("secret"); strings.Contains(log, token) {
		t.Error("the secret is in the log")
	}
	// Reading the file itself is not in the service's power.
	m.fails("setpriv --reuid kconsume --regid kconsume --clear-groups cat /etc/kconsume/credentials/tokens")
	m.sh("systemctl reload kconsume@secret && systemctl is-active kconsume@secret")
	m.sh("systemctl stop kconsume@secret")
	if left, err := filepath.Glob(m.path("/run/credentials/kconsume@*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	if _, err := os.Stat(m.path("/run/kconsume/secret")); !os.IsNotExist(err) {
		t.Errorf("the runtime directory after the stop: %v", err)
	}
}
