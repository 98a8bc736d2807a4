package plugin

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// verdicts.md has all the rules, in the order in which Classify asks them.
func TestRulesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/handlers/verdicts.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	_, table, _ := strings.Cut(string(text), "| rule |")
	for line := range strings.Lines(table) {
		if name, ok := strings.CutPrefix(line, "| `"); ok {
			name, _, _ = strings.Cut(name, "`")
			documented = append(documented, name)
		}
		if strings.TrimSpace(line) == "" {
			break
		}
	}
	rules := []string{RuleCancelled, ruleTimeout, ruleExplicit, ruleClassifier}
	for _, r := range builtin() {
		rules = append(rules, r.name)
	}
	rules = append(rules, rulePanic, RuleUnknown)
	if !slices.Equal(documented, rules) {
		t.Errorf("documented %q, want %q", documented, rules)
	}
}
