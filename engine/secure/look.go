package secure

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A broker closes a connection that speaks otherwise than its port does, and
// says nothing: one that is going down does the same. So after such an end the
// port itself is looked at: what it speaks tells which it was.
const (
	lookTimeout = 2 * time.Second  // of one question
	lookAgain   = 10 * time.Second // how long a finding is good for
	mostLooks   = 1000             // addresses that are remembered
)

// looks are the latest findings, by address. The lock is never held over a
// question: who comes while one is asked waits for that finding alone.
type looks struct {
	mu    sync.Mutex
	found map[string]*finding
}

type finding struct {
	done chan struct{} // closed when what follows is set
	at   time.Time
	err  *Error // nil = what the port speaks is what we speak
}

// stale reports that a finding is no longer good. One that is yet to come is.
func (f *finding) stale() bool {
	select {
	case <-f.done:
		return time.Since(f.at) > lookAgain
	default:
		return false
	}
}

// of is the finding about an address, and whether the caller is to make it.
func (l *looks) of(address string) (f *finding, ours bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f = l.found[address]; f != nil && !f.stale() {
		return f, false
	}
	if l.found == nil || len(l.found) >= mostLooks {
		l.found = map[string]*finding{}
	}
	f = &finding{done: make(chan struct{})}
	l.found[address] = f
	return f, true
}

// suspect explains the sudden end of a connection. An error that tells more than
// that is returned as it is.
func (d *Dialer) suspect(ctx context.Context, address string, err error) error {
	if KindOf(err) != "" || !isGone(err) {
		return err
	}
	f, ours := d.looking.of(address)
	if ours {
		f.err, f.at = d.settings.contradicts(address, d.look(ctx, address)), time.Now()
		close(f.done)
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		return err
	}
	if f.err != nil {
		return f.err
	}
	return err
}

// isGone reports that the other side closed the connection without a word.
func isGone(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// speech is what a port speaks. The zero value is not known.
type speech struct {
	kafka bool
	tls   bool
	sasl  []string // the mechanisms, nil = none is wanted
}

// look asks a port in plain words first, then by TLS. Nothing secret is said.
func (d *Dialer) look(ctx context.Context, address string) speech {
	ctx = context.WithoutCancel(ctx)
	inPlain := d.ask(ctx, address, func(_ context.Context, c net.Conn) (net.Conn, error) { return c, nil })
	if inPlain.kafka {
		return inPlain
	}
	return d.ask(ctx, address, func(ctx context.Context, c net.Conn) (net.Conn, error) {
		// Only what it speaks is asked here: nothing is told, and nothing believed.
		t := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		return t, t.HandshakeContext(ctx)
	})
}

// noMechanism is one that no broker has: it answers with those that it has.
const noMechanism = "NONE"

func (d *Dialer) ask(ctx context.Context, address string, wrap func(context.Context, net.Conn) (net.Conn, error)) speech {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	raw, err := d.dial(ctx, "tcp", address)
	if err != nil {
		return speech{}
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	c, err := wrap(ctx, raw)
	if err != nil {
		return speech{tls: alertOf(err) != ""}
	}
	_, secured := c.(*tls.Conn)
	code, offered, err := (&caller{rw: c, clientID: d.clientID}).saslHandshake(noMechanism)
	switch {
	case errors.Is(err, errSpeaksTLS):
		return speech{tls: true}
	case err != nil:
		return speech{tls: secured}
	case code == codeUnsupportedMechanism:
		return speech{kafka: true, tls: secured, sasl: offered}
	}
	return speech{kafka: true, tls: secured}
}

// contradicts says what to do where a port speaks otherwise than the settings,
// nil if it does not, or if that is not known.
func (s Settings) contradicts(address string, port speech) *Error {
	switch {
	case !port.kafka && !port.tls:
		return nil
	case s.TLS && !port.tls:
		return setting("broker %s does not speak TLS: take the port of its TLS listener, or remove --tls", address)
	case !s.TLS && port.tls:
		return wantsTLS(address)
	case s.Mechanism == "" && len(port.sasl) > 0:
		return setting("broker %s wants SASL (%s): give --sasl-mechanism, with --sasl-username and --sasl-password-file", address, words(strings.Join(port.sasl, ", ")))
	}
	return nil
}

func wantsTLS(address string) *Error {
	return setting("broker %s speaks TLS: add --tls, and --tls-ca where its authority is not one that this host knows", address)
}
