package secure

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// sessionShare of its life a session is used before it is renewed. A broker
// closes a connection on which a request comes after the end of its session.
const sessionShare = 0.85

// renewTimeout bounds the renewal of a session. Nobody but the request that
// follows it waits meanwhile.
const renewTimeout = 10 * time.Second

// conn is a connection to a broker. It renews its SASL session between two
// requests, and explains what ends a connection that has not answered yet.
//
// The Kafka client writes requests one after the other, each whole, and reads
// only what it has asked for. So where all that was asked is answered, and the
// next request is about to be written, nobody reads, and the connection is free
// for the renewal.
type conn struct {
	net.Conn
	d       *Dialer
	address string

	sent, got frames
	ends      bool      // the session does; set before the connection is in use
	renewAt   time.Time // the writer's own

	mu              sync.Mutex
	readBy, writeBy time.Time // the deadlines that the client has set
}

// proven is after how many answers a connection is what it should be. A broker
// that wants SASL answers one request without it, and closes on the second.
const proven = 2

// Read reads answers.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	answered := c.got.whole.Load()
	if answered >= proven && !c.ends {
		return n, err
	}
	if answered == 0 && c.got.atStart() && isAlert(b[:n]) {
		return 0, wantsTLS(c.address)
	}
	c.got.pass(b[:n])
	if err != nil && answered < proven && c.d.settings.Mechanism == "" {
		return n, c.d.suspect(context.Background(), c.address, err)
	}
	return n, err
}

// Write writes requests.
func (c *conn) Write(b []byte) (int, error) {
	if !c.ends {
		return c.Conn.Write(b)
	}
	// A request that is written in part has begun, too.
	if c.sent.begun.Load() == c.got.whole.Load() && !time.Now().Before(c.renewAt) {
		if err := c.renew(); err != nil {
			return 0, err
		}
	}
	c.sent.pass(b)
	return c.Conn.Write(b)
}

// renew authenticates again on the same connection.
func (c *conn) renew() error {
	ctx, cancel := context.WithTimeout(context.Background(), renewTimeout)
	defer cancel()
	by, _ := ctx.Deadline()
	if err := c.Conn.SetDeadline(by); err != nil {
		return fmt.Errorf("renew the SASL session: %w", err)
	}
	life, err := c.d.authenticate(ctx, c.Conn, c.address, renewalShare)
	if err != nil {
		return fmt.Errorf("renew the SASL session: %w", err)
	}
	c.d.renewed.Add(1)
	c.lasts(life)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.Conn.SetReadDeadline(c.readBy); err != nil {
		return fmt.Errorf("renew the SASL session: %w", err)
	}
	if err := c.Conn.SetWriteDeadline(c.writeBy); err != nil {
		return fmt.Errorf("renew the SASL session: %w", err)
	}
	return nil
}

// lasts notes how long a session that begins now is good for, 0 = for ever.
// Brokers let it be renewed once a second.
func (c *conn) lasts(life time.Duration) {
	if life == 0 {
		life = mostLife
	}
	c.renewAt = time.Now().Add(max(time.Second, time.Duration(float64(life)*sessionShare)))
}

func (c *conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readBy, c.writeBy = t, t
	return c.Conn.SetDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readBy = t
	return c.Conn.SetReadDeadline(t)
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeBy = t
	return c.Conn.SetWriteDeadline(t)
}

// frames counts the messages in one direction, each with its length in four
// bytes in front. One goroutine passes bytes; the counts may be read by others.
type frames struct {
	begun, whole atomic.Int64
	head         [4]byte
	have         int // bytes of the head
	left         int // bytes of the message that are still to come
}

// atStart reports that no byte has passed.
func (f *frames) atStart() bool { return f.begun.Load() == 0 }

func (f *frames) pass(b []byte) {
	for len(b) > 0 {
		if f.left > 0 {
			n := min(f.left, len(b))
			b = b[n:]
			if f.left -= n; f.left == 0 {
				f.whole.Add(1)
			}
			continue
		}
		if f.have == 0 {
			f.begun.Add(1)
		}
		n := copy(f.head[f.have:], b)
		b = b[n:]
		if f.have += n; f.have < len(f.head) {
			return
		}
		f.have = 0
		if f.left = int(binary.BigEndian.Uint32(f.head[:])); f.left == 0 {
			f.whole.Add(1)
		}
	}
}
