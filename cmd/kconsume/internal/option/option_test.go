package option

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func env(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}
}

// resolved is the value and source of one setting.
func resolved(t *testing.T, name string, flags map[string][]string, vars map[string]string, file string) (any, Source) {
	t.Helper()
	var f *File
	if file != "" {
		var errs []error
		if f, errs = ParseFile("k.yaml", []byte(file), Table()); len(errs) > 0 {
			t.Fatal(errs)
		}
	}
	s, errs := Resolve(Table(), Sources{Flags: flags, Env: env(vars), File: f})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return s.values[name].v, s.Origin(name).Source
}

func TestCommasAndLists(t *testing.T) {
	sec := time.Second
	flag := func(name string, values ...string) map[string][]string { return map[string][]string{name: values} }
	for _, c := range []struct {
		name   string
		flags  map[string][]string
		env    map[string]string
		file   string
		want   any
		origin Source
	}{
		{"brokers", flag("brokers", "a:1,b:2"), nil, "", []string{"a:1", "b:2"}, FromFlag},
		{"brokers", flag("brokers", "a:1", "b:2, c:3"), nil, "", []string{"a:1", "b:2", "c:3"}, FromFlag},
		{"brokers", nil, map[string]string{"KCONSUME_BROKERS": "a:1,b:2"}, "", []string{"a:1", "b:2"}, FromEnv},
		{"brokers", nil, nil, "brokers: a:1,b:2", []string{"a:1", "b:2"}, FromFile},
		{"brokers", nil, nil, "brokers: [a:1, b:2]", []string{"a:1", "b:2"}, FromFile},
		{"brokers", nil, nil, "", []string{}, FromDefault},

		{"retry", flag("retry", "1s,2s"), nil, "", []time.Duration{sec, 2 * sec}, FromFlag},
		{"retry", flag("retry", "1s", "2s"), nil, "", []time.Duration{sec, 2 * sec}, FromFlag},
		{"retry", nil, nil, "retry:\n- 1s\n- 2s", []time.Duration{sec, 2 * sec}, FromFile},
		{"retry", nil, nil, "", []time.Duration{5 * sec, 30 * sec}, FromDefault},
		// An empty list is an empty list, wherever it stands.
		{"retry", flag("retry", ""), map[string]string{"KCONSUME_RETRY": "1s"}, "", []time.Duration{}, FromFlag},
		{"retry", nil, map[string]string{"KCONSUME_RETRY": ""}, "retry: 1s", []time.Duration{}, FromEnv},
		{"retry", nil, nil, "retry: []", []time.Duration{}, FromFile},
		{"retry", nil, nil, "retry: ''", []time.Duration{}, FromFile},
		{"retry", nil, nil, "retry:", []time.Duration{}, FromFile},

		{"handler-arg", flag("handler-arg", "dsn=h1:1,h2:2"), nil, "", []string{"dsn=h1:1,h2:2"}, FromFlag},
		{"handler-arg", flag("handler-arg", "a b", "", "c,d;e\nf"), nil, "", []string{"a b", "", "c,d;e\nf"}, FromFlag},
		{"handler-arg", flag("handler-arg", ""), nil, "handler-arg: x", []string{}, FromFlag},
		{"handler-arg", nil, map[string]string{"KCONSUME_HANDLER_ARG": "dsn=h1:1,h2:2"}, "", []string{"dsn=h1:1,h2:2"}, FromEnv},
		{"handler-arg", nil, map[string]string{"KCONSUME_HANDLER_ARG": "--a=1,2\n\n b \n"}, "", []string{"--a=1,2", "", " b "}, FromEnv},
		{"handler-arg", nil, map[string]string{"KCONSUME_HANDLER_ARG": ""}, "handler-arg: x", []string{}, FromEnv},
		{"handler-arg", nil, nil, "handler-arg: dsn=h1:1,h2:2", []string{"dsn=h1:1,h2:2"}, FromFile},
		{"handler-arg", nil, nil, "handler-arg: ['dsn=h1:1,h2:2', '']", []string{"dsn=h1:1,h2:2", ""}, FromFile},
		{"handler-env", flag("handler-env", "PGHOST=a,b", "HOME"), nil, "", []string{"PGHOST=a,b", "HOME"}, FromFlag},
		{"emit", flag("emit", "a=outbox", "b=drop"), nil, "", []string{"a=outbox", "b=drop"}, FromFlag},
		{"emit", nil, map[string]string{"KCONSUME_EMIT": "a=outbox\nb=buffer"}, "", []string{"a=outbox", "b=buffer"}, FromEnv},
		{"emit", nil, nil, "emit: [a=outbox, b=drop]", []string{"a=outbox", "b=drop"}, FromFile},
		{"emit", nil, nil, "", []string{}, FromDefault},
		{"handler-dir", nil, nil, "", []string{"/usr/local/libexec/kconsume/handlers", "/usr/libexec/kconsume/handlers"}, FromDefault},
	} {
		got, origin := resolved(t, c.name, c.flags, c.env, c.file)
		if !reflect.DeepEqual(got, c.want) || origin != c.origin {
			t.Errorf("%s of %v %v %q: %#v from %s, want %#v from %s", c.name, c.flags, c.env, c.file, got, origin, c.want, c.origin)
		}
	}
}

