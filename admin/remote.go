package admin

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Remote is a daemon's API over TCP, as a client reaches it.
type Remote struct {
	URL       string // https://HOST:PORT, or http:// to this host
	TokenFile string // holds one token, "" = none
	CAFile    string // PEM, "" = the system's
	CertFile  string // with KeyFile: the client's certificate
	KeyFile   string
}

// CheckRemote says what is wrong with an address, "" if nothing is.
func CheckRemote(address string) string {
	u, err := url.Parse(address)
	switch {
	case err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "":
		return "write https://HOST:PORT"
	case u.User != nil || (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "":
		return "write https://HOST:PORT and nothing else"
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return "a token would go in the clear: use https beyond this host"
	}
	return ""
}

// NewRemote is a client of a daemon that is reached over TCP.
func NewRemote(r Remote) (*Client, error) {
	if wrong := CheckRemote(r.URL); wrong != "" {
		return nil, fmt.Errorf("--admin %s: %s", r.URL, wrong)
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil, fmt.Errorf("--admin: %w", err)
	}
	conf, err := r.tls()
	if err != nil {
		return nil, err
	}
	c := &Client{name: u.Scheme + "://" + u.Host, base: url.URL{Scheme: u.Scheme, Host: u.Host}}
	if r.TokenFile != "" {
		text, err := readAccessFile("--token-file", r.TokenFile, true)
		if err != nil {
			return nil, err
		}
		if c.token = strings.TrimSpace(string(text)); c.token == "" || len(strings.Fields(c.token)) > 1 {
			return nil, fmt.Errorf("--token-file %s: write the token into it, and nothing else", r.TokenFile)
		}
	}
	c.http = &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: conf},
		// A token goes to the daemon that was named, and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

func (r *Remote) tls() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if r.CAFile != "" {
		var err error
		if conf.RootCAs, err = readAuthorities("--ca-file", r.CAFile); err != nil {
			return nil, err
		}
	}
	if (r.CertFile == "") != (r.KeyFile == "") {
		return nil, errors.New("--client-cert and --client-key: give both")
	}
	if r.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(r.CertFile, r.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--client-cert %s, --client-key %s: %w", r.CertFile, r.KeyFile, err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}
