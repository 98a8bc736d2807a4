package engine

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// conns are the connections of an engine. Cutting them ends, at once, whatever
// still waits for a broker that does not answer. Safe for concurrent use.
type conns struct {
	mu   sync.Mutex
	open map[*boundConn]struct{}
	cut  bool
	life context.Context // ends when they are cut
	end  context.CancelFunc
}

func newConns() *conns {
	life, end := context.WithCancel(context.Background())
	return &conns{open: map[*boundConn]struct{}{}, life: life, end: end}
}

// dialer opens connections that are cut with all others.
func (c *conns) dialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.life, cancel)() // a dial that nobody answers ends too
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		b := &boundConn{Conn: conn, all: c}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.cut {
			conn.Close()
			return nil, net.ErrClosed
		}
		c.open[b] = struct{}{}
		return b, nil
	}
}

// cutAll closes every connection; no other is opened from then on.
func (c *conns) cutAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	c.end()
	for b := range c.open {
		b.Conn.Close()
	}
	clear(c.open)
}

// connLife bounds a single read or write that the client sets no deadline
// for (SASL runs without): a mute broker would hang it for ever.
const connLife = 2 * time.Minute

// boundConn gives a deadline to reads and writes that have none. Several of the
// client's goroutines use a connection at once.
type boundConn struct {
	net.Conn
	all           *conns
	reads, writes atomic.Bool // the client has set a deadline of its own
}

func (c *boundConn) SetDeadline(t time.Time) error {
	c.reads.Store(!t.IsZero())
	c.writes.Store(!t.IsZero())
	return c.Conn.SetDeadline(t)
}

func (c *boundConn) SetReadDeadline(t time.Time) error {
	c.reads.Store(!t.IsZero())
	return c.Conn.SetReadDeadline(t)
}

func (c *boundConn) SetWriteDeadline(t time.Time) error {
	c.writes.Store(!t.IsZero())
	return c.Conn.SetWriteDeadline(t)
}

func (c *boundConn) Read(b []byte) (int, error) {
	if !c.reads.Load() {
		if err := c.Conn.SetReadDeadline(time.Now().Add(connLife)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Read(b)
}

func (c *boundConn) Write(b []byte) (int, error) {
	if !c.writes.Load() {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(connLife)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}

// Close closes the connection.
func (c *boundConn) Close() error {
	c.all.mu.Lock()
	delete(c.all.open, c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}