func TestScalars(t *testing.T) {
	at := time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name, text string
		want       any
	}{
		{"handler-timeout", "1.5s", 1500 * time.Millisecond},
		{"dlq-retention", "unlimited", time.Duration(0)},
		{"dlq-retention", "720h", 720 * time.Hour},
		{"max-buffer", "32MiB", 32 << 20},
		{"max-buffer", "1 GiB", 1 << 30},
		{"max-buffer", "64MB", 64000000},
		{"max-buffer", "4194304", 4 << 20},
		{"concurrency", "7", 7},
		{"create-topics", "false", false},
		{"start", "latest", "latest"},
		{"start", "2024-01-02T03:04:05Z", at},
		{"order", "none", "none"},
		{"metrics", "", ""},
		{"metrics", ":9464", ":9464"},
		{"group", "my, group", "my, group"},
	} {
		o := Find(Table(), c.name)
		for _, from := range []Sources{
			{Flags: map[string][]string{c.name: {c.text}}, Env: env(nil)},
			{Env: env(map[string]string{o.Env(): c.text})},
			{Env: env(nil), File: parsed(t, c.name+": '"+c.text+"'")},
			{Env: env(nil), File: parsed(t, c.name+": "+plain(c.text))},
		} {
			s, errs := Resolve(Table(), from)
			if len(errs) > 0 || !reflect.DeepEqual(s.values[c.name].v, c.want) || !s.Given(c.name) {
				t.Errorf("%s %q: %#v, %v", c.name, c.text, s.values[c.name].v, errs)
			}
		}
	}
}

// plain is a text as a plain YAML scalar, where it can be one.
func plain(text string) string {
	if strings.HasPrefix(text, ":") {
		return "'" + text + "'"
	}
	return text
}

func parsed(t *testing.T, file string) *File {
	t.Helper()
	f, errs := ParseFile("k.yaml", []byte(file), Table())
	if len(errs) > 0 {
		t.Fatal(file, errs)
	}
	return f
}

func TestBadValuesNameTheirPlace(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"handler-timeout", "5x", []string{`bad duration "5x"`, "such as 5s"}},
		{"handler-timeout", "5", []string{`"5" has no unit`, "5s"}},
		{"handler-timeout", "0s", []string{"longer than zero"}},
		{"handler-timeout", "-1s", []string{"longer than zero"}},
		{"handler-timeout", "", []string{"empty value"}},
		{"retry", "5s,7q", []string{`"7q"`, "tier 2"}},
		{"retry", "5", []string{`"5" has no unit`, "tier 1"}},
		{"retry", "0", []string{`"0" has no unit`, "tier 1"}},
		{"retry", "5s,", []string{"tier 2"}},
		{"brokers", "a:1,,b:2", []string{"value 2 is empty"}},
		{"brokers", "a", []string{`"a"`, "host:port"}},
		{"topic", ",", []string{"value 1 is empty"}},
		{"concurrency", "0", []string{`"0"`, "at least 1"}},
		{"max-attempts", "many", []string{`"many"`}},
		{"max-buffer", "32M", []string{`"32M"`, "32MiB"}},
		{"max-buffer", "9999999999GiB", []string{"bad size"}},
		{"max-buffer", "-1", []string{"bad size"}},
		{"create-topics", "yes", []string{"true or false"}},
		{"order", "keys", []string{"key, partition, none"}},
		{"start", "2024-01-02", []string{"2006-01-02T15:04:05Z"}},
		{"handler-sha256", "abc", []string{"64 hex"}},
		{"handler-env", "=x", []string{"NAME=VALUE"}},
		{"emit", "audit", []string{`"audit"`, "TOPIC=outbox"}},
		{"emit", "audit=kept", []string{`"audit=kept"`, "TOPIC=buffer"}},
		{"emit", "=drop", []string{`"=drop"`, "TOPIC=drop"}},
		{"oversize", "drop", []string{"stop, pointer"}},
		{"metrics", "9464", []string{"host:port"}},
		{"admin", "tcp:127.0.0.1", []string{"unix:PATH", "tcp:HOST:PORT"}},
		{"admin", "/run/x.sock", []string{"unix:PATH"}},
		{"log-level", "loud", []string{"debug, info, warn, error"}},
	} {
		o := Find(Table(), c.name)
		for where, from := range map[string]Sources{
			"--" + c.name:        {Flags: map[string][]string{c.name: {c.text}}, Env: env(nil)},
			o.Env():              {Env: env(map[string]string{o.Env(): c.text})},
			"k.yaml:2 " + c.name: {Env: env(nil), File: parsed(t, "group: g\n"+c.name+": '"+c.text+"'")},
		} {
			_, errs := Resolve(Table(), from)
			if len(errs) != 1 {
				t.Errorf("%s %q: %v", where, c.text, errs)
				continue
			}
			for _, w := range append(c.want, ": "+where+": ") {
				if !strings.Contains(errs[0].Error(), w) {
					t.Errorf("%q does not say %q", errs[0], w)
				}
			}
		}
	}
}

