package lab

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/kconsume/kconsume/engine/record"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Produce is a write on its way to a broker.
type Produce struct {
	Client string // client id of who writes
	Topic  string // the first one
	Keys   []string
}

// When is the moment of a trap.
type When int

const (
	Before When = iota // the broker has not seen the write, and never will
	After              // the broker has answered; who wrote never hears of it
	During             // the broker has the write's bytes; nobody waits for its answer
)

func (w When) String() string { return [...]string{"before", "after", "during"}[w] }

// Trap is what happens instead of a write, or of its answer. The connection is
// closed then.
type Trap struct {
	When When
	Do   func()
}

// Proxy stands between clients and one broker, and lets a test do something at
// an exact write.
type Proxy struct {
	Address string

	listener net.Listener
	traffic  sync.WaitGroup
	mu       sync.Mutex
	target   string
	watches  map[string]func(Produce) *Trap
	open     map[net.Conn]bool
	closed   bool
}

// NewProxy listens; it goes nowhere before SetTarget.
func NewProxy() (*Proxy, error) {
	l, err := net.Listen("tcp", loopback())
	if err != nil {
		return nil, fmt.Errorf("listen for clients: %w", err)
	}
	p := &Proxy{Address: l.Addr().String(), listener: l, watches: map[string]func(Produce) *Trap{}, open: map[net.Conn]bool{}}
	p.traffic.Go(p.accept)
	return p, nil
}

// SetTarget names the broker.
func (p *Proxy) SetTarget(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = address
}

// Watch asks about every write of a client, by its client id. The watch says what
// is to happen at it, nil = it goes through. A nil watch ends it.
func (p *Proxy) Watch(client string, watch func(Produce) *Trap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if watch == nil {
		delete(p.watches, client)
		return
	}
	p.watches[client] = watch
}

// Close ends all connections.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.open {
		_ = c.Close() // it may be closed already
	}
	p.mu.Unlock()
	p.traffic.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.traffic.Go(func() { p.serve(c) })
	}
}

// hold keeps a connection to be closed with the proxy.
func (p *Proxy) hold(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.open[c] = true
	return true
}

func (p *Proxy) drop(c net.Conn) {
	_ = c.Close() // the other side may have been faster
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

func (p *Proxy) serve(client net.Conn) {
	defer p.drop(client)
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	if !p.hold(client) || target == "" {
		return
	}
	broker, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer p.drop(broker)
	if !p.hold(broker) {
		return
	}
	c := &way{proxy: p, client: client, broker: broker, waiting: map[uint32]*Trap{}}
	var back sync.WaitGroup
	back.Go(func() {
		c.answers()
		_ = client.Close() // ends requests, too
	})
	c.requests()
	_ = broker.Close() // ends answers, too
	back.Wait()
}

// way is one connection through the proxy.
type way struct {
	proxy          *Proxy
	client, broker net.Conn

	mu      sync.Mutex
	waiting map[uint32]*Trap // by correlation id
}

// frame reads one request or answer, its length included.
func frame(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(4)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 4+binary.BigEndian.Uint32(head))
	_, err = io.ReadFull(r, b)
	return b, err
}

func (c *way) requests() {
	in := bufio.NewReaderSize(c.client, 64<<10)
	for {
		b, err := frame(in)
		if err != nil {
			return
		}
		trap, id := c.proxy.ask(b)
		if trap != nil && trap.When == Before {
			trap.Do()
			return
		}
		if trap != nil && trap.When == After {
			c.mu.Lock()
			c.waiting[id] = trap
			c.mu.Unlock()
		}
		if _, err := c.broker.Write(b); err != nil {
			return
		}
		if trap != nil && trap.When == During {
			trap.Do()
			return
		}
	}
}

func (c *way) answers() {
	in := bufio.NewReaderSize(c.broker, 64<<10)
	for {
		b, err := frame(in)
		if err != nil || len(b) < 8 {
			return
		}
		c.mu.Lock()
		trap := c.waiting[binary.BigEndian.Uint32(b[4:])]
		c.mu.Unlock()
		if trap != nil {
			trap.Do()
			return
		}
		if _, err := c.client.Write(b); err != nil {
			return
		}
	}
}

// ask reads a request that is a write, and asks who watches its client.
func (p *Proxy) ask(b []byte) (*Trap, uint32) {
	const produce = 0
	if len(b) < 14 || binary.BigEndian.Uint16(b[4:]) != produce {
		return nil, 0
	}
	version, id := int16(binary.BigEndian.Uint16(b[6:])), binary.BigEndian.Uint32(b[8:])
	n := int(int16(binary.BigEndian.Uint16(b[12:])))
	if n < 0 || len(b) < 14+n {
		return nil, id
	}
	client, body := string(b[14:14+n]), b[14+n:]
	p.mu.Lock()
	watch := p.watches[client]
	p.mu.Unlock()
	if watch == nil {
		return nil, id
	}
	req := kmsg.NewPtrProduceRequest()
	req.Version = version
	if req.IsFlexible() {
		body = body[1:] // no tags
	}
	if err := req.ReadFrom(body); err != nil || len(req.Topics) == 0 {
		return nil, id
	}
	w := Produce{Client: client, Topic: req.Topics[0].Topic}
	for _, part := range req.Topics[0].Partitions {
		set, _ := record.Decode(part.Records, record.Options{}) // what cannot be read has no keys
		for _, r := range set.Records {
			w.Keys = append(w.Keys, string(r.Key))
		}
	}
	return watch(w), id
}
