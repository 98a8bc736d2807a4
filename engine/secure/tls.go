package secure

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"
)

// identity is our certificate.
type identity struct {
	cert tls.Certificate
	leaf *x509.Certificate
}

func keepAuthorities(s Settings, log *slog.Logger) *kept[*x509.CertPool] {
	if s.CAFile == "" {
		return nil
	}
	f := file{flag: "tls-ca", path: s.CAFile}
	return &kept[*x509.CertPool]{files: []file{f}, log: log, make: func(contents [][]byte) (*x509.CertPool, error) {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(contents[0]) {
			return nil, setting("--tls-ca: %s holds no certificate in PEM: give one that begins with -----BEGIN CERTIFICATE-----", s.CAFile)
		}
		return pool, nil
	}}
}

func keepIdentity(s Settings, log *slog.Logger) *kept[*identity] {
	if s.CertFile == "" {
		return nil
	}
	cert, key := file{flag: "tls-cert", path: s.CertFile}, file{flag: "tls-key", path: s.KeyFile, secret: true}
	return &kept[*identity]{files: []file{cert, key}, log: log, make: func(contents [][]byte) (*identity, error) {
		return newIdentity(s, contents[0], contents[1])
	}}
}

func newIdentity(s Settings, cert, key []byte) (*identity, error) {
	if bytes.Contains(key, []byte("ENCRYPTED")) {
		return nil, setting("--tls-key: %s is encrypted: store it without a passphrase, with mode 0640 or stricter", s.KeyFile)
	}
	if block, _ := pem.Decode(cert); block == nil {
		return nil, setting("--tls-cert: %s holds no certificate in PEM: give one that begins with -----BEGIN CERTIFICATE-----", s.CertFile)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, setting("--tls-cert %s and --tls-key %s: %s: give a certificate and its own key", s.CertFile, s.KeyFile, words(err.Error()))
	}
	return &identity{pair, pair.Leaf}, nil
}

// handshake makes a TLS connection of a plain one. It closes that where it fails.
func (d *Dialer) handshake(ctx context.Context, raw net.Conn, address string) (*tls.Conn, *meeting, error) {
	config, m, err := d.tlsConfig(address)
	if err != nil {
		raw.Close()
		return nil, nil, err
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, nil, m.explain(err)
	}
	return conn, m, nil
}

// tlsConfig is a configuration for one connection, of the files as they are now.
func (d *Dialer) tlsConfig(address string) (*tls.Config, *meeting, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, nil, setting("broker %q: want host:port", words(address))
	}
	m := &meeting{settings: d.settings, address: address, host: cmp.Or(d.settings.ServerName, host), now: time.Now}
	c := &tls.Config{ServerName: m.host, MinVersion: tls.VersionTLS12}
	if d.authorities != nil {
		if c.RootCAs, err = d.authorities.get(); err != nil {
			return nil, nil, err
		}
	}
	if d.identity != nil {
		if m.ours, err = d.identity.get(); err != nil {
			return nil, nil, err
		}
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		m.asked = true
		if m.ours == nil {
			return &tls.Certificate{}, nil
		}
		return &m.ours.cert, nil // whichever authorities the broker names: its refusal says more
	}
	return c, m, nil
}

// meeting is what one handshake has shown, for the explanation of its failure.
type meeting struct {
	settings Settings
	address  string
	host     string // what the broker's certificate must be for
	ours     *identity
	asked    bool // the broker asked for our certificate
	now      func() time.Time
}

// explain turns a failure of TLS into what to do about it. A failure that does
// not tell is returned as it is.
func (m *meeting) explain(err error) error {
	if e := m.theirs(err); e != nil {
		e.Err = err
		return e
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return &Error{Setting, fmt.Sprintf("broker %s does not speak TLS: take the port of its TLS listener, or remove --tls", m.address), err}
	}
	if alert := alertOf(err); alert != "" {
		e := m.alerted(alert)
		e.Err = err
		return e
	}
	return err
}

// theirs is what is wrong with the broker's certificate, nil if nothing is.
func (m *meeting) theirs(err error) *Error {
	if e, ok := errors.AsType[x509.HostnameError](err); ok {
		return setting("broker %s: its certificate is for %s, not for %s: connect to a name that it is for, or give that with --tls-server-name",
			m.address, namesOf(e.Certificate), m.host)
	}
	if e, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		issuer := ""
		if e.Cert != nil {
			issuer = " by " + words(e.Cert.Issuer.String())
		}
		if m.settings.CAFile == "" {
			return setting("broker %s: its certificate is issued%s, an authority that this host does not know: give the authority's certificate with --tls-ca", m.address, issuer)
		}
		return setting("broker %s: its certificate is issued%s, an authority that --tls-ca %s does not hold: put the authority's certificate into it", m.address, issuer, m.settings.CAFile)
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if e.Reason == x509.Expired && e.Cert != nil {
			return unavailable("broker %s: its certificate is valid from %s to %s, and it is %s: have it renewed, or set this host's clock",
				m.address, day(e.Cert.NotBefore), day(e.Cert.NotAfter), day(m.now()))
		}
		return setting("broker %s: its certificate cannot be used: %s: have it issued anew", m.address, words(e.Error()))
	}
	return nil
}

// alerted says what the broker's refusal of our side means.
func (m *meeting) alerted(alert string) *Error {
	switch {
	case m.asked && m.ours == nil:
		return setting("broker %s wants a client certificate (%s): give one with --tls-cert and --tls-key", m.address, alert)
	case m.asked && m.now().After(m.ours.leaf.NotAfter):
		return setting("broker %s refuses our certificate %s (%s): it expired at %s: renew %s", m.address, words(m.ours.leaf.Subject.String()), alert, day(m.ours.leaf.NotAfter), m.settings.CertFile)
	case m.asked:
		return denied("broker %s refuses our certificate %s (%s), issued by %s: give one of an authority that the brokers trust with --tls-cert and --tls-key",
			m.address, words(m.ours.leaf.Subject.String()), alert, words(m.ours.leaf.Issuer.String()))
	}
	return setting("broker %s refuses our TLS (%s): it takes other versions or ciphers than TLS 1.2 and 1.3 have, or another name than %s: ask who runs it", m.address, alert, m.host)
}

// alertOf is the text of an alert that the other side sent, "" for other errors.
func alertOf(err error) string {
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "remote error" {
		return strings.TrimPrefix(words(e.Err.Error()), "tls: ")
	}
	return ""
}

func day(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// mostNames bounds the names of a certificate that are shown.
const mostNames = 5

func namesOf(c *x509.Certificate) string {
	if c == nil {
		return "others"
	}
	names := append([]string{}, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		return "no host at all (it has no subject alternative names)"
	}
	if len(names) > mostNames {
		names = append(names[:mostNames], "others")
	}
	return words(strings.Join(names, ", "))
}
