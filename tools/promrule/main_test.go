package main

import (
	"os"
	"testing"
)

func TestWrap(t *testing.T) {
	const rules = "# Rules.\ngroups:\n  - name: a\n\n    rules: |\n      x\n"
	if got, want := wrap(rules), head+"  # Rules.\n  groups:\n    - name: a\n\n      rules: |\n        x\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// What is shipped for Kubernetes is what is shipped for Prometheus.
func TestGeneratedIsCurrent(t *testing.T) {
	rules, err := os.ReadFile("../../packaging/prometheus/kconsume.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	object, err := os.ReadFile("../../packaging/kubernetes/alerts/prometheusrule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if string(object) != wrap(string(rules)) {
		t.Error("packaging/kubernetes/alerts/prometheusrule.yaml is old: make generate")
	}
}
