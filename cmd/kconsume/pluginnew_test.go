package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/scaffold"
)

// The project for Go builds and passes its own test, and its records come out
// as it says. It is built as a part of this module, so that nothing has to be
// fetched; test/newproject builds it, and those for the other languages, as a
// person does.
func TestPluginNewGo(t *testing.T) {
	s := newShell(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	r := s.run(t, "plugin", "new", "order-mails", "--lang", "go", "--sdk", root)
	if r.code != 0 || r.stderr != "" || !strings.Contains(r.stdout, "make -C ./order-mails test") {
		t.Fatalf("%+v", r)
	}
	project := filepath.Join(s.dir, "order-mails")
	here := packageOf(t, project, "main.go", "main_test.go")
	built := filepath.Join(project, "build", "kconsume-handler-order-mails")
	for _, args := range [][]string{{"vet", here}, {"test", here}, {"build", "-o", built, here}} {
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	r = s.run(t, "plugin", "test", "--handler", built, "--input", filepath.Join(project, "records.jsonl"), "--expect", filepath.Join(project, "expect.jsonl"))
	if r.code != 0 || r.stderr != "" || !strings.Contains(r.stdout, "order-mails@dev: 5 records: 1 done, 1 dropped, 1 retry, 2 dlq") {
		t.Errorf("%+v", r)
	}
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile(filepath.Join(project, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if want := goLine(gomod); want == "" || goLine(own) != want {
		t.Errorf("the project's %q, the SDK's %q", goLine(own), want)
	}
}

// packageOf is a package of this module with copies of a project's files.
func packageOf(t *testing.T, project string, files ...string) string {
	t.Helper()
	if err := os.MkdirAll("testdata", 0o755); err != nil { // which ./... leaves out
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("testdata", "project-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
		_ = os.Remove("testdata") // unless there is more in it
	})
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(project, name))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, name), string(text), 0o600)
	}
	return "./" + dir
}

// goLine is the line of a go.mod that says the language's version.
func goLine(mod []byte) string {
	for _, line := range strings.Split(string(mod), "\n") {
		if strings.HasPrefix(line, "go ") {
			return line
		}
	}
	return ""
}

func TestPluginNewBadInput(t *testing.T) {
	s := newShell(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(s.dir, "full")
	if err := os.Mkdir(full, 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(full, "x"), "", 0o600)
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no name", []string{"--lang", "go"}, 64, "give NAME"},
		{"no language", []string{"orders"}, 64, "--lang"},
		{"unknown language", []string{"orders", "--lang", "cobol"}, 78, "write one of go, python, node, java"},
		{"bad name", []string{"Orders", "--lang", "go"}, 64, `bad name "Orders": a handler is named with small letters`},
		{"not empty", []string{"orders", "--lang", "go", "--dir", "full", "--sdk", root}, 78, "it is not empty"},
		{"no SDK there", []string{"orders", "--lang", "java", "--sdk", full}, 78, "no handler/pom.xml in " + full},
		{"two names", []string{"orders", "mails", "--lang", "go"}, 64, `stray argument "mails"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := s.run(t, append([]string{"plugin", "new"}, c.args...)...)
			if r.code != c.code || r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, c.want) {
				t.Errorf("code %d, want %d, %q\n%+v", r.code, c.code, c.want, r)
			}
		})
	}
	if entries, err := os.ReadDir(s.dir); err != nil || len(entries) != 1 {
		t.Errorf("something was made: %v, %v", entries, err)
	}
}

// Where the SDK comes from: a release has it in the registries, any other build
// needs one that is here.
func TestTakeSDK(t *testing.T) {
	here := t.TempDir()
	if err := os.Mkdir(filepath.Join(here, "handler"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(here, "handler", "pom.xml"), "", 0o600)
	for _, c := range []struct {
		dir, version, installed string
		sdk, want, problem      string
	}{
		{"", "v1.2.3", here, "", "1.2.3", ""},
		{"", "1.2.3", here, "", "1.2.3", ""},
		{here, "v1.2.3", "/nowhere", here, "1.2.3", ""},
		{"", "devel", here, here, "", ""},
		{"", "v1.2.3-rc1", here, here, "", ""},
		{"", "v1.2.4-0.20260101000000-abcdefabcdef+dirty", "/nowhere", "", "", "give --sdk DIR"},
		{"", "devel", "/nowhere", "", "", "give --sdk DIR"},
		{"/nowhere", "devel", here, "", "", "no handler/pom.xml in /nowhere"},
	} {
		p := scaffold.Project{Lang: "java"}
		err := takeSDK(&p, c.dir, c.version, c.installed)
		if (err != nil) != (c.problem != "") || err != nil && !strings.Contains(err.Error(), c.problem) || err == nil && (p.SDK != c.sdk || p.Version != c.want) {
			t.Errorf("%+v: %+v, %v", c, p, err)
		}
	}
}
