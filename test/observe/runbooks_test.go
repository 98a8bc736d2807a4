package observe

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const runbooks = root + "/docs/runbooks"

// pages are the names of the runbooks, without the index.
func pages(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(runbooks + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".md"); name != "README" {
			names = append(names, name)
		}
	}
	return names
}

func TestEachAlertHasItsPage(t *testing.T) {
	index := read(t, runbooks+"/README.md")
	names := exported(t)
	var all []string
	for _, a := range alerts(t) {
		all = append(all, a.Alert)
		if a.Annotations["runbook"] != "docs/runbooks/"+a.Alert+".md" || a.Annotations["summary"] == "" {
			t.Errorf("%s: annotations %v", a.Alert, a.Annotations)
			continue
		}
		page := read(t, filepath.Join(runbooks, a.Alert+".md"))
		at := 0
		for _, part := range []string{"# " + a.Alert + "\n", "\n## Meaning\n\n", "\n## How to confirm\n\n", "\n## What to do\n\n", "\n## Over when\n\n"} {
			i := strings.Index(page[at:], part)
			if i < 0 {
				t.Fatalf("%s: no %q, in its order", a.Alert, part)
			}
			at += i
		}
		for _, name := range unknownMetrics(names, page) {
			t.Errorf("%s: there is no metric %s", a.Alert, name)
		}
		for _, link := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(page, -1) {
			if _, err := os.Stat(filepath.Join(runbooks, link[1])); err != nil {
				t.Errorf("%s: %v", a.Alert, err)
			}
		}
		if !strings.Contains(index, "("+a.Alert+".md)") {
			t.Errorf("the index does not name %s", a.Alert)
		}
	}
	for _, name := range pages(t) {
		if !slices.Contains(all, name) {
			t.Errorf("page %s is no alert's", name)
		}
	}
}

// commandsOf are the command lines of a page.
func commandsOf(t *testing.T, page string) (lines []string) {
	t.Helper()
	inside := false
	for line := range strings.Lines(read(t, filepath.Join(runbooks, page+".md"))) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			inside = !inside
		case inside && line != "":
			lines = append(lines, line)
		}
	}
	return lines
}
