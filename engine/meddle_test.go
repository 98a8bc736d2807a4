package engine_test

import (
	"context"
	"encoding/binary"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// meddler passes an engine's connections on. It can change what brokers answer
// to fetches, which no broker would do of itself, and cut every connection for
// good, as the death of the process would.
type meddler struct {
	w *world

	mu     sync.Mutex
	change func(topic string, p *kmsg.FetchResponseTopicPartition) // nil = nothing
	dead   bool
	open   []net.Conn
}

// dial is an engine.Config.Dial.
func (m *meddler) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := m.w.net.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		conn.Close()
		return nil, net.ErrClosed
	}
	m.open = append(m.open, conn)
	return &meddled{Conn: conn, m: m, fetches: map[uint32]int16{}}, nil
}

func (m *meddler) set(change func(topic string, p *kmsg.FetchResponseTopicPartition)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.change = change
}

// cut ends all connections, without a word to the group.
func (m *meddler) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
	for _, c := range m.open {
		c.Close()
	}
}

// meddled is one connection. One goroutine writes and one reads.
type meddled struct {
	net.Conn
	m *meddler

	mu      sync.Mutex
	fetches map[uint32]int16 // versions, by the ids of the requests under way

	out, in, ready []byte // a request begun, an answer begun, an answer not yet read
}

func (c *meddled) Write(b []byte) (int, error) {
	c.out = append(c.out, b...)
	for {
		frame, rest, whole := cutFrame(c.out)
		if !whole {
			break
		}
		if kmsg.Key(binary.BigEndian.Uint16(frame[4:])) == kmsg.Fetch {
			c.mu.Lock()
			c.fetches[binary.BigEndian.Uint32(frame[8:])] = int16(binary.BigEndian.Uint16(frame[6:]))
			c.mu.Unlock()
		}
		c.out = append([]byte(nil), rest...)
	}
	return c.Conn.Write(b)
}

func (c *meddled) Read(b []byte) (int, error) {
	for len(c.ready) == 0 {
		if frame, rest, whole := cutFrame(c.in); whole {
			c.ready, c.in = c.meddle(frame), append([]byte(nil), rest...)
			break
		}
		more := make([]byte, 64<<10)
		n, err := c.Conn.Read(more)
		c.in = append(c.in, more[:n]...)
		if n == 0 && err != nil {
			return 0, err
		}
	}
	n := copy(b, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

// meddle changes an answer, if it is one to a fetch.
func (c *meddled) meddle(frame []byte) []byte {
	id := binary.BigEndian.Uint32(frame[4:])
	c.mu.Lock()
	version, fetch := c.fetches[id]
	delete(c.fetches, id)
	c.mu.Unlock()
	c.m.mu.Lock()
	change := c.m.change
	c.m.mu.Unlock()
	if !fetch || change == nil {
		return frame
	}
	res := kmsg.NewPtrFetchResponse()
	res.SetVersion(version)
	if err := res.ReadFrom(frame[8:]); err != nil {
		panic(err) // kfake's answer
	}
	for i := range res.Topics {
		for j := range res.Topics[i].Partitions {
			change(res.Topics[i].Topic, &res.Topics[i].Partitions[j])
		}
	}
	out := res.AppendTo(append(make([]byte, 4), frame[4:8]...))
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}

// cutFrame cuts a whole frame, with its length, from the front.
func cutFrame(b []byte) (frame, rest []byte, whole bool) {
	if len(b) < 4 {
		return nil, b, false
	}
	n := 4 + int(binary.BigEndian.Uint32(b))
	if len(b) < n {
		return nil, b, false
	}
	return b[:n], b[n:], true
}
