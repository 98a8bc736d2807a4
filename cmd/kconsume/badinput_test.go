package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/admin"
)

// What people get wrong: the message names what, where and what to do, each
// problem on one line, and the code says whether a restart can help.
func TestBadInput(t *testing.T) {
	s := newShell(t)
	typo := writeFile(t, filepath.Join(s.dir, "typo.yaml"), "group: g\nhandler-timeot: 5s\n", 0o600)
	late := writeFile(t, filepath.Join(s.dir, "late.yaml"), "group: g\n\nhandler-timeout: 5x\n", 0o600)
	text := writeFile(t, filepath.Join(s.dir, "text"), "not a program", 0o600)
	full := []string{"--brokers", "127.0.0.1:1", "--group", "g", "--topic", "orders.confirmed", "--handler", "h", "--metrics", ""}
	run := func(more ...string) []string { return append(append([]string{"run"}, full...), more...) }
	plan := func(more ...string) []string {
		return append([]string{"topics", "plan", "-o", "json", "--brokers", "127.0.0.1:1", "--topic", "orders.confirmed"}, more...)
	}
	for _, c := range []struct {
		name string
		args []string
		env  []string
		code int
		want []string // one line each
	}{
		{"no command", nil, nil, 64, []string{"no command given"}},
		{"unknown command", []string{"rn"}, nil, 64, []string{`unknown command "rn": kconsume: did you mean run?`}},
		{"unknown subcommand", []string{"topics", "aply"}, nil, 64, []string{"did you mean apply?"}},
		{"unknown flag", run("--handler-timeot", "5s"), nil, 64, []string{"unknown flag --handler-timeot: kconsume run: did you mean --handler-timeout?"}},
		{"a flag without its value", []string{"run", "--brokers"}, nil, 64, []string{"--brokers has no value"}},
		{"a flag of another command", []string{"-o", "json", "run"}, nil, 64, []string{"--output has no function here: kconsume run"}},
		{"stray argument", append([]string{"run", "stray"}, full...), nil, 64, []string{`stray argument "stray"`}},
		{"stray argument of plan", plan("orders"), nil, 64, []string{`stray argument "orders": kconsume topics plan`}},
		{"a switch's value apart", run("--create-topics", "false"), nil, 64, []string{"--create-topics=false"}},
		{"missing flags, all at once", []string{"run", "--topic", "t"}, nil, 64, []string{"--brokers, --group, --handler"}},
		{"missing flags of plan", []string{"topics", "plan"}, nil, 64, []string{"--brokers, --topic"}},
		{"an empty list of brokers", run()[:1], []string{"KCONSUME_BROKERS=", "KCONSUME_GROUP=g", "KCONSUME_TOPIC=t", "KCONSUME_HANDLER=h"}, 64, []string{"--brokers"}},

		{"unknown key", []string{"run", "--config", typo}, nil, 78, []string{`unknown key "handler-timeot": ` + typo + ":2: did you mean handler-timeout?"}},
		{"unreadable file", []string{"run", "--config", "/nope.yaml"}, nil, 78, []string{"no such file or directory): /nope.yaml: check --config"}},
		{"a directory for a file", []string{"run", "--config", s.dir}, nil, 78, []string{"is a directory"}},
		{"duration by flag", run("--handler-timeout", "5x"), nil, 78, []string{`bad duration "5x": --handler-timeout: `}},
		{"duration by environment", run(), []string{"KCONSUME_HANDLER_TIMEOUT=5x"}, 78, []string{`bad duration "5x": KCONSUME_HANDLER_TIMEOUT: `}},
		{"duration by file", []string{"run", "--config", late}, nil, 78, []string{`bad duration "5x": ` + late + ":3 handler-timeout: "}},
		{"several at once", run("--order", "keys", "--max-buffer", "1x"), nil, 78, []string{"--order: write one of", "--max-buffer: write a number of bytes"}},
		{"settings that do not fit", run("--heartbeat-interval", "50s"), nil, 78, []string{"heartbeat interval 50s is not shorter than the session timeout 45s"}},

		{"two tiers alike", run("--retry", "5s,5s,30s"), nil, 78, []string{"--retry: tiers 1 and 2 are both 5s: to repeat the last tier raise --max-attempts"}},
		{"plan: two tiers alike", plan("--retry", "1m,60s"), nil, 78, []string{"--retry: tiers 1 and 2 are both 1m"}},
		{"plan: zero", plan("--retry", "5s,0s"), nil, 78, []string{"--retry: tier 2 is 0s"}},
		{"plan: negative", plan("--retry", "-1s"), nil, 78, []string{"--retry: tier 1 is -1s"}},
		{"plan: no unit", plan("--retry", "5"), nil, 78, []string{`duration "5" has no unit in tier 1: --retry`}},
		{"plan: one name for two tiers", plan("--retry-topic", "{topic}.retry", "--retry", "5s,30s"), nil, 78, []string{"are both named orders.confirmed.retry: change --retry-topic"}},
		{"plan: the main topic's name", plan("--dlq-topic", "{topic}"), nil, 78, []string{"are both named orders.confirmed: change --retry-topic, --dlq-topic"}},
		{"plan: unknown placeholder", plan("--retry-topic", "{topic}.{nope}"), nil, 78, []string{"--retry-topic \"{topic}.{nope}\": unknown placeholder {nope}"}},
		{"plan: too long", []string{"topics", "plan", "--brokers", "127.0.0.1:1", "--topic", strings.Repeat("a", 245)}, nil, 78, []string{"has 254 characters, Kafka allows 249"}},
		{"plan: a topic is another's tier", []string{"topics", "plan", "--brokers", "127.0.0.1:1", "--topic", "orders", "--topic", "orders.retry.5s"}, nil, 78, []string{"the retry.5s stage of orders and the main stage of orders.retry.5s are both named"}},

		{"no such handler", run(), nil, 78, []string{`find handler "h": no kconsume-handler-h in `}},
		{"no such file for a handler", replaced(run(), "--handler", "./nope"), nil, 78, []string{"find handler ./nope: no such file"}},
		{"a text for a handler", replaced(run(), "--handler", text), nil, 78, []string{text}},
		{"a directory for a handler", replaced(run(), "--handler", s.dir+"/"), nil, 78, []string{"directory"}},
		{"a program that is no handler", replaced(run(), "--handler", "/bin/true"), nil, 1, []string{"/bin/true"}},
		{"another handler than was pinned", replaced(run("--handler-sha256", strings.Repeat("0", 64)), "--handler", "/bin/true"), nil, 78, []string{"SHA-256"}},

		{"a variable of a handler without a name", run("--handler-env", "=hunter2"), nil, 78, []string{`bad value "=***": --handler-env: write NAME or NAME=VALUE`}},
		{"no broker", plan(), nil, 69, []string{"connection refused: check --brokers"}},
		{"no daemon of a group", []string{"status", "--group", "nobody/../x"}, nil, 69, []string{`no daemon of group "nobody/../x"`}},
		{"no socket", []string{"status", "--admin", "unix:/nope.sock"}, nil, 69, []string{"no socket: /nope.sock: "}},
		{"admin over TCP without anybody to let in", run("--admin", "tcp:127.0.0.1:1"), nil, 78, []string{"--admin tcp:127.0.0.1:1: nobody could be told apart: give --admin-tokens FILE"}},
		{"admin beyond this host without TLS", run("--admin", "tcp:0.0.0.0:1", "--admin-client-ca", "x"), nil, 78, []string{"--admin-tls-cert"}},
		{"admin nowhere", run("--admin", "tcp:1"), nil, 78, []string{"--admin: write unix:PATH or tcp:HOST:PORT"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sh := &shell{append(s.env, c.env...), s.dir}
			r := sh.run(t, c.args...)
			lines := strings.Split(strings.TrimSuffix(r.stderr, "\n"), "\n")
			if r.code != c.code || r.stdout != "" || len(lines) != len(c.want) {
				t.Fatalf("code %d, want %d\nstdout %q\nstderr %q", r.code, c.code, r.stdout, r.stderr)
			}
			for i, w := range c.want {
				if !strings.HasPrefix(lines[i], "kconsume: ") || !strings.Contains(lines[i], w) {
					t.Errorf("%q does not say %q", lines[i], w)
				}
			}
		})
	}
}

