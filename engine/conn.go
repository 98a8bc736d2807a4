package engine

import (
	"net"
	"sync/atomic"
	"time"
)

// connLife bounds a single read or write that the client sets no deadline
// for (SASL runs without): a mute broker would hang it for ever.
const connLife = 2 * time.Minute

// boundConn gives a deadline to reads and writes that have none. Several of the
// client's goroutines use a connection at once.
type boundConn struct {
	net.Conn
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
