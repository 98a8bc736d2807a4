package secure

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func passwordFile(t *testing.T, secret string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	write(t, path, secret, 0o600)
	return path
}

func dial(t *testing.T, d *Dialer, address string) (*conn, error) {
	t.Helper()
	c, err := d.Dial(t.Context(), "tcp", address)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	return c.(*conn), nil
}

// A session is renewed before the request that comes when it is nearly over, on
// the same connection, and with what the file holds by then.
func TestSessionIsRenewedBetweenRequests(t *testing.T) {
	b := &broker{mechanisms: []string{"PLAIN"}, life: time.Hour}
	address := b.start(t)
	path := passwordFile(t, "one")
	d := New(Config{Settings: Settings{Mechanism: Plain, Username: "u", PasswordFile: path}})
	c, err := dial(t, d, address)
	if err != nil {
		t.Fatal(err)
	}
	if err := echo(t, c, 0, "first"); err != nil {
		t.Fatal(err)
	}
	if n := d.renewed.Load(); n != 0 {
		t.Fatalf("renewed %d times while the session is young", n)
	}
	if left := time.Until(c.renewAt); left < 45*time.Minute || left > 55*time.Minute {
		t.Errorf("a session of an hour is renewed in %v", left)
	}
	replace(t, path, "two")
	c.renewAt = time.Now()
	for i, text := range []string{"second", "third"} {
		if err := echo(t, c, int32(i+1), text); err != nil {
			t.Fatal(err)
		}
	}
	if n := d.renewed.Load(); n != 1 {
		t.Errorf("renewed %d times, want once", n)
	}
	if got := strings.Join(b.steps, "|"); got != "\x00u\x00one|\x00u\x00two" {
		t.Errorf("it authenticated with %q", got)
	}
	if len(b.conns) != 1 {
		t.Errorf("%d connections", len(b.conns))
	}
}

// A renewal has a deadline of its own, and leaves the client's as they were.
func TestRenewalKeepsDeadlines(t *testing.T) {
	b := &broker{mechanisms: []string{"PLAIN"}, life: time.Hour}
	address := b.start(t)
	d := New(Config{Settings: Settings{Mechanism: Plain, Username: "u", PasswordFile: passwordFile(t, "p")}})
	past := time.Now().Add(-time.Second)
	for what, set := range map[string]func(*conn) error{
		"read answer":   func(c *conn) error { return c.SetReadDeadline(past) },
		"write request": func(c *conn) error { return c.SetWriteDeadline(past) },
	} {
		c, err := dial(t, d, address)
		if err != nil {
			t.Fatal(err)
		}
		if err := set(c); err != nil {
			t.Fatal(err)
		}
		before := d.renewed.Load()
		c.renewAt = time.Now()
		if err := echo(t, c, 0, "x"); !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want a failure to %s", err, what)
		}
		if d.renewed.Load() != before+1 {
			t.Errorf("past the deadline to %s it was not renewed", what)
		}
	}
}

// While an answer is awaited the connection is its reader's: the renewal waits.
func TestSessionIsNotRenewedWhileAnAnswerIsAwaited(t *testing.T) {
	b := &broker{mechanisms: []string{"PLAIN"}, life: time.Hour}
	d := New(Config{Settings: Settings{Mechanism: Plain, Username: "u", PasswordFile: passwordFile(t, "p")}})
	c, err := dial(t, d, b.start(t))
	if err != nil {
		t.Fatal(err)
	}
	c.renewAt = time.Now()
	c.sent.pass([]byte{0, 0, 0, 1, 0}) // a request that nobody has answered
	if err := echo(t, c, 0, "x"); err != nil {
		t.Fatal(err)
	}
	if n := d.renewed.Load(); n != 0 {
		t.Errorf("renewed %d times between a request and its answer", n)
	}
	c.got.pass([]byte{0, 0, 0, 1, 0})
	// A request that is written in pieces is not cut by the renewal.
	request := []byte{0, 0, 0, 11, 0, 3, 0, 0, 0, 0, 0, 9, 0, 0, 'y'}
	for _, piece := range [][]byte{request[:2], request[2:7], request[7:]} {
		if _, err := c.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	answer := make([]byte, 9)
	if _, err := io.ReadFull(c, answer); err != nil || answer[8] != 'y' {
		t.Fatalf("%q, %v", answer, err)
	}
	if n := d.renewed.Load(); n != 1 {
		t.Errorf("renewed %d times, want once, before the request", n)
	}
}

func TestRefusedRenewalIsTold(t *testing.T) {
	b := &broker{mechanisms: []string{"PLAIN"}, life: time.Hour, accepts: func(step []byte) bool { return bytes.HasSuffix(step, []byte("one")) }}
	path := passwordFile(t, "one")
	d := New(Config{Settings: Settings{Mechanism: Plain, Username: "u", PasswordFile: path}})
	c, err := dial(t, d, b.start(t))
	if err != nil {
		t.Fatal(err)
	}
	replace(t, path, "hunter2")
	c.renewAt = time.Now()
	err = echo(t, c, 0, "x")
	if KindOf(err) != Denied || !strings.Contains(err.Error(), "refuses user u by PLAIN") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v", err)
	}
}

