package plugin

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"

	"github.com/kconsume/kconsume/plugin/internal/wire"
)

// openTLS returns how to serve TLS on the socket, nil where kconsume does not
// want it. Like the lifeline it comes before anything else is opened. What the
// environment says is taken out of it: it is true for this process only.
func openTLS() (*tls.Config, error) {
	word, ok := os.LookupEnv(wire.TLSKey)
	if !ok {
		return nil, nil
	}
	fd, err := strconv.Atoi(word)
	var stat syscall.Stat_t
	if err != nil || fd <= wire.LifelineFD || syscall.Fstat(fd, &stat) != nil || stat.Mode&syscall.S_IFMT != syscall.S_IFIFO {
		return nil, fmt.Errorf("find the certificates for TLS: %s=%q names no pipe; start the handler with kconsume", wire.TLSKey, word)
	}
	syscall.CloseOnExec(fd)
	pipe := os.NewFile(uintptr(fd), "certificates")
	defer pipe.Close()
	if err := os.Unsetenv(wire.TLSKey); err != nil {
		return nil, fmt.Errorf("read the certificates for TLS: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(pipe, wire.MaxTLSBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the certificates for TLS: %w", err)
	}
	return serverTLS(text)
}

// serverTLS reads what the host wrote: the server's certificate, its key, and
// the only certificate that is accepted from a client.
func serverTLS(text []byte) (*tls.Config, error) {
	if len(text) > wire.MaxTLSBytes {
		return nil, fmt.Errorf("read the certificates for TLS: more than %d bytes", wire.MaxTLSBytes)
	}
	own, rest := pem.Decode(text)
	key, rest := pem.Decode(rest)
	client, _ := pem.Decode(rest)
	if client == nil { // then perhaps another one is missing, too
		return nil, errors.New("read the certificates for TLS: not a certificate, a key and a certificate in PEM; start the handler with a matching kconsume")
	}
	pair, err := tls.X509KeyPair(pem.EncodeToMemory(own), pem.EncodeToMemory(key))
	if err != nil {
		return nil, fmt.Errorf("read the certificates for TLS: the handler's own: %w", err)
	}
	pinned, err := x509.ParseCertificate(client.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the certificates for TLS: kconsume's: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(pinned)
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{pair},
		// The certificate is no authority: nothing but itself is verified by it.
		ClientCAs:  pool,
		ClientAuth: tls.RequireAndVerifyClientCert,
	}, nil
}
