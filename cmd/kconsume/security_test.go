package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// Settings of TLS and SASL that do not fit, and files that do not serve, end
// every command that connects with 78, before anything is started.
func TestSecuritySettings(t *testing.T) {
	s := newShell(t)
	at := func(name string) string { return filepath.Join(s.dir, name) }
	open := writeFile(t, at("open"), "hunter2", 0o644)
	secret := writeFile(t, at("secret"), "hunter2\n", 0o600)
	text := writeFile(t, at("text.pem"), "hunter2", 0o600)
	scram := []string{"--sasl-mechanism", "scram-sha-512", "--sasl-username", "u", "--sasl-password-file"}
	for _, c := range []struct {
		name  string
		flags []string
		want  []string // one line each
	}{
		{"an authority without --tls", []string{"--tls-ca", text}, []string{"--tls-ca has no function here: add --tls, or remove it"}},
		{"several at once", []string{"--tls-cert", text, "--sasl-username", "u"}, []string{"--tls-cert has no function here: add --tls", "--sasl-username has no function here: add --sasl-mechanism"}},
		{"an unknown mechanism", []string{"--sasl-mechanism", "gssapi"}, []string{`bad value "gssapi": --sasl-mechanism: write one of plain, scram-sha-256, scram-sha-512, oauthbearer`}},
		{"a secret that all may read", append(scram, open), []string{"--sasl-password-file: " + open + " has mode 0644, which lets others at a secret: chmod 0640 " + open}},
		{"no secret", append(scram, at("none")), []string{"--sasl-password-file: cannot read " + at("none") + ": no such file or directory"}},
		{"no certificate", []string{"--tls", "--tls-ca", text}, []string{"--tls-ca: " + text + " holds no certificate in PEM"}},
		{"no key", []string{"--tls", "--tls-cert", text, "--tls-key", open}, []string{"--tls-key: " + open + " has mode 0644"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			common := append([]string{"--brokers", "127.0.0.1:1", "--topic", "o"}, c.flags...)
			for _, command := range [][]string{
				{"run", "--group", "g", "--handler", "h", "--metrics", ""}, {"topics", "plan"}, {"topics", "apply"}, {"retries", "list"},
			} {
				r := s.run(t, append(append([]string{}, command...), common...)...)
				lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
				if r.code != 78 || len(lines) != len(c.want) || strings.Contains(r.stderr+r.stdout, "hunter2") {
					t.Errorf("%v: exit %d, %q, want 78, %q", command, r.code, lines, c.want)
					continue
				}
				for i, want := range c.want {
					if !strings.Contains(lines[i], want) {
						t.Errorf("%v: %q does not say %q", command, lines[i], want)
					}
				}
			}
		})
	}
	t.Run("what is shown", func(t *testing.T) {
		r := s.run(t, append([]string{"config", "show", "--tls"}, append(scram, secret)...)...)
		if r.code != 0 || !strings.Contains(r.stdout, secret) || strings.Contains(r.stdout, "hunter2") {
			t.Errorf("exit %d: %s", r.code, r.stdout)
		}
	})
	t.Run("a secret that the network sees", func(t *testing.T) {
		r := s.run(t, append([]string{"topics", "plan", "--brokers", "127.0.0.1:1", "--topic", "o", "--sasl-mechanism", "plain"}, append(scram[2:], secret)...)...)
		if !strings.Contains(r.stderr, "warning: --sasl-mechanism plain without --tls shows the secret to the network") {
			t.Errorf("exit %d: %s", r.code, r.stderr)
		}
	})
	t.Run("dev has a broker of its own", func(t *testing.T) {
		if r := s.run(t, "dev", "--tls"); r.code != 64 || !strings.Contains(r.stderr, "--tls has no function here: kconsume dev") {
			t.Errorf("exit %d: %s", r.code, r.stderr)
		}
	})
}
