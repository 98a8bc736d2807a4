// Command promrule wraps a file of Prometheus rules as a PrometheusRule, the
// Kubernetes object of the Prometheus operator.
//
//	go -C tools run ./promrule < packaging/prometheus/kconsume.rules.yml > packaging/kubernetes/alerts/prometheusrule.yaml
package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// head says what the object is. The rules follow, two columns to the right.
const head = `# Generated from packaging/prometheus/kconsume.rules.yml by make generate.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: kconsume
spec:
`

func main() {
	rules, err := io.ReadAll(os.Stdin)
	if err == nil {
		_, err = io.WriteString(os.Stdout, wrap(string(rules)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "promrule:", err)
		os.Exit(1)
	}
}

// wrap moves every line of the rules to the right, which changes no YAML in
// block style, and so keeps their comments.
func wrap(rules string) string {
	var out strings.Builder
	out.WriteString(head)
	for line := range strings.Lines(rules) {
		if strings.TrimSpace(line) != "" {
			out.WriteString("  ")
		}
		out.WriteString(line)
	}
	return out.String()
}
