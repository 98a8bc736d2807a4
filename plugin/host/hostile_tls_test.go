package host_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/kconsume/kconsume/plugin/host"
	"github.com/kconsume/kconsume/plugin/internal/wire"
)

// TestTLSOnTheSocket goes through a handler's whole life, with a pin, which
// takes the descriptor that the certificates have without one.
func TestTLSOnTheSocket(t *testing.T) {
	for _, pinned := range []bool{false, true} {
		t.Run(fmt.Sprintf("pinned=%v", pinned), func(t *testing.T) {
			l := newLab(t, "well", 0)
			l.cfg.TLS = true
			if pinned {
				b, err := os.ReadFile(os.Args[0])
				if err != nil {
					t.Fatal(err)
				}
				l.cfg.SHA256 = fmt.Sprintf("%x", sha256.Sum256(b))
			}
			if hello, err := host.Inspect(t.Context(), l.cfg); err != nil || hello.Name != "hostile" {
				t.Fatalf("%+v, %v", hello, err)
			}
			l.start()
			l.send(0, 0, good, exit, good)
			if !l.await(func() bool { return len(l.acked) == 3 }) {
				t.Errorf("not answered: %+v", l.host.Status())
			}
			if _, err := l.host.Reload(t.Context(), host.ReloadConfig{}); err != nil {
				t.Error(err)
			}
			if s := l.host.Status(); s.Restarts != 1 || s.Upgrades != 1 {
				t.Errorf("%+v", s)
			}
			if err := l.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTLSKeepsOthersOut tries what another process of this user could: the
// directory does not keep it out.
func TestTLSKeepsOthersOut(t *testing.T) {
	l := newLab(t, "well", 0)
	l.cfg.TLS = true
	l.start()
	found, err := filepath.Glob(filepath.Join(l.cfg.SocketDir, "*", "*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("sockets %v, %v", found, err)
	}
	for name, c := range map[string]credentials.TransportCredentials{
		"plain":                  insecure.NewCredentials(),
		"without a certificate":  credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}),
		"with one of its making": credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{*ownCertificate()}}),
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := grpc.NewClient("unix:"+found[0], append(wire.DialOptions(), grpc.WithTransportCredentials(c))...)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			stream, err := wire.Deliver(ctx, conn)
			if err == nil {
				err = stream.RecvMsg(new(wire.PluginFrame))
			}
			if status.Code(err) != codes.Unavailable {
				t.Errorf("it is answered: %v", err)
			}
		})
	}
	l.send(0, 0, good)
	if !l.await(func() bool { return len(l.acked) == 1 }) {
		t.Errorf("not answered: %+v", l.host.Status())
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", l.host.Status().PID))
	if err != nil {
		t.Fatal(err)
	}
	for v := range strings.SplitSeq(string(environ), "\x00") {
		if name, value, _ := strings.Cut(v, "="); strings.Contains(v, "-----BEGIN") || name == wire.TLSKey && value != "4" {
			t.Errorf("the handler's environment has %s", v)
		}
	}
	if !strings.Contains(string(environ), wire.TLSKey+"=4\x00") {
		t.Error("the handler is not told of its certificates")
	}
}
