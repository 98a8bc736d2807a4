package collect

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/metrics"
	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/host"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

var update = flag.Bool("update", false, "write testdata/metrics.golden and docs/METRICS.md anew")

const (
	goldenFile    = "testdata/metrics.golden"
	referenceFile = "../../docs/METRICS.md"
)

// described notes the description of all that is registered.
type described struct {
	prometheus.Registerer
	texts []string
}

func (d *described) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		ch := make(chan *prometheus.Desc, 100)
		c.Describe(ch)
		close(ch)
		for desc := range ch {
			d.texts = append(d.texts, desc.String())
		}
	}
	d.Registerer.MustRegister(cs...)
}

var descText = regexp.MustCompile(`fqName: "(\w+)", help: .*, constLabels: \{\}, variableLabels: \{(.*)\}\}$`)

// labelsOf are the labels of each metric by its name.
func (d *described) labelsOf(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, text := range d.texts {
		m := descText.FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("cannot read %s", text)
		}
		out[m[1]] = nil
		if m[2] != "" {
			out[m[1]] = strings.Split(m[2], ",")
		}
	}
	return out
}

// everything registers all that kconsume exports, the Go runtime's and the
// process' own metrics aside, with a series of each. It must run in a bubble.
func everything(t *testing.T) (*prometheus.Registry, map[string][]string) {
	t.Helper()
	r := prometheus.NewRegistry()
	d := &described{Registerer: r}
	e, a := metrics.NewEngine(d), metrics.NewAdmin(d)
	metrics.NewTracing(d)
	d.MustRegister(NewBuild("v1.2.3", "0123abc", "go1.26"), NewCritical([]string{"orders", "orders.dlq"}), NewHandler(func() host.Status {
		return host.Status{State: host.StateRunning, Name: "orders", Version: "7", InFlight: 2, Late: 1, Ends: map[host.Cause]int{host.CauseExit: 3}}
	}))
	desk := &desk{answers: make(chan plugin.Answers)}
	timed := NewTimed(desk, d, []string{"orders"})
	timed.Deliver([]plugin.Delivery{delivery(1, "orders", "main")})
	time.Sleep(30 * time.Millisecond)
	timed.measure(&plugin.Answers{Acked: []uint64{1}})
	timed.Close()
	now := time.Now()
	w := &world{status: owns(0), sums: []dlq.Summary{summary(3, now.Add(-time.Hour), now.Add(time.Hour))}}
	NewWatch(w.config(), d).look(t.Context())

	labels := d.labelsOf(t)
	for _, of := range []any{e, a} {
		v := reflect.ValueOf(of).Elem()
		for _, f := range reflect.VisibleFields(v.Type()) {
			ch := make(chan *prometheus.Desc, 1)
			v.FieldByIndex(f.Index).Interface().(prometheus.Collector).Describe(ch)
			name := descText.FindStringSubmatch((<-ch).String())[1]
			oneSeries(v.FieldByIndex(f.Index).Interface(), examples(t, name, labels[name]))
		}
	}
	return r, labels
}

// oneSeries makes a series of a vector.
func oneSeries(c any, values []string) {
	switch c := c.(type) {
	case *prometheus.CounterVec:
		c.WithLabelValues(values...)
	case *prometheus.GaugeVec:
		c.WithLabelValues(values...)
	case *prometheus.HistogramVec:
		c.WithLabelValues(values...)
	}
}

// examples are a value for each label of a metric.
func examples(t *testing.T, name string, labels []string) []string {
	t.Helper()
	known := map[string]string{
		"topic": "orders", "stage": "retry.5s", "tier": "retry.5s", "outcome": string(metrics.OutcomeAck), "partition": "0", "result": "ok",
		"kind": "temporary", "reason": "timeout", "problem": "retention", "route": "GET /v1/status", "status": "2xx",
		"class": "poison", "handler": "orders@7",
	}
	if name == "kconsume_admin_denied_total" {
		known["reason"] = "role"
	}
	if name == "kafka_dlq_messages_total" {
		known["topic"] = "orders.dlq"
	}
	var values []string
	for _, l := range labels {
		if known[l] == "" {
			t.Fatalf("%s has a label %q that is not known here: is it bounded?", name, l)
		}
		values = append(values, known[l])
	}
	return values
}

