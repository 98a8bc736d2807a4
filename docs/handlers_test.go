package docs_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// program is a Go program in a document.
var program = regexp.MustCompile("(?s)```go\n(package main\n.*?)```")

// The program that handlers/go.md begins with is one.
func TestGoHandlerBuilds(t *testing.T) {
	text, err := os.ReadFile("handlers/go.md")
	if err != nil {
		t.Fatal(err)
	}
	found := program.FindSubmatch(text)
	if found == nil {
		t.Fatal("no program in handlers/go.md")
	}
	if lines := strings.Count(string(found[1]), "\n"); lines > 25 {
		t.Errorf("it has %d lines: five minutes are soon over", lines)
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, found[1], 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "vet", file).CombinedOutput(); err != nil {
		t.Errorf("go vet: %v\n%s", err, out)
	}
}

// link is one to another document of ours.
var link = regexp.MustCompile(`\]\(([^):]+?)(#[a-z0-9-]*)?\)`)

// Documents link to files that exist.
func TestDocumentsLinkToFiles(t *testing.T) {
	links := 0
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".md" {
			return err
		}
		text, err := os.ReadFile(name)
		for _, l := range link.FindAllStringSubmatch(string(text), -1) {
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), l[1])); err != nil {
				t.Errorf("%s links to %s: %v", name, l[1], err)
			}
		}
		return err
	})
	if err != nil || links < 50 {
		t.Errorf("%d links were found: %v", links, err)
	}
}
