package scaffold

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/admin/export"
)

func languages() []string { return []string{"go", "python", "node", "java"} }

func TestCheckName(t *testing.T) {
	for _, good := range []string{"a", "orders", "order-mails", "o2", "a-2-c", strings.Repeat("a", 40)} {
		if err := CheckName(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "Orders", "2orders", "-a", "a-", "a--b", "a_b", "a.b", "a/b", "..", "a b", "é", "a\n", strings.Repeat("a", 41)} {
		if err := CheckName(bad); err == nil || !strings.Contains(err.Error(), "begins with a letter") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestWrite(t *testing.T) {
	for _, lang := range languages() {
		here := t.TempDir()
		pom := "<artifactId>kconsume-handler</artifactId>\n<version>1.0.0-x</version>"
		if err := os.MkdirAll(filepath.Join(here, "handler"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(here, "handler", "pom.xml"), []byte(pom), 0o600); err != nil {
			t.Fatal(err)
		}
		for sdk, version := range map[string]string{"": "7.8.9", here: ""} {
			p := Project{Name: "order-mails", Lang: lang, Dir: filepath.Join(t.TempDir(), "new", "project"), SDK: sdk, Version: version}
			if err := Write(p); err != nil {
				t.Fatal(err)
			}
			seen := false
			err := filepath.WalkDir(p.Dir, func(path string, d os.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				text, err := os.ReadFile(path)
				for _, left := range []string{"{{" + ".", "{{if", "<no value>"} {
					if bytes.Contains(text, []byte(left)) {
						t.Errorf("%s holds %q", path, left)
					}
				}
				seen = seen || bytes.Contains(text, []byte(sdk+version))
				if strings.HasSuffix(path, ".tmpl") || len(text) == 0 || text[len(text)-1] != '\n' {
					t.Errorf("%s: %d bytes", path, len(text))
				}
				return err
			})
			if err != nil || !seen {
				t.Errorf("%s with %s%s: %v", lang, sdk, version, err)
			}
			for _, name := range []string{p.File(), "Makefile", "README.md", ".gitignore", "records.jsonl", "expect.jsonl"} {
				if _, err := os.Stat(filepath.Join(p.Dir, name)); err != nil {
					t.Error(err)
				}
			}
			readRecords(t, filepath.Join(p.Dir, "records.jsonl"))
		}
	}
}

func readRecords(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := export.NewDecoder(f, path)
	for range 5 {
		if r, err := d.Next(); err != nil || r.Topic != "order-mails" {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

func TestWriteChangesNothingThatIsThere(t *testing.T) {
	p := Project{Name: "a", Lang: "go", Dir: t.TempDir(), Version: "1.2.3"}
	if err := os.WriteFile(filepath.Join(p.Dir, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Write(p); err == nil || !strings.Contains(err.Error(), "it is not empty") {
		t.Error(err)
	}
	if entries, err := os.ReadDir(p.Dir); err != nil || len(entries) != 1 {
		t.Error(entries, err)
	}
	p.Dir = filepath.Join(p.Dir, "x") // a file
	if err := Write(p); err == nil {
		t.Error("a project in a file")
	}
	p.Dir, p.Lang = t.TempDir(), "cobol"
	if err := Write(p); err == nil || !strings.Contains(err.Error(), "cobol") {
		t.Error(err)
	}
	p.Dir, p.Lang, p.SDK = t.TempDir(), "java", t.TempDir()
	if err := Write(p); err == nil || !strings.Contains(err.Error(), "read the SDK's version") {
		t.Error(err)
	}
	p.SDK = ""
	p.Dir, p.Lang = t.TempDir(), "go" // an empty one is taken
	if err := Write(p); err != nil {
		t.Error(err)
	}
}

func TestFindSDK(t *testing.T) {
	root := t.TempDir()
	for _, f := range []string{"go/plugin/serve.go", "python/pyproject.toml", "checkout/plugins/sdk/node/package.json", "checkout/plugin/serve.go", "alone/handler/pom.xml", "with blank/handler/pom.xml"} {
		f = filepath.Join(root, f)
		if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ dir, lang, want, problem string }{
		{"", "go", "go", ""},
		{"", "python", "python", ""},
		{"", "java", "", "no handler/pom.xml in " + root},
		{"checkout", "go", "checkout", ""},
		{"checkout", "node", "checkout/plugins/sdk/node", ""},
		{"checkout", "python", "", "no pyproject.toml in "},
		{"alone", "java", "alone", ""},
		{"with blank", "java", "", "characters that have a meaning"},
		{"nowhere", "go", "", "name a checkout of kconsume"},
	} {
		got, err := FindSDK(filepath.Join(root, c.dir), c.lang)
		if c.problem != "" {
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%+v: %q, %v", c, got, err)
			}
			continue
		}
		if err != nil || got != filepath.Join(root, c.want) {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}
