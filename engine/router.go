package engine

import (
	"context"
	"net"
	"slices"
	"sync"

	"github.com/segmentio/kafka-go"
)

// router is the transport of an engine. The client's own knows only topics
// that it was told of when it was made; a router can be told of more later.
// What is under way by then ends on the old connections.
type router struct {
	make      func(topics []string) *kafka.Transport
	principal func() string // whom the brokers take us for, "" = not known

	mu     sync.Mutex
	topics []string
	now    *kafka.Transport
	old    []*kafka.Transport
	closed bool
}

func newRouter(topics []string, make func([]string) *kafka.Transport) *router {
	return &router{make: make, topics: topics, now: make(topics)}
}

// RoundTrip implements kafka.RoundTripper.
func (r *router) RoundTrip(ctx context.Context, addr net.Addr, req kafka.Request) (kafka.Response, error) {
	r.mu.Lock()
	now, closed := r.now, r.closed
	r.mu.Unlock()
	if closed { // a write that was given up tries on by itself, and would connect anew
		return nil, net.ErrClosed
	}
	return now.RoundTrip(ctx, addr, req)
}

// Current is the transport that requests take now.
func (r *router) Current() *kafka.Transport {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

// Principal is whom the brokers take us for, "" = that is not known.
func (r *router) Principal() string { return r.principal() }

// know makes sure that a topic can be asked for and written to.
func (r *router) know(topic string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.topics, topic) {
		return
	}
	r.topics = append(slices.Clone(r.topics), topic)
	r.now.CloseIdleConnections()
	r.old = append(r.old, r.now)
	r.now = r.make(r.topics)
}

// close ends it: nothing is sent any more.
func (r *router) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, t := range append(r.old, r.now) {
		t.CloseIdleConnections()
	}
}
