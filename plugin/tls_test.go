package plugin

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kconsume/kconsume/plugin/internal/wire"
)

// selfSigned makes a certificate for servers and clients, and its key.
func selfSigned(t *testing.T) (certificate, key *pem.Block) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{wire.TLSServerName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return &pem.Block{Type: "CERTIFICATE", Bytes: der}, &pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}
}

func bundle(blocks ...*pem.Block) string {
	var b strings.Builder
	for _, block := range blocks {
		b.Write(pem.EncodeToMemory(block))
	}
	return b.String()
}

func TestServerTLS(t *testing.T) {
	own, key := selfSigned(t)
	client, clientKey := selfSigned(t)
	for _, c := range []struct{ name, text, want string }{
		{"as it should be", bundle(own, key, client), ""},
		{"with text between", "own:\n" + bundle(own) + "key:\n" + bundle(key) + "client:\n" + bundle(client), ""},
		{"empty", "", "not a certificate, a key and a certificate"},
		{"no client", bundle(own, key), "not a certificate, a key and a certificate"},
		{"another order", bundle(key, own, client), "the handler's own"},
		{"another key", bundle(own, clientKey, client), "the handler's own"},
		{"a key for a client", bundle(own, key, clientKey), "kconsume's"},
		{"too much", bundle(own, key, client) + strings.Repeat("\n", wire.MaxTLSBytes), "more than 4096 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, err := serverTLS([]byte(c.text))
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want == "" && (config.ClientAuth != tls.RequireAndVerifyClientCert || config.MinVersion != tls.VersionTLS13):
				t.Errorf("config %+v", config)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestOpenTLS(t *testing.T) {
	own, key := selfSigned(t)
	client, _ := selfSigned(t)
	if config, err := openTLS(); config != nil || err != nil {
		t.Errorf("without a variable: %v, %v", config, err)
	}
	for _, word := range []string{"", "x", "-1", "0", "1", "3", "1048576"} {
		t.Run(fmt.Sprintf("%q", word), func(t *testing.T) {
			t.Setenv(wire.TLSKey, word)
			if _, err := openTLS(); err == nil || !strings.Contains(err.Error(), "names no pipe") {
				t.Errorf("error %v", err)
			}
		})
	}
	t.Run("a pipe", func(t *testing.T) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteString(bundle(own, key, client)); err != nil {
			t.Fatal(err)
		}
		w.Close()
		// Its number is used up here: the file that r is must not close it again.
		number := dup(t, r)
		t.Setenv(wire.TLSKey, strconv.Itoa(number))
		config, err := openTLS()
		if err != nil || config == nil {
			t.Fatal(config, err)
		}
		if word, ok := os.LookupEnv(wire.TLSKey); ok {
			t.Errorf("what this process starts finds %s=%s", wire.TLSKey, word)
		}
	})
	t.Run("no pipe", func(t *testing.T) {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		t.Setenv(wire.TLSKey, strconv.Itoa(int(f.Fd())))
		if _, err := openTLS(); err == nil || !strings.Contains(err.Error(), "names no pipe") {
			t.Errorf("error %v", err)
		}
	})
}

// dup closes f and returns a descriptor of the same file that is nobody's.
func dup(t *testing.T, f *os.File) int {
	t.Helper()
	number, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, wire.LifelineFD+1)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	return number
}
