package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/trial"
	"github.com/kconsume/kconsume/plugin/host"
)

// script is a handler's file that starts the test binary as the probe handler.
func script(t *testing.T, path string, mode os.FileMode) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, fmt.Sprintf("#!/bin/sh\n%s=handler exec '%s'\n", roleEnv, exe), mode)
	if err := os.Chmod(path, mode); err != nil { // whatever the umask took away
		t.Fatal(err)
	}
	return path
}

// trusted is a directory in which a handler may be found by its name: one that
// nobody else can write to, nor to what is above it.
func trusted(t *testing.T) string {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, above := range []string{".", home} {
		dir, err := os.MkdirTemp(above, "kconsume-handlers-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
		if dir, err = filepath.Abs(dir); err != nil {
			t.Fatal(err)
		}
		if err = host.Check(script(t, filepath.Join(dir, "x"), 0o755), host.TrustStrict, ""); err == nil {
			return dir
		}
		t.Log(err)
	}
	t.Fatal("neither this checkout nor the home directory is one that only its owner can write to")
	return ""
}

func TestPluginList(t *testing.T) {
	first, second := trusted(t), trusted(t)
	probe := script(t, filepath.Join(first, host.Prefix+"probe"), 0o755)
	shadowed := script(t, filepath.Join(second, host.Prefix+"probe"), 0o755)
	open := script(t, filepath.Join(second, host.Prefix+"open"), 0o777)
	broken := writeFile(t, filepath.Join(second, host.Prefix+"text"), "text", 0o755)
	if err := os.Mkdir(filepath.Join(second, host.Prefix+"dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := newShell(t)
	dirs := []string{"--handler-dir", first, "--handler-dir", "/nowhere", "--handler-dir", second}
	r := s.run(t, append([]string{"plugin", "list", "-o", "json", "--inspect"}, dirs...)...)
	got := decode[[]listedHandler](t, r.stdout)
	if r.code != 0 || r.stderr != "" || len(got) != 5 {
		t.Fatalf("%+v", r)
	}
	if want := (listedHandler{Name: "probe", Path: probe, Version: "v7", Trusted: true}); !reflect.DeepEqual(got[0], want) {
		t.Errorf("%+v", got[0])
	}
	for _, h := range got[1:] {
		var trusted bool
		var problem, taken string
		switch h.Path {
		case shadowed:
			trusted, taken = true, probe
		case open:
			problem = "can be written to by others"
		case broken:
			trusted, problem = true, "neither a program for this machine nor a script"
		default:
			problem = "it is a directory"
		}
		if h.Trusted != trusted || h.Shadowed != taken || !strings.Contains(strings.Join(h.Problems, ""), problem) || (problem == "") != (len(h.Problems) == 0) {
			t.Errorf("%+v", h)
		}
	}
	r = s.run(t, append([]string{"plugin", "list"}, dirs...)...)
	lines := strings.Split(r.stdout, "\n")
	if r.code != 0 || len(lines) != 7 || !strings.Contains(lines[1], " - ") || !strings.Contains(lines[1], " ok ") || !strings.HasSuffix(lines[1], " yes") || !strings.Contains(r.stdout, "no: "+probe) {
		t.Errorf("%+v", r)
	}
	r = s.run(t, append([]string{"plugin", "list", "-o", "jsonl"}, dirs...)...)
	if r.code != 0 || strings.Count(r.stdout, "\n") != 5 || strings.Count(r.stdout, "{\"name\"") != 5 {
		t.Errorf("%+v", r)
	}
	r = s.run(t, "plugin", "list", "--handler-dir", "/nowhere")
	if r.code != 0 || r.stdout != "no handler in /nowhere: install one as kconsume-handler-NAME\n" {
		t.Errorf("%+v", r)
	}
	r = s.run(t, "plugin", "list", "-o", "json", "--handler-dir", "/nowhere")
	if r.code != 0 || r.stdout != "[]\n" {
		t.Errorf("%+v", r)
	}
	r = s.run(t, "plugin", "list", "--handler-dir", probe)
	if r.code != 0 || !strings.Contains(r.stderr, "warning: list handlers: ") {
		t.Errorf("%+v", r)
	}
}

func TestPluginInspect(t *testing.T) {
	dir := trusted(t)
	path := script(t, filepath.Join(dir, host.Prefix+"probe"), 0o755)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := newShell(t)
	r := s.run(t, "plugin", "inspect", "probe", "-o", "json", "--handler-dir", dir) // flags behind the argument count
	got := decode[inspectedHandler](t, r.stdout)
	if r.code != 0 || r.stderr != "" || got.Name != "probe" || got.Version != "v7" || got.SDK != "go/1" || got.Path != path ||
		got.SHA256 != fmt.Sprintf("%x", sha256.Sum256(text)) || got.HelloMS <= 0 || got.BeatsMayWait || got.Topics == nil {
		t.Errorf("%+v", r)
	}
	if len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "it is a script") {
		t.Errorf("%q", got.Notes)
	}
	open := script(t, filepath.Join(dir, "open"), 0o777)
	r = s.run(t, "plugin", "inspect", "--handler-sha256", got.SHA256, open)
	for _, w := range []string{"name              probe\n", "sha256            " + got.SHA256, "by name it would be refused: ", "heartbeats        answered while it works"} {
		if !strings.Contains(r.stdout, w) {
			t.Errorf("%+v does not say %q", r, w)
		}
	}
	if entries, err := os.ReadDir(s.dir); err != nil || len(entries) > 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestPluginBadInput(t *testing.T) {
	s := newShell(t)
	probe := script(t, filepath.Join(s.dir, "probe"), 0o755)
	records := writeFile(t, filepath.Join(s.dir, "r.jsonl"), `{"value":"ok"}`+"\n", 0o600)
	wrong := writeFile(t, filepath.Join(s.dir, "wrong.jsonl"), "{\"value\":\"ok\"}\n{\"vaule\":\"ok\"}\n", 0o600)
	empty := writeFile(t, filepath.Join(s.dir, "empty.jsonl"), "\n", 0o600)
	test := func(more ...string) []string {
		return append([]string{"plugin", "test", "--handler", probe, "--input", records}, more...)
	}
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no subcommand", []string{"plugin"}, 64, "give one of list, inspect, test, new"},
		{"unknown subcommand", []string{"plugin", "tst"}, 64, "did you mean test?"},
		{"inspect nothing", []string{"plugin", "inspect"}, 64, "missing argument: kconsume plugin inspect: give FILE|NAME"},
		{"inspect two", []string{"plugin", "inspect", probe, "b"}, 64, `stray argument "b": kconsume plugin inspect: it takes FILE|NAME: remove it`},
		{"unknown flag behind", []string{"plugin", "inspect", probe, "--outptu", "json"}, 64, "unknown flag --outptu: kconsume plugin inspect: did you mean --output?"},
		{"flag of another command behind", []string{"plugin", "inspect", probe, "--input", "x"}, 64, "unknown flag --input"},
		{"no value behind", []string{"plugin", "inspect", probe, "-o"}, 64, "has no value"},
		{"argument of list", []string{"plugin", "list", "x"}, 64, "stray argument"},
		{"no such name", []string{"plugin", "inspect", "nope"}, 78, `find handler "nope"`},
		{"no such file", []string{"plugin", "inspect", "./nope"}, 78, "no such file"},
		{"not executable", []string{"plugin", "inspect", records}, 78, "not executable"},
		{"no handler", []string{"plugin", "inspect", "/bin/true"}, 1, "is it a kconsume handler?"},
		{"another pin", []string{"plugin", "inspect", probe, "--handler-sha256", strings.Repeat("0", 64)}, 78, "not the pinned"},

		{"nothing to test", []string{"plugin", "test"}, 64, "--handler, --input"},
		{"update nothing", test("--update"), 64, "give --expect FILE too"},
		{"no input", replaced(test(), "--input", "/nope"), 78, "open records: open /nope: no such file or directory: check --input"},
		{"a directory for input", replaced(test(), "--input", s.dir), 78, "is a directory"},
		{"empty input", replaced(test(), "--input", empty), 78, "it is empty"},
		{"wrong input", replaced(test(), "--input", wrong), 78, `wrong.jsonl:2:2: unknown name "vaule"`},
		{"no expectations", test("--expect", "/nope"), 78, "check --expect, or write the file with --update"},
		{"wrong expectations", test("--expect", wrong), 78, `wrong.jsonl:1: unknown name "value"`},
		{"settings", test("--retry", "5s,5s"), 78, "both 5s"},
		{"a topic that cannot be", test("--topic", "no topic"), 78, `"no topic"`},
		{"handler", replaced(test(), "--handler", "/bin/true"), 1, "is it a kconsume handler?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := s.run(t, c.args...)
			if r.code != c.code || r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "kconsume: ") || !strings.Contains(r.stderr, c.want) {
				t.Errorf("code %d, want %d, %q\nstdout %q\nstderr %q", r.code, c.code, c.want, r.stdout, r.stderr)
			}
		})
	}
}

