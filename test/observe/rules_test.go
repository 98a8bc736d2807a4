// Package observe holds what is shipped for Prometheus, its alerts and their
// runbooks against one another, and against a daemon, a Prometheus and an
// Alertmanager that run.
package observe

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	root      = "../.."
	rulesFile = root + "/packaging/prometheus/kconsume.rules.yml"
	testsFile = root + "/packaging/prometheus/kconsume.test.yml"
)

// need installs programs that are missing: each is PROGRAM=PACKAGE.
func need(t *testing.T, programs ...string) {
	t.Helper()
	if out, err := exec.Command(root+"/tools/need.sh", programs...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

type alert struct {
	Alert       string
	Expr        string
	Annotations map[string]string
}

// alerts are those that are shipped.
func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alert } }
	decode(t, rulesFile, &file)
	var all []alert
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("there are no alerts")
	}
	return all
}

func decode(t *testing.T, path string, v any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, path)), v); err != nil {
		t.Fatalf("%s: %v", path, err)
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

func TestPromtool(t *testing.T) {
	need(t, "promtool=prometheus")
	for _, args := range [][]string{{"check", "rules", filepath.Base(rulesFile)}, {"test", "rules", filepath.Base(testsFile)}} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = filepath.Dir(rulesFile)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "SUCCESS") {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// exported are the metrics' names with their types.
func exported(t *testing.T) map[string]string {
	t.Helper()
	names := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\w+) (\w+)$`).FindAllStringSubmatch(read(t, root+"/metrics/collect/testdata/metrics.golden"), -1) {
		names[m[1]] = m[2]
	}
	return names
}

var ourMetric = regexp.MustCompile(`\b(kconsume_|kafka_)\w+`)

// unknownMetrics are those that a text names and kconsume does not export.
func unknownMetrics(names map[string]string, text string) (unknown []string) {
	for _, name := range ourMetric.FindAllString(text, -1) {
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if names[name] == "" && names[base] != "histogram" {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

func TestRulesNameMetricsThatExist(t *testing.T) {
	names := exported(t)
	for _, a := range alerts(t) {
		if !ourMetric.MatchString(a.Expr) {
			t.Errorf("%s looks at no metric of kconsume", a.Alert)
		}
		for _, name := range unknownMetrics(names, a.Expr) {
			t.Errorf("%s: there is no metric %s", a.Alert, name)
		}
	}
	for _, name := range unknownMetrics(names, read(t, testsFile)) {
		t.Errorf("%s: there is no metric %s", testsFile, name)
	}
}

// An increase is extrapolated: a whole number must be made of it before it is
// compared with one.
func TestNoFractionsAreCompared(t *testing.T) {
	for _, a := range alerts(t) {
		if strings.Count(a.Expr, "increase(") != strings.Count(a.Expr, "round(increase(") {
			t.Errorf("%s compares an increase that is not rounded:\n%s", a.Alert, a.Expr)
		}
	}
}

// Each alert has a test in which it fires and one in which it does not, and one
// between the scrapes.
func TestEachAlertIsTested(t *testing.T) {
	var file struct {
		Tests []struct {
			Asserts []struct {
				Time   string `yaml:"eval_time"`
				Alert  string `yaml:"alertname"`
				Alerts []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	decode(t, testsFile, &file)
	fires, silent, between := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, a := range test.Asserts {
			if len(a.Alerts) > 0 {
				fires[a.Alert] = true
				between[a.Alert] = between[a.Alert] || strings.HasSuffix(a.Time, "m30s")
			} else {
				silent[a.Alert] = true
			}
		}
	}
	var all []string
	for _, a := range alerts(t) {
		if slices.Contains(all, a.Alert) {
			t.Errorf("there are two alerts %s", a.Alert)
		}
		all = append(all, a.Alert)
		if !fires[a.Alert] || !silent[a.Alert] || !between[a.Alert] {
			t.Errorf("%s: fires in a test: %v, between scrapes: %v; is silent in one: %v", a.Alert, fires[a.Alert], between[a.Alert], silent[a.Alert])
		}
	}
}
