package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// wire is what lies between one member and the brokers. Every connection of the
// member goes through it, request by request, and faults act on them there.
type wire struct {
	w    *world
	name string // the member's

	mu     sync.Mutex
	dead   bool // the member has crashed
	frozen *gate
	links  map[*link]bool
	rules  []*rule
}

// rule acts on requests of a kind or on their answers, left times.
type rule struct {
	fault Fault
	left  int
}

// gate holds up who passes until it opens. nil is open.
type gate struct{ opened chan struct{} }

func newGate() *gate { return &gate{make(chan struct{})} }

// pass waits until the gate is open, or returns false when end is closed.
func (g *gate) pass(end <-chan struct{}) bool {
	if g == nil {
		return true
	}
	select {
	case <-g.opened:
		return true
	case <-end:
		return false
	}
}

// link is one connection: client ↔ us ↔ broker. Two goroutines pass frames on. A
// request is not read before the last one is answered: the client holds a mutex
// while it waits for an answer, and who waits for a mutex stops virtual time;
// who waits to write does not.
type link struct {
	wire           *wire
	broker         int32
	client, server net.Conn // our ends
	closed         chan struct{}
	once           sync.Once
	asked          chan request  // what the broker is about to answer
	answered       chan struct{} // the client has the answer
}

// request is what we remember of a request until its answer.
type request struct {
	key     kmsg.Key
	version int16
	at      time.Time
	answer  *rule // what befalls its answer
	lost    bool  // its answer comes to nobody
	writes  []*forwardSent
}

var errRefused = errors.New("connection refused")

// dial is a member's engine.Config.Dial.
func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	id, err := brokerOf(address)
	if err != nil {
		return nil, err
	}
	if !w.gate(id).pass(ctx.Done()) {
		return nil, ctx.Err()
	}
	if w.w.refuses(id) || w.isDead() {
		return nil, errRefused
	}
	server, err := w.w.net.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	l := &link{wire: w, broker: id, client: far, server: server, closed: make(chan struct{}), asked: make(chan request, 1), answered: make(chan struct{}, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		l.close()
		return nil, errRefused
	}
	w.links[l] = true
	w.w.tasks.Go(l.requests)
	w.w.tasks.Go(l.answers)
	return near, nil
}

func (w *wire) isDead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead
}

// gate is what holds up traffic with a broker now, if anything does.
func (w *wire) gate(broker int32) *gate {
	w.mu.Lock()
	g := w.frozen
	w.mu.Unlock()
	if g != nil {
		return g
	}
	return w.w.paused(broker)
}

// crash cuts the member off for ever.
func (w *wire) crash() {
	w.mu.Lock()
	w.dead = true
	w.mu.Unlock()
	w.cut(-1)
}

// cut closes the connections to a broker, −1 = to all.
func (w *wire) cut(broker int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.links {
		if broker < 0 || l.broker == broker {
			l.close()
		}
	}
}

// freeze stops all traffic for a time.
func (w *wire) freeze(d time.Duration) {
	g := newGate()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.frozen != nil {
		return
	}
	w.frozen = g
	time.AfterFunc(d, func() {
		w.mu.Lock()
		w.frozen = nil
		w.mu.Unlock()
		close(g.opened)
	})
}

func (w *wire) addRule(f Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rules = append(w.rules, &rule{f, f.Count})
}

// heal takes back what is planned.
func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rules = nil
}

// rule is the one that takes a request of this kind, if any does.
func (w *wire) rule(key kmsg.Key) *rule {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, r := range w.rules {
		if r.fault.Key != key {
			continue
		}
		if r.left--; r.left == 0 {
			w.rules = append(w.rules[:i:i], w.rules[i+1:]...)
		}
		w.w.hit(r.fault.Kind, 1)
		w.w.history.fault(w.name, "hit: "+r.fault.String())
		return r
	}
	return nil
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.closed)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

func (l *link) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.closed:
	}
}

// requests passes on what the member sends.
func (l *link) requests() {
	defer l.close()
	defer l.forget()
	for {
		frame, err := readFrame(l.client)
		if err != nil {
			return
		}
		// What a member sends is judged by what it knows as it sends it, whatever
		// holds the request up from here.
		q := request{key: kmsg.Key(int16(binary.BigEndian.Uint16(frame[4:]))), version: int16(binary.BigEndian.Uint16(frame[6:])), at: time.Now()}
		if q.key == kmsg.Produce {
			q.writes = l.wire.w.forwardsSent(l.wire, frame)
		}
		if !l.wire.gate(l.broker).pass(l.closed) {
			return
		}
		if r := l.wire.rule(q.key); r != nil {
			switch r.fault.Kind {
			case LoseRequest:
				return
			case DelayRequest:
				l.wait(r.fault.For)
			default:
				q.answer = r
			}
		}
		if !l.send(q, frame) {
			return
		}
		select {
		case <-l.answered:
		case <-l.closed:
			return
		}
	}
}

// send hands a request to the broker, or hands it over twice. It returns false
// when the connection ends.
func (l *link) send(q request, frame []byte) bool {
	all := []request{q}
	if q.answer != nil && q.answer.fault.Kind == RepeatReq {
		all = []request{q, q}
		all[0].lost = q.answer.fault.Second
		all[1].lost = !q.answer.fault.Second
	}
	for _, one := range all {
		select {
		case l.asked <- one:
		case <-l.closed:
			return false
		}
		if _, err := l.server.Write(frame); err != nil {
			return false
		}
	}
	return true
}

// answers passes on what the broker sends.
func (l *link) answers() {
	defer l.close()
	for {
		frame, err := readFrame(l.server)
		if err != nil {
			return
		}
		q := <-l.asked
		if q.lost {
			continue
		}
		if q.answer != nil {
			switch q.answer.fault.Kind {
			case LoseAnswer:
				return
			case MuteAnswer:
				continue
			case DelayAnswer:
				l.wait(q.answer.fault.For)
			}
		}
		if q.key == kmsg.Fetch {
			frame = l.wire.w.sieve(q, frame)
		}
		if !l.wire.gate(l.broker).pass(l.closed) {
			return
		}
		if _, err := l.client.Write(frame); err != nil {
			return
		}
		if len(q.writes) > 0 {
			l.wire.w.forwardsAnswered(l.wire, q, frame)
		}
		l.answered <- struct{}{}
	}
}

func (l *link) forget() {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	delete(l.wire.links, l)
}

// maxFrame bounds a frame, in bytes.
const maxFrame = 64 << 20

// readFrame reads a request or an answer with its length in front.
func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > maxFrame {
		return nil, errors.New("a frame of a wrong size")
	}
	frame := make([]byte, 4+n)
	copy(frame, size[:])
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}
