package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The packages' example is settings that are accepted, each commented out.
func TestPackagedExampleIsAccepted(t *testing.T) {
	example, err := os.ReadFile("../../packaging/examples/example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	setting := regexp.MustCompile(`(?m)^#([a-z-]+): `)
	s := newShell(t)
	file := filepath.Join(s.dir, "example.yaml")
	if err := os.WriteFile(file, setting.ReplaceAll(example, []byte("$1: ")), 0o644); err != nil {
		t.Fatal(err)
	}
	got := s.run(t, "config", "show", "--origin", "--config", file)
	if got.code != 0 {
		t.Fatalf("%+v", got)
	}
	keys := setting.FindAllStringSubmatch(string(example), -1)
	if len(keys) < 4 {
		t.Fatalf("only %d settings are found", len(keys))
	}
	for _, key := range keys {
		if !regexp.MustCompile(`(?m)^` + key[1] + ` .* file `).MatchString(got.stdout) {
			t.Errorf("%s does not come from the file", key[1])
		}
	}
	for line := range strings.Lines(string(example)) {
		if !strings.HasPrefix(line, "#") && strings.TrimSpace(line) != "" {
			t.Errorf("not commented out: %s", line)
		}
	}
}
