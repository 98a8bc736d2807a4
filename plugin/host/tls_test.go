package host

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kconsume/kconsume/plugin/internal/wire"
)

func newCertificates(t *testing.T) *certificates {
	t.Helper()
	c, err := makeCertificates()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCertificates(t *testing.T) {
	c := newCertificates(t)
	for name, one := range map[string]*x509.Certificate{"server": c.server.certificate, "client": c.client.certificate} {
		key, ok := one.PublicKey.(*ecdsa.PublicKey)
		if !ok || key.Curve != elliptic.P256() {
			t.Errorf("%s: key %T", name, one.PublicKey)
		}
		if one.IsCA || !one.BasicConstraintsValid || one.KeyUsage != x509.KeyUsageDigitalSignature {
			t.Errorf("%s: authority %v, usage %b", name, one.IsCA, one.KeyUsage)
		}
		if err := one.VerifyHostname(wire.TLSServerName); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if one.SerialNumber.Sign() <= 0 || one.NotBefore.After(time.Now().Add(-time.Hour)) || one.NotAfter.Before(time.Now().AddDate(9, 0, 0)) {
			t.Errorf("%s: number %v, from %v to %v", name, one.SerialNumber, one.NotBefore, one.NotAfter)
		}
	}
	if again := newCertificates(t); again.server.key.Equal(c.server.key) || again.client.key.Equal(c.client.key) {
		t.Error("two processes have one key")
	}
}

func TestHandOver(t *testing.T) {
	c := newCertificates(t)
	r, err := c.handOver()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r) // ends, because the other end is closed
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		types = append(types, block.Type)
	}
	if got := strings.Join(types, ", "); got != "CERTIFICATE, PRIVATE KEY, CERTIFICATE" || len(text) > wire.MaxTLSBytes {
		t.Errorf("%d bytes: %s", len(text), got)
	}
	own, rest := pem.Decode(text)
	_, rest = pem.Decode(rest)
	client, _ := pem.Decode(rest)
	if !bytes.Equal(own.Bytes, c.server.certificate.Raw) || !bytes.Equal(client.Bytes, c.client.certificate.Raw) {
		t.Error("the certificates are not the server's and the client's")
	}
	clientKey, err := x509.MarshalPKCS8PrivateKey(c.client.key)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: clientKey})) {
		t.Error("our own key is handed over")
	}
}

// serverOf is the server's side as SDKs make it of the material.
func serverOf(t *testing.T, c *certificates) *tls.Config {
	t.Helper()
	text, err := c.material()
	if err != nil {
		t.Fatal(err)
	}
	own, rest := pem.Decode(text)
	key, rest := pem.Decode(rest)
	pair, err := tls.X509KeyPair(pem.EncodeToMemory(own), pem.EncodeToMemory(key))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(rest) {
		t.Fatal("no client's certificate")
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
}

// signedBy makes a certificate that another one's key has signed.
func signedBy(t *testing.T, parent credential) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := *parent.certificate
	template.PublicKey, template.SerialNumber = nil, parent.certificate.SerialNumber
	der, err := x509.CreateCertificate(rand.Reader, &template, parent.certificate, key.Public(), parent.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der, parent.certificate.Raw}, PrivateKey: key}
}

func TestPinnedBothWays(t *testing.T) {
	c, other := newCertificates(t), newCertificates(t)
	for _, row := range []struct {
		name           string
		client, server func(own *tls.Config) // change it
		fails          bool
	}{
		{"as made", nil, nil, false},
		{"a client without a certificate", func(own *tls.Config) { own.Certificates = nil }, nil, true},
		{"another process's client", func(own *tls.Config) { own.Certificates = other.clientTLS().Certificates }, nil, true},
		{"a client that the client signed", func(own *tls.Config) { own.Certificates = []tls.Certificate{signedBy(t, c.client)} }, nil, true},
		{"the server's certificate as a client's", func(own *tls.Config) { own.Certificates = serverOf(t, c).Certificates }, nil, true},
		{"another process's server", nil, func(own *tls.Config) { own.Certificates = serverOf(t, other).Certificates }, true},
		{"a server that the server signed", nil, func(own *tls.Config) { own.Certificates = []tls.Certificate{signedBy(t, c.server)} }, true},
		{"the client's certificate as a server's", nil, func(own *tls.Config) { own.Certificates = c.clientTLS().Certificates }, true},
		{"TLS 1.2", func(own *tls.Config) { own.MinVersion, own.MaxVersion = 0, tls.VersionTLS12 }, func(own *tls.Config) { own.MinVersion = tls.VersionTLS13 }, true},
		{"a server of TLS 1.2", nil, func(own *tls.Config) { own.MaxVersion = tls.VersionTLS12 }, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			client, server := c.clientTLS(), serverOf(t, c)
			if row.client != nil {
				row.client(client)
			}
			if row.server != nil {
				row.server(server)
			}
			if err := talk(t, client, server); (err != nil) != row.fails {
				t.Errorf("%v", err)
			}
		})
	}
}

// talk connects both sides and sends a byte each way: with TLS 1.3 a client
// hears only then that its certificate is refused.
func talk(t *testing.T, client, server *tls.Config) error {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var echoing sync.WaitGroup
	defer echoing.Wait()
	echoing.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.CopyN(conn, conn, 1)
	})
	conn, err := tls.Dial("tcp", l.Addr().String(), client)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{1}); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err
}

func TestTLSEnv(t *testing.T) {
	if got := tlsEnv(5); got != "KCONSUME_TLS_FD=5" {
		t.Error(got)
	}
	if _, ok := os.LookupEnv(wire.TLSKey); ok {
		t.Error("it is set in our own environment")
	}
}
