package admin

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
)

// TCP is where the API listens beside or instead of the socket.
type TCP struct {
	Address  string // host:port
	CertFile string // with KeyFile: TLS
	KeyFile  string
	ClientCA string // PEM file: client certificates that it signed are let in
}

// ListenTCP opens the address. Beyond this host nothing is served without TLS,
// and nowhere without tokens or client certificates.
func ListenTCP(c TCP, access *Access) (net.Listener, error) {
	host, _, err := net.SplitHostPort(c.Address)
	if err != nil {
		return nil, fmt.Errorf("--admin tcp:%s: write tcp:HOST:PORT", c.Address)
	}
	if access.Tokens == nil && c.ClientCA == "" {
		return nil, fmt.Errorf("--admin tcp:%s: nobody could be told apart: give --admin-tokens FILE or --admin-client-ca FILE", c.Address)
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return nil, errors.New("--admin-tls-cert and --admin-tls-key: give both")
	}
	if c.CertFile == "" {
		if !loopback(host) {
			return nil, fmt.Errorf("--admin tcp:%s: without TLS it would send tokens in the clear: listen on 127.0.0.1, or give --admin-tls-cert and --admin-tls-key", c.Address)
		}
		if c.ClientCA != "" {
			return nil, errors.New("--admin-client-ca: client certificates need TLS: give --admin-tls-cert and --admin-tls-key")
		}
	}
	conf, err := c.tls()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("listen on --admin tcp:%s: %w: give another address", c.Address, err)
	}
	l = Limit(l, maxConns)
	if conf != nil {
		l = tls.NewListener(l, conf)
	}
	return l, nil
}

// tls is nil where there is none. The files are read for each connection, so
// that a renewed certificate is served; where they are wrong by then, the ones
// of the connection before go on.
func (c *TCP) tls() (*tls.Config, error) {
	first, err := c.read()
	if first == nil || err != nil {
		return nil, err
	}
	var latest atomic.Pointer[tls.Config]
	latest.Store(first)
	return &tls.Config{
		MinVersion: first.MinVersion,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			if now, err := c.read(); err == nil {
				latest.Store(now)
			}
			return latest.Load(), nil
		},
	}, nil
}

// Check says what is wrong with the files of certificates as they are now.
func (c *TCP) Check() error {
	_, err := c.read()
	return err
}

func (c *TCP) read() (*tls.Config, error) {
	if c.CertFile == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--admin-tls-cert %s, --admin-tls-key %s: %w", c.CertFile, c.KeyFile, err)
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{pair}}
	if c.ClientCA == "" {
		return conf, nil
	}
	if conf.ClientCAs, err = readAuthorities("--admin-client-ca", c.ClientCA); err != nil {
		return nil, err
	}
	conf.ClientAuth = tls.VerifyClientCertIfGiven
	return conf, nil
}

// readAuthorities reads the certificates of a PEM file.
func readAuthorities(flag, path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s %s: there is no certificate in it", flag, path)
	}
	return pool, nil
}

// loopback reports whether a host names this machine alone. Names are not
// looked up, but for localhost.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// knownHost reports whether a request's Host is one that this listener may be
// called by. Others come from a page whose name was made to point here.
func (c *TCP) knownHost(given string) bool {
	host := given
	if h, _, err := net.SplitHostPort(given); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	bound, _, err := net.SplitHostPort(c.Address)
	if err != nil {
		return false
	}
	if loopback(host) {
		return loopback(bound) || unspecified(bound)
	}
	if strings.EqualFold(host, bound) {
		return true
	}
	// A certificate says by what names we are called.
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	return err == nil && pair.Leaf != nil && pair.Leaf.VerifyHostname(host) == nil
}

func unspecified(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "" || err == nil && a.IsUnspecified()
}
