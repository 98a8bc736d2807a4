package admin

import (
	"net"
	"sync"
)

// Limit bounds how many connections of l are open at a time. Further ones wait
// to be accepted.
func Limit(l net.Listener, n int) net.Listener {
	done := make(chan struct{})
	return &limited{Listener: l, slots: make(chan struct{}, n), done: done, end: sync.OnceFunc(func() { close(done) })}
}

type limited struct {
	net.Listener
	slots chan struct{}
	done  chan struct{} // closed by Close
	end   func()
}

func (l *limited) Close() error {
	l.end()
	return l.Listener.Close()
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &conn{Conn: c, free: sync.OnceFunc(func() { <-l.slots })}, nil
}

// conn gives its slot back when it is closed.
type conn struct {
	net.Conn
	free func()
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.free()
	return err
}

// CloseWrite lets a server say its last word to a client that still sends.
func (c *conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}