func TestPluginHelpBehindTheArgument(t *testing.T) {
	s := newShell(t)
	for _, args := range [][]string{{"--help"}, {"x", "--help"}, {"x", "-h"}} {
		r := s.run(t, append([]string{"plugin", "inspect"}, args...)...)
		if r.code != 0 || r.stderr != "" || !strings.Contains(r.stdout, "kconsume plugin inspect [command options] FILE|NAME") || !strings.Contains(r.stdout, "--handler-dir") {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// sampleTrial are the arguments of a trial of the sample handler, which is in
// the program itself, with records that end in each way but done: it has no
// gateway to charge at.
func sampleTrial(t *testing.T, s *shell, more ...string) []string {
	t.Helper()
	good := `{\"order_id\":\"1001\",\"customer\":\"anna\",\"currency\":\"EUR\",\"total_cents\":500,\"items\":[{\"sku\":\"pen\",\"quantity\":1,\"price_cents\":500}]}`
	input := writeFile(t, filepath.Join(s.dir, "r.jsonl"), fmt.Sprintf(`{"topic":"orders","offset":5,"timestamp":1767225600000,"key":"anna","value":"%s"}
{"value":"two mugs, please"}
{"value":"{\"order_id\":\"1\"}","key":{"base64":"/w=="}}
`, good), 0o600)
	return append([]string{"plugin", "test", "--handler", binary, "--handler-arg", "dev-handler", "--input", input}, more...)
}

func TestPluginTest(t *testing.T) {
	s := newShell(t)
	r := s.run(t, sampleTrial(t, s)...)
	lines := strings.Split(r.stdout, "\n")
	if r.code != 0 || len(lines) != 6 {
		t.Fatalf("%+v", r)
	}
	for i, want := range []string{
		"#  RECORD ", "1  orders/0/5@1767225600000  → retry.5s at +5s (transient) ", "2  input/0/1@-1 ", "3  input/0/2@-1 ",
		"dev-orders@devel: 3 records: 1 retry, 2 dlq",
	} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("%q does not begin with %q", lines[i], want)
		}
	}
	if !strings.Contains(lines[2], "→ dlq (poison)") || !strings.Contains(lines[3], "→ dlq (permanent)") || !strings.Contains(lines[3], "[validation]") {
		t.Errorf("%s", r.stdout)
	}
	r = s.run(t, sampleTrial(t, s, "--until-settled", "--retry", "1s,1m", "--max-attempts", "4", "--topic", "t")...)
	if r.code != 0 || !strings.Contains(r.stdout, "  → retry.1s at +1s → retry.1m at +1m → retry.1m at +1m → dlq (transient)  ") || !strings.Contains(r.stdout, "  t/0/1@-1  ") {
		t.Errorf("%+v", r)
	}
}

func TestPluginTestExpect(t *testing.T) {
	s := newShell(t)
	expect := filepath.Join(s.dir, "e.jsonl")
	args := sampleTrial(t, s, "--expect", expect)
	if r := s.run(t, append(args, "--update")...); r.code != 0 || r.stderr != "" {
		t.Fatalf("%+v", r)
	}
	written, err := os.ReadFile(expect)
	want := `{"id":"orders/0/5@1767225600000","outcome":"retry","stage":"retry.5s","delay":"5s","class":"transient","code":"0"}
{"id":"input/0/1@-1","outcome":"dlq","class":"poison"}
{"id":"input/0/2@-1","outcome":"dlq","class":"permanent","code":"validation"}
`
	if err != nil || string(written) != want {
		t.Fatalf("%v, %s", err, written)
	}
	if r := s.run(t, args...); r.code != 0 || r.stderr != "" || strings.Contains(r.stdout, "\n- ") {
		t.Errorf("%+v", r)
	}
	writeFile(t, expect, strings.Replace(want, `"poison"`, `"permanent","message":"x"`, 1)+`{"record":9}`+"\n", 0o600)
	r := s.run(t, args...)
	diff := "record 2 input/0/1@-1 (" + expect + ":2)\n- class: \"permanent\"\n+ class: \"poison\"\n- message: \"x\"\n+ message: "
	if r.code != 1 || !strings.Contains(r.stdout, diff) || !strings.Contains(r.stdout, "record 9: there is no such record ("+expect+":4)\n- {") ||
		!strings.Contains(r.stderr, "2 of 3 records differ from "+expect) || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("%+v", r)
	}
	r = s.run(t, append(args, "-o", "json")...)
	got := decode[verdictJSON](t, r.stdout)
	if r.code != 1 || len(got.Results) != 3 || got.Counts["dlq"] != 2 || got.Handler != "dev-orders@devel" ||
		!slices.ContainsFunc(got.Differences, func(d trial.Difference) bool { return d.Field == "class" && string(d.Actual) == `"poison"` }) {
		t.Errorf("%+v", r)
	}
	r = s.run(t, append(args, "-o", "jsonl")...)
	if r.code != 1 || strings.Count(r.stdout, "\n") != 3 || !strings.Contains(r.stderr, "+ class: ") {
		t.Errorf("%+v", r)
	}
	// What is printed can be expected.
	writeFile(t, expect, r.stdout, 0o600)
	if r := s.run(t, args...); r.code != 0 {
		t.Errorf("%+v", r)
	}
}