// Of two policies for one topic none is silently the one that counts.
func TestEmitNamesATopicOnce(t *testing.T) {
	twice := []string{"audit=drop", "views=drop", "audit=outbox"}
	for where, from := range map[string]Sources{
		"--emit":        {Flags: map[string][]string{"emit": twice}, Env: env(nil)},
		"KCONSUME_EMIT": {Env: env(map[string]string{"KCONSUME_EMIT": strings.Join(twice, "\n")})},
		"k.yaml:1 emit": {Env: env(nil), File: parsed(t, "emit: ["+strings.Join(twice, ", ")+"]")},
	} {
		_, errs := Resolve(Table(), from)
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), `topic "audit" is named twice: `+where+": name it once") {
			t.Errorf("%v", errs)
		}
	}
}

func TestAFlagTwice(t *testing.T) {
	_, errs := Resolve(Table(), Sources{Flags: map[string][]string{"group": {"a", "b"}}, Env: env(nil)})
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "--group: give it once") {
		t.Errorf("%v", errs)
	}
}

func TestComputedDefaults(t *testing.T) {
	s, errs := Resolve(Table(), Sources{Flags: map[string][]string{"group": {"billing"}, "retry": {"1s,5m,2s"}}, Env: env(nil)})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if s.Int("max-attempts") != 4 || s.Duration("retry-after-max") != 5*time.Minute || s.Text("client-id") != "kconsume-billing" {
		t.Errorf("%v %v %v", s.Int("max-attempts"), s.Duration("retry-after-max"), s.Text("client-id"))
	}
	if !strings.HasPrefix(s.Text("admin"), "unix:/") || s.Given("admin") {
		t.Errorf("admin %q", s.Text("admin"))
	}
}

func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range Table() {
		if seen[o.Name] || o.Help == "" || o.Use == 0 {
			t.Errorf("%q: twice, or without help or use", o.Name)
		}
		seen[o.Name] = true
	}
	// Each command's part of the table stands on its own, whatever else is set.
	for _, use := range []Use{Run, Topics, Status, Print} {
		part := For(Table(), use)
		s, errs := Resolve(part, Sources{Env: env(map[string]string{"KCONSUME_ORDER": "none", "KCONSUME_GROUP": "g"})})
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		for _, o := range part {
			if s.values[o.Name].v == nil {
				t.Errorf("%s has no value", o.Name)
			}
		}
	}
}

func TestMissing(t *testing.T) {
	s, _ := Resolve(Table(), Sources{Flags: map[string][]string{"group": {"g"}}, Env: env(nil)})
	if got := s.Missing([]string{"brokers", "group", "topic"}); !slices.Equal(got, []string{"brokers", "topic"}) {
		t.Errorf("%v", got)
	}
}

func TestFormats(t *testing.T) {
	for n, want := range map[int]string{0: "0", 1: "1", 1 << 10: "1KiB", 32 << 20: "32MiB", 3 << 30: "3GiB", 1500: "1500"} {
		if got := FormatSize(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0s", time.Minute: "1m", 90 * time.Second: "90s", time.Microsecond: "1µs"} {
		if got := FormatDuration(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"handler", "handler-arg", "handler-timeout", "retry", "retry-topic"}
	for given, want := range map[string]string{
		"handler-timeot": "handler-timeout", "handler_timeout": "handler-timeout", "rerty": "retry", "xyzzy": "", "retry-topics": "retry-topic",
	} {
		if got := Nearest(given, names); got != want {
			t.Errorf("%s: %q, want %q", given, got, want)
		}
	}
}
