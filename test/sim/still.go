package sim

import (
	"context"
	"net"
	"sync"
	"time"
)

// still lets a member stand still as a stopped process does: nothing that it has
// to do with the outside goes on, in either direction, and its clock jumps. What
// the brokers send meanwhile waits for it, as in the buffers of a kernel, and what
// it had sent before arrives.
//
// Goroutines cannot be stopped from outside, so each of a member's is caught where
// it must come by: the owner loop where it asks its Deliverer for answers, which it
// does each time before it sleeps; what talks to brokers at each read, write and
// dial, going in and coming out; handlers when they are called and when they have
// waited. Timers do fire on time, but what they wake gets no further than that.
type still struct {
	mu     sync.Mutex
	wanted time.Duration // > 0 = it is to stand still for so long from the loop's next turn on
	stands bool
	loop   *gate // nil = open
	calls  *gate // of handlers
	rest   *gate
	thawed time.Time // the last time it went on
	dead   chan struct{}
	begins func(d time.Duration) // is told; it may not come back here
	ends   func(stood time.Duration)
}

func newStill() *still { return &still{dead: make(chan struct{})} }

// instant is no time at all, but one that passes only when nobody is on the run
// any more: between stopping the loop and stopping the rest, so that nobody is
// caught holding a mutex that another one waits for.
const instant = 137 * time.Nanosecond

// callsFirst is how much earlier handlers go on than the rest: the checker has to
// know a verdict before the engine does.
const callsFirst = time.Millisecond

// want has the member stand still for a time, if it does not already.
func (s *still) want(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stands {
		s.wanted = d
	}
}

// turn is called by the owner loop before it sleeps.
func (s *still) turn() {
	s.mu.Lock()
	if d := s.wanted; d > 0 {
		s.wanted = 0
		s.begin(d)
	}
	g := s.loop
	s.mu.Unlock()
	g.pass(s.dead)
}

func (s *still) begin(d time.Duration) {
	s.begins(d)
	loop, calls, rest := newGate(), newGate(), newGate()
	s.stands, s.loop = true, loop
	locked := func(f func()) func() {
		return func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			f()
		}
	}
	time.AfterFunc(instant, locked(func() { s.calls, s.rest = calls, rest }))
	time.AfterFunc(d, locked(func() {
		s.calls = nil
		close(calls.opened)
	}))
	time.AfterFunc(d+callsFirst, func() {
		locked(func() { s.stands, s.loop, s.rest, s.thawed = false, nil, nil, time.Now() })()
		s.ends(d)
		close(loop.opened)
		close(rest.opened)
	})
}

// pass holds up what talks to brokers, and answers of handlers.
func (s *still) pass() {
	s.mu.Lock()
	g := s.rest
	s.mu.Unlock()
	g.pass(s.dead)
}

// passCall holds up a handler.
func (s *still) passCall() {
	s.mu.Lock()
	g := s.calls
	s.mu.Unlock()
	g.pass(s.dead)
}

// await waits until it does not stand still.
func (s *still) await() {
	s.mu.Lock()
	g := s.loop
	s.wanted = 0
	s.mu.Unlock()
	g.pass(s.dead)
}

// die ends it for ever.
func (s *still) die() { close(s.dead) }

// since is how long it stood still, as far as that was after a time; it counts
// from there to when it last went on.
func (s *still) since(t time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stands {
		return time.Since(t)
	}
	return max(0, s.thawed.Sub(t))
}

// stillConn is a connection of a member that may stand still.
type stillConn struct {
	net.Conn
	still *still
}

func (c *stillConn) Read(b []byte) (int, error) {
	c.still.pass()
	n, err := c.Conn.Read(b)
	c.still.pass()
	return n, err
}

func (c *stillConn) Write(b []byte) (int, error) {
	c.still.pass()
	n, err := c.Conn.Write(b)
	c.still.pass()
	return n, err
}

// dial is the member's way to the brokers.
func (s *still) dial(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		s.pass()
		c, err := dial(ctx, network, address)
		s.pass()
		if err != nil {
			return nil, err
		}
		return &stillConn{c, s}, nil
	}
}
