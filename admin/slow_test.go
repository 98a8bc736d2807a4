package admin

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are made in this process.
type pipes struct {
	made   chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.made:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// Who sends a byte now and then is dropped in bounded time, in its headers and in
// its body alike.
func TestSlowCallersAreDropped(t *testing.T) {
	for _, c := range []struct {
		name   string
		send   string // at once
		within time.Duration
	}{
		{"headers", "GET / HTTP/1.1\r\nHost: kconsume\r\nX-Slow: ", headerTimeout},
		{"body", "POST / HTTP/1.1\r\nHost: kconsume\r\nContent-Length: 100000\r\n\r\n", readTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				l := &pipes{make(chan net.Conn), make(chan struct{})}
				served := make(chan error, 1)
				handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
				go func() { served <- Serve(ctx, l, handler, slog.New(slog.DiscardHandler)) }()
				here, there := net.Pipe()
				l.made <- there
				go func() { _, _ = io.Copy(io.Discard, here) }()
				began := time.Now()
				_, err := io.WriteString(here, c.send)
				for err == nil && time.Since(began) < time.Hour {
					time.Sleep(time.Second / 2)
					_, err = here.Write([]byte("x"))
				}
				if took := time.Since(began); took < c.within-time.Second || took > c.within+time.Second {
					t.Errorf("it was dropped after %v (%v), want %v", took, err, c.within)
				}
				stop()
				if err := <-served; err != nil && !strings.Contains(err.Error(), "closed") {
					t.Error(err)
				}
			})
		})
	}
}
