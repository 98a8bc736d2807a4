package plugin

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	oteltrace "go.opentelemetry.io/otel/trace"
)

// call is one delivery under way. Its context is its handler's; in a batch the
// batch has one of its own, and of the call's only the deadline counts.
type call struct {
	callContext
	delivery *Delivery
	byHost   atomic.Bool // the host has cancelled it

	// Owned by Pool.mu: answered before the handler was called.
	settled bool
}

func (c *call) cancelled() bool { return c.byHost.Load() }

// callContext is what a handler gets: a context without a timer of its own,
// because Pool.expire ends it in time, and without a channel until somebody asks
// for Done. A handler that does not look at its context costs nothing.
//
// It is used once, so that who keeps the context past the handler's return sees
// it cancelled for ever.
type callContext struct {
	// deadline is set before the handler is called; zero = none.
	deadline time.Time
	draining <-chan struct{} // see Draining
	message  *Message        // whose trace it carries; nil: a batch's, which has many

	mu       sync.Mutex // guards what follows
	done     chan struct{}
	err      error // nil = live
	children []*child
	values   context.Context // what Value knows besides; nil = nobody has asked
}

// child is something to run when the context ends.
type child struct{ run func() }

// Deadline is when the delivery's time is over.
func (c *callContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// Value knows what Draining asks for, and the span to continue, as
// OpenTelemetry looks for it: by a key that only its own package has.
func (c *callContext) Value(key any) any {
	switch {
	case key == (drainingKey{}):
		return c.draining
	case c.message == nil:
		return nil
	}
	c.mu.Lock()
	if c.values == nil {
		c.values = context.Background()
		if sc := c.message.TraceContext().SpanContext(); sc.IsValid() {
			c.values = oteltrace.ContextWithRemoteSpanContext(c.values, sc)
		}
	}
	known := c.values
	c.mu.Unlock()
	return known.Value(key)
}

// Done is closed at the deadline, when the host cancels the delivery, or when
// the handler has returned.
func (c *callContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

// Err tells whether it was the deadline.
func (c *callContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && c.expired(time.Now()) {
		c.end(context.DeadlineExceeded)
	}
	return c.err
}

// AfterFunc runs f in its own goroutine once the context has ended, unless stop
// is called first and tells so. Package context looks for this method: without
// it each context made from this one would cost a goroutine.
func (c *callContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	k := &child{run: f}
	c.children = append(c.children, k)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.children, k)
		if i < 0 {
			return false
		}
		c.children = slices.Delete(c.children, i, i+1)
		return true
	}
}

// end is for whoever holds c.mu.
func (c *callContext) end(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	if c.done != nil {
		close(c.done)
	}
	for _, k := range c.children {
		go k.run()
	}
	c.children = nil
}

// cancel is for the host's cancelling, and for the end when the handler has
// returned.
func (c *callContext) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(context.Canceled)
}

// expire is the deadline's.
func (c *callContext) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(context.DeadlineExceeded)
}

func (c *callContext) expired(now time.Time) bool {
	return !c.deadline.IsZero() && !now.Before(c.deadline)
}
