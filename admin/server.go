// Package admin is a daemon's HTTP API.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Limits of a request.
const (
	maxHeader      = 16 << 10
	maxBody        = 1 << 20
	headerTimeout  = 5 * time.Second
	readTimeout    = 10 * time.Second
	handlerTimeout = 20 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = time.Minute
	// drainTimeout is what requests get to end in once the server stops.
	drainTimeout = 2 * time.Second
)

// Peer is the process that made a request.
type Peer struct{ UID, GID, PID int }

type peerKey struct{}

// PeerOf is who made a request, as the kernel tells it. It is not known where
// the request did not come over a unix socket.
func PeerOf(ctx context.Context) (Peer, bool) {
	p, ok := ctx.Value(peerKey{}).(Peer)
	return p, ok
}

// Serve answers requests until ctx ends and those that were begun have been
// answered, or two seconds have passed. It closes l.
func Serve(ctx context.Context, l net.Listener, h http.Handler, logger *slog.Logger) error {
	s := &http.Server{
		Handler:           http.MaxBytesHandler(h, maxBody),
		MaxHeaderBytes:    maxHeader,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if l, ok := c.(*conn); ok {
				c = l.Conn
			}
			if u, ok := c.(*net.UnixConn); ok {
				if p, ok := readPeer(u); ok {
					return context.WithValue(ctx, peerKey{}, p)
				}
			}
			return ctx
		},
	}
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(l) }()
	select {
	case err := <-failed:
		return errors.Join(fmt.Errorf("serve %s: %w", l.Addr(), err), s.Close())
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	err := s.Shutdown(stop)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.Close()
	}
	<-failed
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("stop serving %s: %w", l.Addr(), err)
	}
	return nil
}
