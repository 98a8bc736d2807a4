package secure

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/test/kafka"
)

func authority(t *testing.T, name string) *kafka.Authority {
	t.Helper()
	a, err := kafka.NewAuthority(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func pair(t *testing.T, a *kafka.Authority, l kafka.Leaf) tls.Certificate {
	t.Helper()
	cert, key, err := a.Issue(l)
	if err != nil {
		t.Fatal(err)
	}
	p, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var here = kafka.Leaf{Subject: pkix.Name{CommonName: "broker"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}

// newServer is an authority, and a listener's side of TLS for this host by it.
func newServer(t *testing.T) (*kafka.Authority, *tls.Config) {
	t.Helper()
	a := authority(t, "Brokers")
	return a, &tls.Config{Certificates: []tls.Certificate{pair(t, a, here)}}
}

func poolOf(a *kafka.Authority) *x509.CertPool {
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(a.PEM())
	return p
}

// identityFiles writes a certificate and its key.
func identityFiles(t *testing.T, a *kafka.Authority, l kafka.Leaf) (certFile, keyFile string) {
	t.Helper()
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	cert, key, err := a.Issue(l)
	if err != nil {
		t.Fatal(err)
	}
	write(t, certFile, string(cert), 0o644)
	write(t, keyFile, string(key), 0o600)
	return certFile, keyFile
}

// Each failure of TLS, with each version, names what to mend.
func TestTLSFailures(t *testing.T) {
	issuer, server := newServer(t)
	clients, strangers := authority(t, "Clients"), authority(t, "Strangers")
	dir := t.TempDir()
	ca, otherCA := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "other.pem")
	write(t, ca, string(issuer.PEM()), 0o644)
	write(t, otherCA, string(strangers.PEM()), 0o644)
	with := func(change func(*tls.Config)) *tls.Config {
		c := server.Clone()
		change(c)
		return c
	}
	leaf := func(l kafka.Leaf) *tls.Config {
		return with(func(c *tls.Config) { c.Certificates = []tls.Certificate{pair(t, issuer, l)} })
	}
	mutual := with(func(c *tls.Config) { c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, poolOf(clients) })
	old, future, elsewhere, nameless := here, here, here, here
	old.From, old.Until = time.Now().Add(-48*time.Hour), time.Now().Add(-time.Hour)
	future.From = time.Now().Add(12 * time.Hour)
	elsewhere.IPs, elsewhere.Names = nil, []string{"kafka-1.example.com", "kafka-2.example.com"}
	nameless.IPs = nil
	client := kafka.Leaf{Subject: pkix.Name{CommonName: "billing"}}
	expired := client
	expired.From, expired.Until = old.From, old.Until
	ourCert, ourKey := identityFiles(t, clients, client)
	strangeCert, strangeKey := identityFiles(t, strangers, client)
	oldCert, oldKey := identityFiles(t, clients, expired)
	base := Settings{TLS: true, CAFile: ca}
	set := func(change func(*Settings)) Settings {
		s := base
		change(&s)
		return s
	}
	for _, c := range []struct {
		name   string
		server *tls.Config
		s      Settings
		kind   Kind // "" = it works
		says   string
	}{
		{"right", server, base, "", ""},
		{"right, by name", leaf(elsewhere), set(func(s *Settings) { s.ServerName = "kafka-2.example.com" }), "", ""},
		{"right, mutual", mutual, set(func(s *Settings) { s.CertFile, s.KeyFile = ourCert, ourKey }), "", ""},
		{"the system's authorities", server, set(func(s *Settings) { s.CAFile = "" }), Setting, "give the authority's certificate with --tls-ca"},
		{"other authorities", server, set(func(s *Settings) { s.CAFile = otherCA }), Setting, "issued by CN=Brokers, an authority that --tls-ca " + otherCA + " does not hold"},
		{"expired", leaf(old), base, Unavailable, "have it renewed, or set this host's clock"},
		{"not valid yet", leaf(future), base, Unavailable, "its certificate is valid from "},
		{"for others", leaf(elsewhere), base, Setting, "is for kafka-1.example.com, kafka-2.example.com, not for 127.0.0.1"},
		{"for nobody", leaf(nameless), base, Setting, "it has no subject alternative names"},
		{"no certificate of ours", mutual, base, Setting, "wants a client certificate"},
		{"certificate of strangers", mutual, set(func(s *Settings) { s.CertFile, s.KeyFile = strangeCert, strangeKey }), Denied, "refuses our certificate CN=billing"},
		{"expired certificate of ours", mutual, set(func(s *Settings) { s.CertFile, s.KeyFile = oldCert, oldKey }), Setting, "it expired at "},
		{"key of another", mutual, set(func(s *Settings) { s.CertFile, s.KeyFile = ourCert, strangeKey }), Setting, "give a certificate and its own key"},
		{"no certificate in the file", mutual, set(func(s *Settings) { s.CertFile, s.KeyFile = ourKey, ourKey }), Setting, "--tls-cert"},
		{"no authority in the file", server, set(func(s *Settings) { s.CAFile = ourKey }), Setting, "--tls-ca: " + ourKey + " holds no certificate in PEM"},
		{"too old", with(func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }), base, "any", ""},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(c.name+" "+tls.VersionName(version), func(t *testing.T) {
				config := c.server.Clone()
				if config.MaxVersion == 0 {
					config.MaxVersion = version
				}
				_, err := dial(t, New(Config{Settings: c.s}), (&broker{tls: config}).start(t))
				switch {
				case c.kind == "" && err != nil:
					t.Error(err)
				case c.kind == "":
				case err == nil || c.kind != "any" && KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says):
					t.Errorf("%v (%s), want %q (%s)", err, KindOf(err), c.says, c.kind)
				}
			})
		}
	}
}

// A new certificate, and a new authority, is taken up by the next connection. One
// file before the other changes nothing: the old pair is whole.
func TestCertificatesAreReadAgain(t *testing.T) {
	issuer, server := newServer(t)
	clients := authority(t, "Clients")
	server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, poolOf(clients)
	b := &broker{tls: server}
	address := b.start(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	write(t, ca, string(issuer.PEM()), 0o644)
	cert, key := identityFiles(t, clients, kafka.Leaf{Subject: pkix.Name{CommonName: "one"}})
	d := New(Config{Settings: Settings{TLS: true, CAFile: ca, CertFile: cert, KeyFile: key}})
	connect := func(want string) {
		t.Helper()
		if _, err := dial(t, d, address); err != nil {
			t.Fatal(err)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if got := b.peers[len(b.peers)-1]; got != want {
			t.Fatalf("it came as %s, want %s", got, want)
		}
	}
	connect("one")
	if who := d.Principal(); who != "User:CN=one" {
		t.Errorf("principal %s", who)
	}
	nextCert, nextKey, err := clients.Issue(kafka.Leaf{Subject: pkix.Name{CommonName: "two"}})
	if err != nil {
		t.Fatal(err)
	}
	replace(t, cert, string(nextCert))
	connect("one")
	replace(t, key, string(nextKey))
	connect("two")

	replace(t, ca, string(authority(t, "Others").PEM()))
	if _, err := dial(t, d, address); KindOf(err) != Setting {
		t.Fatalf("the old authority is still believed: %v", err)
	}
	replace(t, ca, string(issuer.PEM()))
	connect("two")
	replace(t, ca, "no certificate")
	connect("two")
	if !slices.Equal(b.peers, []string{"one", "one", "two", "two", "two"}) {
		t.Errorf("%v", b.peers)
	}
}
