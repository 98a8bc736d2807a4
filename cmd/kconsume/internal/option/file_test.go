package option

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFileRefusals(t *testing.T) {
	for _, c := range []struct {
		name, file string
		want       []string
	}{
		{"unknown key", "group: g\nhandler-timeot: 5s\n", []string{`unknown key "handler-timeot": k.yaml:2: did you mean handler-timeout?`}},
		{"underscores", "handler_timeout: 5s\n", []string{"did you mean handler-timeout?"}},
		{"a key like no other", "# one\n\nzzzzzzzz: 1\n", []string{`"zzzzzzzz": k.yaml:3: see `}},
		{"each unknown key", "grup: g\ntopc: t\n", []string{"k.yaml:1: did you mean group?", "k.yaml:2: did you mean topic?"}},
		{"what the file cannot say", "config: x\n", []string{`unknown key "config": k.yaml:1`}},
		{"twice", "group: a\ntopic: t\ngroup: b\n", []string{"key group again: k.yaml:3: it is on line 1"}},
		{"a list for one value", "group: [a, b]\n", []string{"group is a list: k.yaml:1"}},
		{"keys below a key", "handler:\n  name: x\n", []string{"key handler holds keys of its own: k.yaml:1"}},
		{"a list of lists", "topic:\n- [a]\n", []string{"key topic holds more than texts: k.yaml:2"}},
		{"not a mapping", "- a\n", []string{"k.yaml:1"}},
		{"a text", "run\n", []string{"k.yaml:1"}},
		{"two documents", "group: a\n---\ngroup: b\n", []string{"more than one document: k.yaml"}},
		{"not YAML", "group: a\n\ttopic: t\n", []string{"): k.yaml:2: mend it"}},
		{"merge keys", "<<: {group: a}\n", []string{`unknown key "<<": k.yaml:1`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, errs := ParseFile("k.yaml", []byte(c.file), Table())
			if len(errs) != len(c.want) {
				t.Fatalf("%v", errs)
			}
			for i, w := range c.want {
				if !strings.Contains(errs[i].Error(), w) || strings.Contains(errs[i].Error(), "\n") {
					t.Errorf("%q does not say %q", errs[i], w)
				}
			}
		})
	}
}

func TestFilesThatSayNothing(t *testing.T) {
	for _, text := range []string{"", "# only a comment\n", "---\n", "~\n", "{}\n"} {
		if f, errs := ParseFile("k.yaml", []byte(text), Table()); len(errs) > 0 || len(f.entries) > 0 {
			t.Errorf("%q: %v, %v", text, f, errs)
		}
	}
}

func TestAliases(t *testing.T) {
	f := parsed(t, "group: &g billing\nclient-id: *g\ntopic: [*g, x]\n")
	s, errs := Resolve(Table(), Sources{Env: env(nil), File: f})
	if len(errs) > 0 || s.Text("client-id") != "billing" || strings.Join(s.List("topic"), " ") != "billing x" {
		t.Errorf("%q %q %v", s.Text("client-id"), s.List("topic"), errs)
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large.yaml")
	if err := os.WriteFile(large, []byte("#"+strings.Repeat("x", maxFile)), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none.yaml"): "no such file",
		dir:                             "is a directory",
		large:                           "larger than 1MiB",
	} {
		_, errs := ReadFile(path, Table())
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), want) || !strings.Contains(errs[0].Error(), path) {
			t.Errorf("%s: %v", path, errs)
		}
	}
}

// Whatever stands in the file and the environment, there is a value or one
// line that says what is wrong.
func FuzzResolve(f *testing.F) {
	f.Add("group: g\nretry: [1s, 2s]\n", "5s,30s", "a=b,c\nd")
	f.Add("a: &x [*x]\n", ",", "\n")
	f.Add("handler-arg: {a: b}\ngroup: !!binary aGk=\n", "5x", "")
	f.Fuzz(func(t *testing.T, file, retry, arg string) {
		parsed, errs := ParseFile("k.yaml", []byte(file), Table())
		s, more := Resolve(Table(), Sources{
			Flags: map[string][]string{"max-buffer": {retry}},
			Env:   env(map[string]string{"KCONSUME_RETRY": retry, "KCONSUME_HANDLER_ARG": arg}),
			File:  parsed,
		})
		for _, e := range append(errs, more...) {
			if e.Error() == "" {
				t.Error("an empty error")
			}
		}
		for _, set := range s.Settings() {
			if set.Value == nil {
				t.Errorf("%s has no value", set.Name)
			}
		}
	})
}
