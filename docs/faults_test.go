// Package docs_test holds what the documents say to what there is.
package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// named is a test as FAULTS.md names it: its file and its function.
var named = regexp.MustCompile("`([^`:]+_test\\.go):([A-Za-z0-9_]+)`")

// FAULTS.md names only tests that exist, and none of its rows is without an
// outcome, or passes without a test.
func TestFaultsNameRealTests(t *testing.T) {
	text, err := os.ReadFile("FAULTS.md")
	if err != nil {
		t.Fatal(err)
	}
	functions := map[string][]string{}
	rows, tests := 0, 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || strings.TrimSpace(cells[len(cells)-1]) == "outcome" {
			continue
		}
		rows++
		what := strings.TrimSpace(cells[0])
		outcome, list := strings.TrimSpace(cells[len(cells)-1]), cells[len(cells)-2]
		found := named.FindAllStringSubmatch(list, -1)
		tests += len(found)
		if rest := strings.TrimSpace(named.ReplaceAllString(list, "")); rest != "" {
			t.Errorf("%q: %q is no test", what, rest)
		}
		passes := outcome == "passes" || strings.HasPrefix(outcome, "in part: ")
		if later := strings.HasPrefix(outcome, "later: "); passes == later || passes != (len(found) > 0) {
			t.Errorf("%q: outcome %q with %d tests", what, outcome, len(found))
		}
		for _, one := range found {
			file, name := one[1], one[2]
			if _, read := functions[file]; !read {
				functions[file] = testsOf(t, filepath.Join("..", filepath.FromSlash(file)))
			}
			if !slices.Contains(functions[file], name) {
				t.Errorf("%q: there is no %s in %s", what, name, file)
			}
		}
	}
	if rows < 60 || tests < 150 {
		t.Errorf("only %d rows with %d tests were read: the table has another form", rows, tests)
	}
	t.Logf("%d rows name %d tests in %d files", rows, tests, len(functions))
}

// testsOf are the tests and fuzz targets of a file.
func testsOf(t *testing.T, path string) (names []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Errorf("read %s: %v", path, err)
		return nil
	}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if ok && fn.Recv == nil && (strings.HasPrefix(fn.Name.Name, "Test") || strings.HasPrefix(fn.Name.Name, "Fuzz")) {
			names = append(names, fn.Name.Name)
		}
	}
	return names
}
