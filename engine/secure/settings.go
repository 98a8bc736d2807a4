// Package secure makes connections to brokers: by TLS, with a client's
// certificate or without, and with SASL. Certificates and secrets are read from
// files, and again once these have changed. What goes wrong is told in one line
// that says what to do about it, and never holds a secret.
//
// SASL is spoken here and not by the Kafka client: only so are the broker's own
// words known, and how long a session lasts. A session is renewed on its
// connection before it ends (KIP-368), which the client cannot do: it would lose
// the connection, and with the group's the generation, at every expiry.
package secure

import (
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
)

// Mechanism is a SASL mechanism by the name that --sasl-mechanism takes.
type Mechanism string

const (
	Plain       Mechanism = "plain"
	ScramSHA256 Mechanism = "scram-sha-256"
	ScramSHA512 Mechanism = "scram-sha-512"
	OAuthBearer Mechanism = "oauthbearer"
)

// Mechanisms are all there are.
func Mechanisms() []Mechanism { return []Mechanism{Plain, ScramSHA256, ScramSHA512, OAuthBearer} }

// wire is the mechanism's name in the protocol.
func (m Mechanism) wire() string { return strings.ToUpper(string(m)) }

// password reports whether it is one that sends or proves a password.
func (m Mechanism) password() bool { return m == Plain || m == ScramSHA256 || m == ScramSHA512 }

// Settings say how brokers are connected to. The zero value is a plain
// connection. Files hold PEM, or one secret each.
type Settings struct {
	TLS        bool
	CAFile     string // authorities of the brokers' certificates, "" = the system's
	CertFile   string // our certificate, with those that lead to its authority behind it
	KeyFile    string // its key
	ServerName string // what the brokers' certificates are for, "" = the host of the address

	Mechanism    Mechanism // "" = no SASL
	Username     string
	PasswordFile string

	// OAUTHBEARER takes its token from a file, which somebody else renews, or
	// from a token endpoint by the client credentials grant.
	TokenFile        string
	TokenURL         string
	ClientID         string
	ClientSecretFile string
	Scope            string // space-separated, "" = none is asked for
}

// plain reports a connection with neither TLS nor SASL.
func (s Settings) plain() bool { return !s.TLS && s.Mechanism == "" }

// Validate says all that is wrong with the settings, without reading a file. A
// setting without a function is an error: it would look like a protection. Each
// error is an *Error of kind Setting that names the flag.
func (s Settings) Validate() error {
	return errors.Join(slices.Concat(s.wrongTLS(), s.wrongSASL())...)
}

// flagValue is a flag with what it was set to.
type flagValue struct{ flag, value string }

func (s Settings) wrongTLS() (errs []error) {
	if !s.TLS {
		return idle("add --tls, or remove it", []flagValue{
			{"tls-ca", s.CAFile}, {"tls-cert", s.CertFile}, {"tls-key", s.KeyFile}, {"tls-server-name", s.ServerName},
		})
	}
	switch {
	case s.CertFile != "" && s.KeyFile == "":
		errs = append(errs, setting("--tls-cert without --tls-key: give the file of the certificate's key too"))
	case s.CertFile == "" && s.KeyFile != "":
		errs = append(errs, setting("--tls-key without --tls-cert: give the file of the key's certificate too"))
	}
	if strings.ContainsAny(s.ServerName, ":/ ") && net.ParseIP(s.ServerName) == nil {
		errs = append(errs, setting("--tls-server-name %q: write a host name alone, without a port", s.ServerName))
	}
	return errs
}

func (s Settings) wrongSASL() []error {
	byPassword := []flagValue{{"sasl-username", s.Username}, {"sasl-password-file", s.PasswordFile}}
	byToken := []flagValue{
		{"sasl-oauth-token-file", s.TokenFile}, {"sasl-oauth-token-url", s.TokenURL}, {"sasl-oauth-client-id", s.ClientID},
		{"sasl-oauth-client-secret-file", s.ClientSecretFile}, {"sasl-oauth-scope", s.Scope},
	}
	switch {
	case s.Mechanism == "":
		return idle("add --sasl-mechanism, or remove it", slices.Concat(byPassword, byToken))
	case s.Mechanism.password():
		return slices.Concat(
			idle("it is for --sasl-mechanism oauthbearer: remove it", byToken),
			missing("--sasl-mechanism "+string(s.Mechanism), byPassword), s.wrongUsername())
	case s.Mechanism == OAuthBearer:
		return append(idle("it is for plain and scram: remove it", byPassword), s.wrongOAuth(byToken)...)
	}
	return []error{setting("--sasl-mechanism %q: write one of plain, scram-sha-256, scram-sha-512, oauthbearer", s.Mechanism)}
}

func (s Settings) wrongUsername() []error {
	if strings.ContainsRune(s.Username, 0) {
		return []error{setting("--sasl-username holds a zero byte: remove it")}
	}
	return nil
}

func (s Settings) wrongOAuth(all []flagValue) []error {
	if s.TokenFile != "" {
		return idle("the token comes from --sasl-oauth-token-file: remove one of them", all[1:])
	}
	if s.TokenURL == "" && s.ClientID == "" && s.ClientSecretFile == "" {
		return []error{setting("--sasl-mechanism oauthbearer without a token: give --sasl-oauth-token-file, or --sasl-oauth-token-url with --sasl-oauth-client-id and --sasl-oauth-client-secret-file")}
	}
	errs := missing("--sasl-mechanism oauthbearer", all[1:4])
	if s.TokenURL != "" {
		if wrong := wrongURL(s.TokenURL); wrong != "" {
			errs = append(errs, setting("--sasl-oauth-token-url: %s", wrong))
		}
	}
	return errs
}

// wrongURL says what is wrong with the address of a token endpoint. It does not
// repeat it: it might hold a password.
func wrongURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return "write an address such as https://login.example.com/token"
	case u.User != nil:
		return "it holds a name or a password: give these with --sasl-oauth-client-id and --sasl-oauth-client-secret-file"
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return "http would show the client's secret to the network: write https"
	}
	return ""
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// idle names the settings that were given and have no function.
func idle(todo string, fs []flagValue) (errs []error) {
	for _, f := range fs {
		if f.value != "" {
			errs = append(errs, setting("--%s has no function here: %s", f.flag, todo))
		}
	}
	return errs
}

// missing names the settings that were not given and are needed.
func missing(by string, fs []flagValue) (errs []error) {
	for _, f := range fs {
		if f.value == "" {
			errs = append(errs, setting("%s without --%s: give it", by, f.flag))
		}
	}
	return errs
}

// Warnings are what works and should not be.
func (s Settings) Warnings() []string {
	if !s.TLS && (s.Mechanism == Plain || s.Mechanism == OAuthBearer) {
		return []string{"--sasl-mechanism " + string(s.Mechanism) + " without --tls shows the secret to the network: add --tls, or take scram-sha-512"}
	}
	return nil
}
