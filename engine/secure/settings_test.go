package secure

import (
	"strings"
	"testing"
)

// Settings that are whole pass; every other error names the flag to mend.
func TestValidate(t *testing.T) {
	password := Settings{Mechanism: ScramSHA512, Username: "u", PasswordFile: "p"}
	grant := Settings{Mechanism: OAuthBearer, TokenURL: "https://login.example.com/token", ClientID: "c", ClientSecretFile: "s"}
	with := func(s Settings, change func(*Settings)) Settings {
		change(&s)
		return s
	}
	for _, c := range []struct {
		name string
		s    Settings
		want []string // one for each error; none = it passes
	}{
		{"plain", Settings{}, nil},
		{"TLS alone", Settings{TLS: true}, nil},
		{"TLS with all", Settings{TLS: true, CAFile: "ca", CertFile: "c", KeyFile: "k", ServerName: "kafka.example.com"}, nil},
		{"a server named by its address", Settings{TLS: true, ServerName: "::1"}, nil},
		{"a CA without TLS", Settings{CAFile: "ca"}, []string{"--tls-ca has no function here: add --tls, or remove it"}},
		{"all of it without TLS", Settings{CAFile: "ca", CertFile: "c", KeyFile: "k", ServerName: "h"}, []string{"--tls-ca", "--tls-cert", "--tls-key", "--tls-server-name"}},
		{"a certificate without a key", Settings{TLS: true, CertFile: "c"}, []string{"--tls-cert without --tls-key"}},
		{"a key without a certificate", Settings{TLS: true, KeyFile: "k"}, []string{"--tls-key without --tls-cert"}},
		{"a server name with a port", Settings{TLS: true, ServerName: "kafka:9093"}, []string{"--tls-server-name"}},

		{"plain with a password", with(password, func(s *Settings) { s.Mechanism = Plain }), nil},
		{"scram", password, nil},
		{"scram by TLS", with(password, func(s *Settings) { s.TLS = true }), nil},
		{"no such mechanism", with(password, func(s *Settings) { s.Mechanism = "gssapi" }), []string{`--sasl-mechanism "gssapi": write one of plain, scram-sha-256, scram-sha-512, oauthbearer`}},
		{"a user without a mechanism", Settings{Username: "u"}, []string{"--sasl-username has no function here: add --sasl-mechanism"}},
		{"a token without a mechanism", Settings{TokenFile: "t"}, []string{"--sasl-oauth-token-file has no function here: add --sasl-mechanism"}},
		{"no user", with(password, func(s *Settings) { s.Username = "" }), []string{"--sasl-mechanism scram-sha-512 without --sasl-username"}},
		{"no password", with(password, func(s *Settings) { s.PasswordFile = "" }), []string{"without --sasl-password-file"}},
		{"a user with a zero byte", with(password, func(s *Settings) { s.Username = "u\x00admin" }), []string{"--sasl-username holds a zero byte"}},
		{"scram with a token", with(password, func(s *Settings) { s.TokenFile = "t" }), []string{"--sasl-oauth-token-file has no function here: it is for --sasl-mechanism oauthbearer"}},

		{"the grant", grant, nil},
		{"a token file", Settings{Mechanism: OAuthBearer, TokenFile: "t"}, nil},
		{"a grant on this host", with(grant, func(s *Settings) { s.TokenURL = "http://127.0.0.1:8080/token" }), nil},
		{"no token", Settings{Mechanism: OAuthBearer}, []string{"oauthbearer without a token: give --sasl-oauth-token-file, or --sasl-oauth-token-url"}},
		{"both", with(grant, func(s *Settings) { s.TokenFile = "t" }), []string{"--sasl-oauth-token-url", "--sasl-oauth-client-id", "--sasl-oauth-client-secret-file"}},
		{"a grant without a secret", with(grant, func(s *Settings) { s.ClientSecretFile = "" }), []string{"without --sasl-oauth-client-secret-file"}},
		{"a secret shown to the network", with(grant, func(s *Settings) { s.TokenURL = "http://login.example.com/token" }), []string{"--sasl-oauth-token-url: http would show the client's secret"}},
		{"a password in the address", with(grant, func(s *Settings) { s.TokenURL = "https://c:hunter2@login.example.com/" }), []string{"--sasl-oauth-token-url: it holds a name or a password"}},
		{"no address", with(grant, func(s *Settings) { s.TokenURL = "login.example.com" }), []string{"--sasl-oauth-token-url: write an address"}},
		{"a token with a password", with(grant, func(s *Settings) { s.PasswordFile = "p" }), []string{"--sasl-password-file has no function here: it is for plain and scram"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.s.Validate()
			var lines []string
			if err != nil {
				lines = strings.Split(err.Error(), "\n")
				if KindOf(err) != Setting {
					t.Errorf("kind %q", KindOf(err))
				}
			}
			if len(lines) != len(c.want) {
				t.Fatalf("%q, want %q", lines, c.want)
			}
			for i, want := range c.want {
				if !strings.Contains(lines[i], want) || strings.Contains(lines[i], "hunter2") {
					t.Errorf("%q does not say %q, or says too much", lines[i], want)
				}
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	for _, m := range Mechanisms() {
		shows := m == Plain || m == OAuthBearer
		if got := len((Settings{Mechanism: m}).Warnings()) > 0; got != shows {
			t.Errorf("%s without TLS: warned %v", m, got)
		}
		if got := (Settings{Mechanism: m, TLS: true}).Warnings(); len(got) > 0 {
			t.Errorf("%s by TLS: %q", m, got)
		}
	}
}
