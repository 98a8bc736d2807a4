package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// completeInBash is what bash would offer behind the words, the last of which
// is being typed. Readline makes a word of "=".
func completeInBash(t *testing.T, script string, words ...string) []string {
	t.Helper()
	const evaluate = `set -u; source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
spec=$(complete -p kconsume); [[ $spec == 'complete -F _kconsume kconsume' ]] || { echo "spec: $spec"; exit 1; }
_kconsume
((${#COMPREPLY[@]})) && printf '%s\n' "${COMPREPLY[@]}" || true`
	cmd := exec.Command("bash", append([]string{"--norc", "-c", evaluate, "bash", script}, words...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", words, err, out)
	}
	return strings.Fields(string(out))
}

func TestCompletionInBash(t *testing.T) {
	s := newShell(t)
	got := s.run(t, "completion", "bash")
	if got.code != 0 || got.stderr != "" {
		t.Fatalf("%+v", got)
	}
	script := filepath.Join(t.TempDir(), "kconsume")
	if err := os.WriteFile(script, []byte(got.stdout), 0o644); err != nil {
		t.Fatal(err)
	}
	files := t.TempDir()
	for _, name := range []string{"one.yaml", "two.yaml"} {
		if err := os.WriteFile(filepath.Join(files, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(files, "dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ line, want string }{
		{"kconsume d", "dev dlq"},
		{"kconsume dlq re", "replay resolve restore"},
		{"kconsume --log-level ", "debug info warn error"},
		{"kconsume --log-level debug vers", "version"},
		{"kconsume run --ord", "--order"},
		{"kconsume run --order ", "key partition none"},
		{"kconsume run --order p", "partition"},
		{"kconsume run --order = n", "none"},
		{"kconsume run --order =", "key partition none"},
		{"kconsume run --create-topics = ", "true false"},
		{"kconsume run --create-topics --isol", "--isolation"},
		{"kconsume run --group dlq --dlq-re", "--dlq-retention"}, // a value is no command
		{"kconsume run --group ", ""},
		{"kconsume run --config " + files + "/o", files + "/one.yaml"},
		{"kconsume run --state-dir " + files + "/", files + "/dir"},
		{"kconsume dlq list --limit 3 -o ", "table json jsonl"},
		{"kconsume status -o ", "table json"},
		{"kconsume dlq list orders.dlq --stat", "--status"},
		{"kconsume plugin new --lang ", "go python node java"},
		{"kconsume completion ", "bash zsh fish"},
		{"kconsume man kconsume.", "kconsume.1 kconsume.yaml.5"},
		{"kconsume version ", ""},
	} {
		words := strings.Split(c.line, " ")
		if got := strings.Join(completeInBash(t, script, words...), " "); got != c.want {
			t.Errorf("%q: %q; want %q", c.line, got, c.want)
		}
	}
}

// Whatever the program knows, a shell offers: nothing is written twice.
func TestCompletionKnowsEverything(t *testing.T) {
	s := newShell(t)
	script := filepath.Join(t.TempDir(), "kconsume")
	if err := os.WriteFile(script, []byte(s.run(t, "completion", "bash").stdout), 0o644); err != nil {
		t.Fatal(err)
	}
	check := func(path []string, c command) {
		var flags []string
		for _, o := range c.options() {
			flags = append(flags, "--"+o.Name)
		}
		got := completeInBash(t, script, slices.Concat([]string{"kconsume"}, path, []string{"--"})...)
		for _, f := range flags {
			if !slices.Contains(got, f) {
				t.Errorf("%q: %s is not offered", path, f)
			}
		}
		help := s.run(t, append(path, "--help")...).stdout
		for _, f := range got {
			if !strings.Contains(help, f) {
				t.Errorf("%q: %s is offered and not in the help", path, f)
			}
		}
	}
	for _, c := range commands() {
		switch {
		case c.hidden:
			if got := completeInBash(t, script, "kconsume", c.name); len(got) > 0 {
				t.Errorf("the hidden %s is offered: %q", c.name, got)
			}
		case len(c.sub) == 0:
			check([]string{c.name}, c)
		}
		for _, sub := range c.sub {
			check([]string{c.name, sub.name}, sub)
		}
	}
}