// What a port speaks is found out where it hangs up without a word.
func TestContradictions(t *testing.T) {
	issuer, server := newServer(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	write(t, ca, string(issuer.PEM()), 0o644)
	password := Settings{Mechanism: Plain, Username: "u", PasswordFile: passwordFile(t, "hunter2")}
	secured := func(s Settings) Settings { s.TLS, s.CAFile = true, ca; return s }
	for _, c := range []struct {
		name string
		port *broker
		s    Settings
		says string
	}{
		{"TLS to a plain port", &broker{}, secured(Settings{}), "does not speak TLS"},
		{"SASL to a port without", &broker{}, password, "takes no SASL at this port"},
		{"nothing to a SASL port", &broker{mechanisms: []string{"PLAIN", "SCRAM-SHA-512"}}, Settings{}, "wants SASL (PLAIN, SCRAM-SHA-512)"},
		{"TLS alone to a SASL_SSL port", &broker{tls: server, mechanisms: []string{"PLAIN"}}, secured(Settings{}), "wants SASL (PLAIN)"},
		{"nothing to a TLS port", &broker{tls: server}, Settings{}, "speaks TLS: add --tls"},
		{"SASL alone to a SASL_SSL port", &broker{tls: server, mechanisms: []string{"PLAIN"}}, password, "speaks TLS: add --tls"},
		{"another mechanism", &broker{mechanisms: []string{"SCRAM-SHA-512"}}, password, "does not take SASL PLAIN, but SCRAM-SHA-512"},
		{"both right", &broker{tls: server, mechanisms: []string{"PLAIN"}}, secured(password), ""},
		{"nothing wanted", &broker{}, Settings{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := dial(t, New(Config{Settings: c.s}), c.port.start(t))
			for i := int32(0); err == nil && i < 3; i++ {
				err = echo(t, conn, i, "x")
			}
			switch {
			case c.says == "" && err != nil:
				t.Error(err)
			case c.says == "":
			case err == nil || !strings.Contains(err.Error(), c.says) || KindOf(err) != Setting:
				t.Errorf("%v, want %q", err, c.says)
			case strings.Contains(err.Error(), "hunter2"):
				t.Errorf("the secret is in %v", err)
			}
		})
	}
}

// A listener of TLS answers plain words with one alert, or with two.
func TestAlertsAreKnown(t *testing.T) {
	alert := []byte{0x15, 3, 3, 0, 2, 2, 80}
	for _, said := range [][]byte{alert, append(alert, alert...)} {
		if err := (&caller{rw: saying(said)}).apiVersions(); !errors.Is(err, errSpeaksTLS) {
			t.Errorf("%d bytes: %v", len(said), err)
		}
	}
}

// A broker that is going down is not one that speaks otherwise.
func TestBrokerThatHangsUpIsNotBlamedOnSettings(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	defer func() { l.Close(); <-done }()
	for _, s := range []Settings{{}, {TLS: true}, {Mechanism: Plain, Username: "u", PasswordFile: passwordFile(t, "p")}} {
		c, err := dial(t, New(Config{Settings: s}), l.Addr().String())
		if err == nil {
			err = echo(t, c, 0, "x")
		}
		if err == nil || KindOf(err) != "" || !isGone(err) {
			t.Errorf("%+v: %v (%s)", s.Mechanism, err, KindOf(err))
		}
	}
}

// A broker that takes the connection and says nothing is given up in time, and
// named.
func TestMuteBroker(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for _, s := range []Settings{{TLS: true}, {Mechanism: Plain, Username: "u", PasswordFile: passwordFile(t, "p")}} {
		_, err := New(Config{Settings: s}).Dial(ctx, "tcp", l.Addr().String())
		if KindOf(err) != Unavailable && !errors.Is(err, context.DeadlineExceeded) && !os.IsTimeout(err) {
			t.Errorf("%v", err)
		}
	}
}

// However bytes are cut, the same messages are counted.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 9, 0, 0, 0, 0, 0, 0, 0, 2, 1}, uint8(3))
	f.Add([]byte{255, 255, 255, 255, 1}, uint8(1))
	f.Fuzz(func(t *testing.T, stream []byte, piece uint8) {
		var whole, cut frames
		whole.pass(stream)
		for rest := stream; len(rest) > 0; {
			n := min(len(rest), int(piece%7)+1)
			cut.pass(rest[:n])
			rest = rest[n:]
		}
		if whole.begun.Load() != cut.begun.Load() || whole.whole.Load() != cut.whole.Load() || whole.have != cut.have || whole.left != cut.left {
			t.Fatalf("%d, %d, %d left; in pieces %d, %d, %d left", whole.begun.Load(), whole.whole.Load(), whole.left, cut.begun.Load(), cut.whole.Load(), cut.left)
		}
		if whole.whole.Load() > whole.begun.Load() {
			t.Fatal("more messages have ended than begun")
		}
	})
}

// A broker may say anything: there is an error or an answer, and never much
// memory.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte{0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0})
	f.Add([]byte{0x15, 3, 3, 0, 2, 2, 80})
	f.Add([]byte{0, 0, 0, 10, 0, 0, 0, 1, 0, 0, 127, 255, 255, 255})
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		speak := func() *caller { return &caller{rw: saying(said), clientID: "c"} }
		if _, offered, err := speak().saslHandshake("PLAIN"); err == nil && len(offered) > len(said) {
			t.Fatal("more mechanisms than bytes")
		}
		if a, err := speak().saslAuthenticate([]byte("x")); err == nil && len(a.bytes) > len(said) {
			t.Fatal("more bytes than were sent")
		}
		d := New(Config{Settings: Settings{Mechanism: Plain, Username: "u", PasswordFile: "none"}})
		d.password.value, d.password.stamps = &credentials{Mechanism: bearer{"x"}, secret: "hunter2"}, []stamp{{}}
		if _, err := d.authenticate(t.Context(), saying(said), "b:1", tokenShare); err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Fatalf("the secret is in %v", err)
		}
	})
}

// saying is a connection whose other side says this and no more.
func saying(b []byte) io.ReadWriter {
	return struct {
		io.Reader
		io.Writer
	}{bytes.NewReader(b), io.Discard}
}
