package observe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kconsume/kconsume/test/suite"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
)

// output keeps what a process prints, for a test that fails.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

// start runs a program until the test ends.
func start(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	var log output
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = env, t.TempDir(), &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // one that has ended already is waited for all the same
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s printed:\n%s", filepath.Base(name), log.text.String())
		}
	})
}

// address is one of this host that nobody else uses.
func address(port int) string {
	return fmt.Sprintf("127.%d.%d.%d:%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254), port)
}

// until asks again and again. The bound only keeps a broken test from hanging.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	suite.Until(t, 4*time.Minute, what, ok)
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// notice is what a webhook gets.
type notice struct {
	Status string
	Alerts []struct {
		Status              string
		Labels, Annotations map[string]string
	}
}

// webhook receives notifications.
func webhook(t *testing.T) (*httptest.Server, <-chan notice) {
	t.Helper()
	got := make(chan notice, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n notice
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		select {
		case got <- n:
		default: // more than anybody reads
		}
	}))
	t.Cleanup(s.Close)
	return s, got
}

// daemon is a kconsume that runs, and the environment to look at it from.
type daemon struct {
	env              []string
	metrics, brokers string
	bin              string
}

func build(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	if err := suite.Build(bin, map[string]string{"kconsume": "cmd/kconsume", "kconsume-handler-probe": "test/probe"}); err != nil {
		t.Fatal(err)
	}
	return bin
}

