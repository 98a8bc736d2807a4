package main

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
	"github.com/twmb/franz-go/pkg/kfake"
)

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// call asks the admin API over TCP, and returns the status.
func call(t *testing.T, address, path, token string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode
}

func token(of string) string { return strings.Repeat(of, 32) }

// SIGHUP takes up what it can and names what it cannot; what is wrong leaves
// what was before.
func TestReload(t *testing.T) {
	_, brokers := newBroker(t, kfake.SeedTopics(1, "t"))
	m := newManager(t)
	s := m.shell(t)
	file, tokens := filepath.Join(s.dir, "k.yaml"), filepath.Join(s.dir, "tokens")
	settings := func(lines ...string) { writeFile(t, file, strings.Join(lines, "\n")+"\n", 0o600) }
	settings("log-level: info", "max-buffer: 8MiB", "handler-env: ["+roleEnv+"=handler, DSN=first-secret]")
	writeFile(t, tokens, "admin ada "+token("a")+"\n", 0o600)
	address := freePort(t)
	p := s.start(t, append([]string{"--config", file, "run", "--brokers", brokers, "--group", testGroup, "--topic", "t", "--metrics", "127.0.0.1:0",
		"--admin", "tcp:" + address, "--admin-tokens", tokens}, probe(t)[:2]...)...)
	p.await(t, "msg=started")
	m.await(t, "READY=1")
	if code := call(t, address, "/v1/status", token("a")); code != 200 {
		t.Fatalf("%d with the first token", code)
	}
	var log strings.Builder
	reload := func(last string) {
		t.Helper()
		p.signal(t, syscall.SIGHUP)
		for line := range p.lines {
			log.WriteString(line)
			if strings.Contains(line, last) {
				return
			}
		}
		t.Fatalf("no %q in\n%s", last, log.String())
	}
	said := func(text string) {
		t.Helper()
		if !strings.Contains(log.String(), text) {
			t.Errorf("no %q in\n%s", text, log.String())
		}
	}

	settings("log-level: debug", "max-buffer: 16MiB", "retry: [1s]", "handler-env: ["+roleEnv+"=handler, DSN=second-secret]")
	writeFile(t, tokens, "admin bob "+token("b")+"\n", 0o600)
	reload("handler upgraded")
	said("settings read again")
	said(`level=WARN msg="settings have changed that need a restart: those of before go on" settings="[handler-env retry max-buffer]"`)
	if got := m.await(t, "RELOADING=1\nMONOTONIC_USEC="); slices.Contains(got, "READY=1") {
		t.Errorf("said %q", got)
	}
	m.await(t, "READY=1")
	if one, two := call(t, address, "/v1/status", token("a")), call(t, address, "/v1/status", token("b")); one != 401 || two != 200 {
		t.Errorf("the token that is gone: %d, the one that came: %d", one, two)
	}
	log.WriteString(p.await(t, "level=DEBUG"))

	// What is wrong changes nothing.
	settings("log-level: error", "no-such-setting: 1")
	writeFile(t, tokens, "admin "+token("c")+"\n", 0o600)
	reload("cannot reload the settings")
	said(`msg="cannot reload who may call: what was read before goes on" error="--admin-tokens ` + tokens + `:1: write ROLE NAME TOKEN"`)
	said("no-such-setting")
	if code := call(t, address, "/v1/status", token("b")); code != 200 {
		t.Errorf("%d with the token of before", code)
	}
	log.WriteString(p.await(t, "level=DEBUG"))

	// A handler that is not the one that is pinned.
	settings("log-level: debug", "handler-env: ["+roleEnv+"=handler, DSN=first-secret]", "max-buffer: 8MiB", "handler-sha256: "+strings.Repeat("0", 64))
	writeFile(t, tokens, "admin bob "+token("b")+"\n", 0o600)
	reload("cannot upgrade")
	settings("log-level: info", "handler-env: ["+roleEnv+"=handler, DSN=first-secret]", "max-buffer: 8MiB")
	reload("handler upgraded")
	for _, secret := range []string{"first-secret", "second-secret", token("a"), token("b"), token("c")} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log holds %s", secret)
		}
	}
	p.signal(t, syscall.SIGTERM)
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestChanged(t *testing.T) {
	set := func(lines ...string) *option.Set {
		env := map[string]string{}
		for _, l := range lines {
			name, value, _ := strings.Cut(l, "=")
			env[name] = value
		}
		s, wrong := option.Resolve(option.For(option.Table(), option.Run), option.Sources{Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }})
		if len(wrong) > 0 {
			t.Fatal(wrong)
		}
		return s
	}
	for _, c := range []struct {
		before, after []string
		want          string
	}{
		{nil, nil, "[]"},
		{[]string{"KCONSUME_ORDER=key"}, nil, "[]"},     // the same value from elsewhere
		{nil, []string{"KCONSUME_RETRY=1s"}, "[retry]"}, // and not what only follows from it
		{[]string{"KCONSUME_RETRY=1s"}, nil, "[retry]"},
		{[]string{"KCONSUME_MAX_ATTEMPTS=3"}, []string{"KCONSUME_MAX_ATTEMPTS=9"}, "[max-attempts]"},
		{[]string{"KCONSUME_GROUP=a", "KCONSUME_TOPIC=t,u"}, []string{"KCONSUME_GROUP=a", "KCONSUME_TOPIC=u,t"}, "[topic]"},
	} {
		if got := fmt.Sprint(changed(set(c.before...), set(c.after...))); got != c.want {
			t.Errorf("%v to %v: %s, want %s", c.before, c.after, got, c.want)
		}
	}
}
