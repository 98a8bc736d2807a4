package host

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"strconv"
	"time"

	"github.com/kconsume/kconsume/plugin/internal/wire"
)

// certificateLife is longer than a process lives. The clock may be set back by
// as much as clockSlack.
const (
	certificateLife = 10 * 365 * 24 * time.Hour
	clockSlack      = 24 * time.Hour
)

// certificates are the two that one process of a handler and we know each other
// by. Each is its own and only authority, and made for that process alone. nil
// is no TLS.
type certificates struct {
	server, client credential
}

// credential is a self-signed certificate and its key.
type credential struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func makeCertificates() (*certificates, error) {
	server, err := makeCredential("kconsume handler", x509.ExtKeyUsageServerAuth)
	if err != nil {
		return nil, err
	}
	client, err := makeCredential("kconsume", x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}
	return &certificates{server: server, client: client}, nil
}

// makeCredential keeps to what the TLS libraries of all languages take: P-256, no
// authority, a name of the host in the certificate.
func makeCredential(name string, use x509.ExtKeyUsage) (credential, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return credential{}, fmt.Errorf("make certificate of %s: %w", name, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return credential{}, fmt.Errorf("make certificate of %s: %w", name, err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial.Add(serial, big.NewInt(1)), // positive
		Subject:               pkix.Name{CommonName: name},
		DNSNames:              []string{wire.TLSServerName},
		NotBefore:             now.Add(-clockSlack),
		NotAfter:              now.Add(certificateLife),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{use},
		BasicConstraintsValid: true, // and no authority
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return credential{}, fmt.Errorf("make certificate of %s: %w", name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return credential{}, fmt.Errorf("make certificate of %s: %w", name, err)
	}
	return credential{certificate: certificate, key: key}, nil
}

// material is what the handler gets: its certificate, its key, and the
// certificate that we will show it. See wire.TLSKey.
func (c *certificates) material() ([]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(c.server.key)
	if err != nil {
		return nil, fmt.Errorf("write the handler's key: %w", err)
	}
	var text []byte
	for _, b := range []pem.Block{
		{Type: "CERTIFICATE", Bytes: c.server.certificate.Raw},
		{Type: "PRIVATE KEY", Bytes: key},
		{Type: "CERTIFICATE", Bytes: c.client.certificate.Raw},
	} {
		text = append(text, pem.EncodeToMemory(&b)...)
	}
	return text, nil
}

// handOver returns the end of a pipe that holds the material: it can be read
// once, by whoever gets it, and is in no file and no environment.
func (c *certificates) handOver() (*os.File, error) {
	if c == nil {
		return nil, nil
	}
	text, err := c.material()
	if err != nil {
		return nil, err
	}
	if len(text) > wire.MaxTLSBytes { // then writing it would wait for a reader
		return nil, fmt.Errorf("hand over certificates: %d bytes do not fit into a pipe", len(text))
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("hand over certificates: %w", err)
	}
	_, err = w.Write(text)
	if err = errors.Join(err, w.Close()); err != nil {
		r.Close()
		return nil, fmt.Errorf("hand over certificates: %w", err)
	}
	return r, nil
}

// tlsEnv tells the handler which descriptor the certificates are on.
func tlsEnv(fd int) string { return wire.TLSKey + "=" + strconv.Itoa(fd) }

// clientTLS is our side: the handler must show the certificate that we made for
// it, and no other.
func (c *certificates) clientTLS() *tls.Config {
	if c == nil {
		return nil
	}
	pool := x509.NewCertPool()
	pool.AddCert(c.server.certificate)
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: wire.TLSServerName,
		RootCAs:    pool,
		Certificates: []tls.Certificate{{
			Certificate: [][]byte{c.client.certificate.Raw}, PrivateKey: c.client.key, Leaf: c.client.certificate,
		}},
	}
}
