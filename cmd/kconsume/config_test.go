package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// A comma separates brokers, topics and tiers, and nothing else; flag,
// environment and file give the same.
func TestCommas(t *testing.T) {
	s := newShell(t)
	file := writeFile(t, filepath.Join(s.dir, "k.yaml"), `
brokers: [a:1, b:2]
group: g
topic: t
handler: probe
retry: [1s, 2s]
handler-arg: ['dsn=h1:1,h2:2']
handler-env: ['PGHOST=a,b']
`, 0o600)
	for _, c := range []struct {
		origin string
		args   []string
		env    []string
	}{
		{"flag", []string{"--brokers", "a:1,b:2", "--group", "g", "--topic", "t", "--handler", "probe", "--retry", "1s,2s", "--handler-arg", "dsn=h1:1,h2:2", "--handler-env", "PGHOST=a,b"}, nil},
		{"env", nil, []string{"KCONSUME_BROKERS=a:1,b:2", "KCONSUME_GROUP=g", "KCONSUME_TOPIC=t", "KCONSUME_HANDLER=probe", "KCONSUME_RETRY=1s,2s", "KCONSUME_HANDLER_ARG=dsn=h1:1,h2:2", "KCONSUME_HANDLER_ENV=PGHOST=a,b"}},
		{"file", []string{"--config", file}, nil},
	} {
		sh := &shell{append(s.env, c.env...), s.dir}
		r := sh.run(t, append([]string{"config", "show", "-o", "json"}, c.args...)...)
		if r.code != 0 {
			t.Fatalf("%s: %+v", c.origin, r)
		}
		got := decode[map[string]any](t, r.stdout)
		for name, want := range map[string][]any{
			"brokers": {"a:1", "b:2"}, "topic": {"t"}, "retry": {"1s", "2s"},
			"handler-arg": {"dsn=h1:1,h2:2"}, "handler-env": {"PGHOST=***"},
		} {
			if !reflect.DeepEqual(got[name], want) {
				t.Errorf("%s: %s is %v, want %v", c.origin, name, got[name], want)
			}
		}
		r = sh.run(t, append([]string{"config", "show", "--origin", "-o", "json"}, c.args...)...)
		with := decode[map[string]settingJSON](t, r.stdout)
		if with["handler-arg"].Origin != c.origin || with["order"].Origin != "default" || with["order"].Value != "key" {
			t.Errorf("%s: %+v, %+v", c.origin, with["handler-arg"], with["order"])
		}
	}
}

func TestEmptyRetry(t *testing.T) {
	s := newShell(t)
	withEnv := &shell{append(s.env, "KCONSUME_RETRY="), s.dir}
	for origin, r := range map[string]result{
		"flag": s.run(t, "config", "show", "--origin", "-o", "json", "--retry", ""),
		"env":  withEnv.run(t, "config", "show", "--origin", "-o", "json"),
	} {
		got := decode[map[string]settingJSON](t, r.stdout)
		if !reflect.DeepEqual(got["retry"].Value, []any{}) || got["retry"].Origin != origin {
			t.Errorf("%s: %+v", origin, got["retry"])
		}
		if got["max-attempts"].Value != 1.0 {
			t.Errorf("%s: max-attempts %v", origin, got["max-attempts"].Value)
		}
	}
}

func TestPrecedence(t *testing.T) {
	s := newShell(t, "KCONSUME_GROUP=of-env", "KCONSUME_CONCURRENCY=7")
	file := writeFile(t, filepath.Join(s.dir, "k.yaml"), "group: of-file\nconcurrency: 8\norder: none\n", 0o600)
	r := s.run(t, "--config", file, "config", "show", "--origin", "--group", "of-flag")
	for _, want := range []string{
		`group of-flag flag --group`, `concurrency 7 env KCONSUME_CONCURRENCY`, `order none file ` + file + `:3`, `retry [5s, 30s] default`,
	} {
		if !slices.ContainsFunc(strings.Split(r.stdout, "\n"), func(line string) bool { return strings.Join(strings.Fields(line), " ") == want }) {
			t.Errorf("no %q in\n%s", want, r.stdout)
		}
	}
}

// What the handler's process really gets.
func TestHandlerGetsItsArguments(t *testing.T) {
	_, brokers := newBroker(t, kfake.SeedTopics(1, "t"))
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"dsn=h1:1,h2:2", "--flag=a b", ""}
	yaml := func(dir, report string) string {
		list := func(items []string) string {
			b, err := json.Marshal(items) // JSON is YAML
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		return writeFile(t, filepath.Join(dir, "k.yaml"), "handler-arg: "+list(want)+
			"\nhandler-env: "+list([]string{roleEnv + "=handler", reportEnv + "=" + report, "PGHOST=a,b", "PASSED", "UNSET"})+"\n", 0o600)
	}
	for _, c := range []struct {
		origin string
		args   func(dir, report string) (args, env []string)
	}{
		{"flag", func(_, report string) ([]string, []string) {
			return []string{"--handler-arg", want[0], "--handler-arg", want[1], "--handler-arg", want[2],
				"--handler-env", roleEnv + "=handler", "--handler-env", reportEnv + "=" + report, "--handler-env", "PGHOST=a,b", "--handler-env", "PASSED", "--handler-env", "UNSET"}, nil
		}},
		{"env", func(_, report string) ([]string, []string) {
			return nil, []string{"KCONSUME_HANDLER_ARG=" + strings.Join(want, "\n") + "\n",
				"KCONSUME_HANDLER_ENV=" + strings.Join([]string{roleEnv + "=handler", reportEnv + "=" + report, "PGHOST=a,b", "PASSED", "UNSET"}, "\n")}
		}},
		{"file", func(dir, report string) ([]string, []string) { return []string{"--config", yaml(dir, report)}, nil }},
	} {
		t.Run(c.origin, func(t *testing.T) {
			s := newShell(t, "PASSED=on", "SECRET=ours")
			report := filepath.Join(s.dir, "report")
			args, env := c.args(s.dir, report)
			s.env = append(s.env, env...)
			r := s.run(t, append([]string{"validate", "--brokers", brokers, "--group", "g", "--topic", "t", "--handler", exe}, args...)...)
			if r.code != 0 {
				t.Fatalf("%+v", r)
			}
			got := readReport(t, report)
			if !slices.Equal(got.Args, want) {
				t.Errorf("arguments %q, want %q", got.Args, want)
			}
			for _, v := range []string{"PGHOST=a,b", "PASSED=on"} {
				if !slices.Contains(got.Env, v) {
					t.Errorf("no %s in %q", v, got.Env)
				}
			}
			for _, v := range got.Env {
				if strings.HasPrefix(v, "SECRET=") || strings.HasPrefix(v, "UNSET=") || strings.HasPrefix(v, "KCONSUME_HANDLER_") {
					t.Errorf("the handler sees %s", v)
				}
			}
		})
	}
}

func readReport(t *testing.T, path string) started {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	line, err := bufio.NewReader(f).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return decode[started](t, line)
}
