package conformance

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// secured: where kconsume hands certificates over, the socket speaks TLS, with
// them and to the owner of the one only.
func secured(t *testing.T, path string) {
	server, serverKey := identity(t, x509.ExtKeyUsageServerAuth)
	client, clientKey := identity(t, x509.ExtKeyUsageClientAuth)
	stranger, strangerKey := identity(t, x509.ExtKeyUsageClientAuth)
	key, err := x509.MarshalPKCS8PrivateKey(serverKey)
	if err != nil {
		t.Fatal(err)
	}
	var material bytes.Buffer
	for _, b := range []pem.Block{
		{Type: "CERTIFICATE", Bytes: server.Raw}, {Type: "PRIVATE KEY", Bytes: key}, {Type: "CERTIFICATE", Bytes: client.Raw},
	} {
		if err := pem.Encode(&material, &b); err != nil {
			t.Fatal(err)
		}
	}
	l := launch(t, path, material.Bytes())
	l.dial(l.address(), transport(server, client, clientKey))
	hello := l.await(l.open("Deliver"), func(got replies) bool { return got.hello == 1 })
	if hello.hello != 1 {
		t.Error("no Hello over TLS")
	}
	for who, creds := range map[string]credentials.TransportCredentials{
		"a stranger": transport(server, stranger, strangerKey), "who shows nothing": transport(server, nil, nil),
	} {
		l.dial(l.address(), creds)
		s, err := l.conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, serviceName+"Deliver")
		if err == nil {
			err = s.RecvMsg(new([]byte))
		}
		if err == nil {
			t.Errorf("%s is served", who)
		}
	}
}

// identity is a certificate as the host makes them.
func identity(t *testing.T, use x509.ExtKeyUsage) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "kconsume"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c, key
}

func transport(server, own *x509.Certificate, key *ecdsa.PrivateKey) credentials.TransportCredentials {
	c := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: "localhost", RootCAs: x509.NewCertPool()}
	c.RootCAs.AddCert(server)
	if own != nil {
		c.Certificates = []tls.Certificate{{Certificate: [][]byte{own.Raw}, PrivateKey: key, Leaf: own}}
	}
	return credentials.NewTLS(c)
}