// replaced gives a flag another value.
func replaced(args []string, flag, value string) []string {
	for i := range args {
		if args[i] == flag {
			args[i+1] = value
		}
	}
	return args
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := newShell(t)
	r := s.run(t, append([]string{"run", "--brokers", "127.0.0.1:1", "--group", "g", "--topic", "t", "--metrics", l.Addr().String()}, probe(t)...)...)
	if r.code != 78 || strings.Count(r.stderr, "\n") != 1 {
		t.Fatalf("code %d, %q", r.code, r.stderr)
	}
	for _, w := range []string{l.Addr().String(), "--metrics", "address already in use"} {
		if !strings.Contains(r.stderr, w) {
			t.Errorf("%q does not say %q", r.stderr, w)
		}
	}
}

func TestSocketInUse(t *testing.T) {
	s := newShell(t)
	path := filepath.Join(s.dir, "kconsume", admin.SocketName("g", ""))
	l, err := admin.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := s.run(t, append([]string{"run", "--brokers", "127.0.0.1:1", "--group", "g", "--topic", "t", "--metrics", ""}, probe(t)...)...)
	if r.code != 78 || !strings.Contains(r.stderr, path) || !strings.Contains(r.stderr, "--admin") {
		t.Fatalf("code %d, %q", r.code, r.stderr)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the first daemon's socket is gone: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