// The file of a run says what a trial does, too.
func TestPluginTestSettings(t *testing.T) {
	s := newShell(t)
	config := writeFile(t, filepath.Join(s.dir, "k.yaml"), "brokers: 127.0.0.1:1\ngroup: billing\ntopic: orders\nretry: [2s]\nunknown-errors: transient\nmetrics: ''\n", 0o600)
	r := s.run(t, sampleTrial(t, s, "--config", config)...)
	if r.code != 0 || !strings.Contains(r.stdout, "→ retry.2s at +2s (transient)") || !strings.Contains(r.stdout, "orders/0/1@-1") {
		t.Errorf("%+v", r)
	}
}

// A record that ends the handler, with nothing to compare it with, is no success.
func TestPluginTestPaused(t *testing.T) {
	if err := paused([]trial.Line{{Record: 1, Outcome: "dlq"}, {Record: 2, Outcome: "done"}}); err != nil {
		t.Error(err)
	}
	err := paused([]trial.Line{{Record: 1, Outcome: "done"}, {Record: 2, Outcome: "pause"}})
	if exitCode(err) != exitFailed || !strings.Contains(err.Error(), "process ends of record 2") {
		t.Error(err)
	}
}

// What a handler says cannot move the cursor of whoever reads it.
func TestPrintable(t *testing.T) {
	if got := printable("a\x1b[31m\n\xff é\u202e\tz"); got != `a\x1b[31m\n\xff é\u202e\tz` {
		t.Errorf("%q", got)
	}
}