// The whole text: names, help, types, labels.
func TestMetricsText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, labels := everything(t)
		text := exposed(r)
		for name := range labels {
			if !strings.Contains(text, "\n# TYPE "+name+" ") && !strings.HasPrefix(text, "# HELP "+name+" ") {
				t.Errorf("%s is registered, and has no series here", name)
			}
		}
		if *update {
			write(t, goldenFile, text)
		}
		if want := read(t, goldenFile); text != want {
			t.Errorf("/metrics differs from %s: if that is wanted, run go test ./metrics/collect -update\n%s", goldenFile, difference(want, text))
		}
	})
}

func TestPromlint(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(read(t, goldenFile))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestReferenceIsFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, labels := everything(t)
		page := reference(t, r, labels)
		if *update {
			write(t, referenceFile, page)
		}
		if want := read(t, referenceFile); page != want {
			t.Errorf("docs/METRICS.md is not what the program exports: run go test ./metrics/collect -update\n%s", difference(want, page))
		}
	})
}

const head = `# Metrics

` + "`/metrics`" + ` of every daemon (` + "`--metrics`" + `, 127.0.0.1:9464 unless told otherwise). This page is generated from the program.

Units are seconds, bytes and records. No series is named by a key, an offset or a text. Histograms are classic and, to a
Prometheus that asks for them, native. Besides these there are Go's own (` + "`go_*`" + `) and the process' (` + "`process_*`" + `).

A counter or a gauge with labels has a series from the first time on that its labels occur. Those that are labelled by our own
topics alone, with ` + "`kafka_dlq_messages_total`" + ` in front, and commits with the result ok stand at 0 from the start: their first
event is an increase. Deliveries and failures do so from a handler version's first answer on; the latest eight versions have
series. What is told of partitions and handlers is told by each daemon of its own; what is told of a DLQ, by the one daemon
that owns partition 0 of the main topic, so that sums over replicas hold.

Alerts that are made from these are in packaging/prometheus/kconsume.rules.yml; each has a page in [runbooks](runbooks/).

| metric | type | labels | meaning |
|---|---|---|---|
`

func reference(t *testing.T, r *prometheus.Registry, labels map[string][]string) string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(head)
	for _, f := range families {
		var ls []string
		for _, l := range labels[f.GetName()] {
			ls = append(ls, "`"+l+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(ls, ", "), f.GetHelp())
	}
	return b.String()
}

// Whoever starts anew has these counters at 0 from the first scrape on: the
// first event ever is an increase.
func TestCountersStandAtZero(t *testing.T) {
	r := prometheus.NewRegistry()
	if _, err := engine.New(engine.Config{
		Brokers: []string{"127.0.0.1:1"}, Group: "g", Topics: []string{"a", "b"}, Registerer: r, Retry: []time.Duration{time.Second},
		Emit:      map[string]engine.EmitPolicy{"out": engine.EmitBuffer},
		Deliverer: &desk{},
	}); err != nil {
		t.Fatal(err)
	}
	for _, series := range []string{
		`kafka_dlq_messages_total{topic="a.dlq"}`, `kafka_dlq_messages_total{topic="b.dlq"}`, `kconsume_commits_total{result="ok"}`, `kconsume_generations_total`,
		`kconsume_offsets_lost_total{topic="a"}`, `kconsume_offsets_lost_total{topic="a.retry.1s"}`, `kconsume_offsets_lost_total{topic="b.replay"}`,
		`kconsume_foreign_records_total{topic="a.retry.1s"}`, `kconsume_foreign_records_total{topic="a.replay"}`,
		`kconsume_retries_scheduled_total{tier="retry.1s",topic="a"}`,
		`kconsume_writer_retries_total{topic="a.dlq"}`, `kconsume_writer_errors_total{topic="a.retry.1s"}`,
		`kconsume_emitted_total{topic="out"}`, `kconsume_emit_lost_total{reason="overflow",topic="out"}`,
	} {
		if got := value(t, r, series); got != "0" {
			t.Errorf("%s: %q", series, got)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// difference are the lines that only one of two texts has.
func difference(want, got string) string {
	count := map[string]int{}
	for l := range strings.Lines(want) {
		count["- "+l]++
	}
	for l := range strings.Lines(got) {
		if count["- "+l] > 0 {
			count["- "+l]--
		} else {
			count["+ "+l]++
		}
	}
	maps.DeleteFunc(count, func(_ string, n int) bool { return n == 0 })
	return strings.Join(slices.Sorted(maps.Keys(count)), "")
}