func startDaemon(t *testing.T) *daemon {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	runtime, err := os.MkdirTemp("", "kc-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(runtime) })
	d := &daemon{bin: build(t), metrics: address(9464), brokers: strings.Join(cluster.ListenAddrs(), ",")}
	d.env = []string{
		"PATH=" + d.bin + ":" + os.Getenv("PATH"), "HOME=" + runtime, "XDG_RUNTIME_DIR=" + runtime, "STATE_DIRECTORY=" + t.TempDir(),
		"KCONSUME_BROKERS=" + d.brokers, "KCONSUME_GROUP=shop", "KCONSUME_TOPIC=orders", "KCONSUME_CRITICAL=orders", "KCONSUME_RETRY=1s", "KCONSUME_METRICS=" + d.metrics,
		"KCONSUME_HANDLER=" + filepath.Join(d.bin, "kconsume-handler-probe"), "KCONSUME_HANDLER_DIR=" + d.bin,
		"KCONSUME_HANDLER_ENV=PROBE_LOG=" + filepath.Join(runtime, "log"),
	}
	start(t, d.env, filepath.Join(d.bin, "kconsume"), "run")
	return d
}

func (d *daemon) produce(t *testing.T, value string) {
	t.Helper()
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	w := &kafka.Writer{Addr: kafka.TCP(d.brokers), Topic: "orders", RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond, Transport: transport}
	if err := errors.Join(w.WriteMessages(t.Context(), kafka.Message{Value: []byte(value)}), w.Close()); err != nil {
		t.Fatal(err)
	}
}

// prometheus is one that runs.
type prometheus struct{ address string }

// startPrometheus scrapes a daemon and tells an Alertmanager, which tells hook.
func startPrometheus(t *testing.T, d *daemon, hook string) *prometheus {
	t.Helper()
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	p, manager := &prometheus{address(9090)}, address(9093)
	start(t, os.Environ(), "prometheus-alertmanager", "--cluster.listen-address=", "--web.listen-address="+manager, "--storage.path="+t.TempDir(),
		"--config.file="+file(t, "alertmanager.yml", fmt.Sprintf(`
route: {receiver: hook, group_by: [alertname], group_wait: 100ms, group_interval: 1s, repeat_interval: 1h}
receivers: [{name: hook, webhook_configs: [{url: %q}]}]
`, hook)))
	start(t, os.Environ(), "prometheus", "--web.listen-address="+p.address, "--storage.tsdb.path="+t.TempDir(),
		"--config.file="+file(t, "prometheus.yml", fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
alerting: {alertmanagers: [{static_configs: [{targets: [%q]}]}]}
scrape_configs: [{job_name: kconsume, static_configs: [{targets: [%q]}]}]
`, rules, manager, d.metrics)))
	until(t, "Prometheus and Alertmanager answer", func() bool {
		return answers("http://"+p.address+"/-/ready") && answers("http://"+manager+"/-/ready")
	})
	return p
}

func answers(url string) bool {
	res, err := http.Get(url)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// query is the number of series that an expression has now.
func (p *prometheus) query(t *testing.T, expr string) int {
	t.Helper()
	res, err := http.Get("http://" + p.address + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		t.Fatalf("%s: %v %s", expr, err, body)
	}
	return len(answer.Data.Result)
}

// One record of a critical topic fails, the first ever: somebody is told. Then
// whoever is told does what the runbooks say.
func TestTheWholeWay(t *testing.T) {
	need(t, "prometheus=prometheus", "prometheus-alertmanager=prometheus-alertmanager")
	hook, notices := webhook(t)
	d := startDaemon(t)
	p := startPrometheus(t, d, hook.URL)
	// Of two samples alone an increase would be extrapolated by half.
	until(t, "the daemon is seen with its counter at 0", func() bool {
		return p.query(t, `count_over_time(kafka_dlq_messages_total{topic="orders.dlq"}[5m]) >= 4`) > 0
	})
	d.produce(t, "ok")
	until(t, "a record is handled", func() bool { return p.query(t, `kconsume_messages_total{outcome="ack"} >= 1`) > 0 })
	if n := p.query(t, `ALERTS{alertstate="firing"}`); n != 0 {
		t.Errorf("%d alerts fire before anything failed", n)
	}

	began := time.Now()
	d.produce(t, "perm")
	var told notice
	until(t, "somebody is told", func() bool {
		select {
		case told = <-notices:
			return true
		default:
			return false
		}
	})
	t.Logf("from the record to the webhook: %.1fs: %s %v", time.Since(began).Seconds(), told.Status, told.Alerts)
	if len(told.Alerts) != 1 || told.Status != "firing" {
		t.Fatalf("told %+v", told)
	}
	a := told.Alerts[0]
	if a.Labels["alertname"] != "KconsumeCriticalDeadLetter" || a.Labels["topic"] != "orders.dlq" || a.Labels["severity"] != "critical" {
		t.Errorf("labels %v", a.Labels)
	}
	if a.Annotations["summary"] != "1 records of a critical topic were dead-lettered to orders.dlq within an hour" || read(t, filepath.Join(root, a.Annotations["runbook"])) == "" {
		t.Errorf("annotations %v", a.Annotations)
	}
	d.produce(t, "fail 1")
	until(t, "a retry is measured", func() bool { return p.query(t, `kconsume_retry_lateness_seconds_count{stage="retry.1s"} >= 1`) > 0 })
	until(t, "the record is seen in the DLQ", func() bool { return p.query(t, `kconsume_dlq_unresolved_records{topic="orders.dlq"} == 1`) > 0 })
	t.Run("dashboard", p.show)

	for _, page := range pages(t) {
		t.Run(page, func(t *testing.T) { d.follow(t, page) })
	}
	until(t, "nothing is unresolved any more", func() bool { return p.query(t, `kconsume_dlq_unresolved_records{topic="orders.dlq"} == 0`) > 0 })
}

// follow runs a page's commands. A plan exits with 2 if there is something to do.
func (d *daemon) follow(t *testing.T, page string) {
	commands := commandsOf(t, page)
	if len(commands) == 0 {
		t.Error("the page has no command")
	}
	for _, line := range commands {
		cmd := exec.Command("bash", "-c", line)
		cmd.Env, cmd.Dir = d.env, t.TempDir()
		out, err := cmd.CombinedOutput()
		code := cmd.ProcessState.ExitCode()
		t.Logf("$ %s\n%s[exit %d]", line, out, code)
		if err != nil && code != 2 || len(out) == 0 && !strings.Contains(line, "export") {
			t.Errorf("%s: %v", line, err)
		}
	}
}
