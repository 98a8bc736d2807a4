package plugin

import (
	"context"
	"slices"
	"sync"
	"time"
)

// call is one delivery under way, and the context that its handler gets: a
// context without a timer of its own, because Pool.expire ends it in time, and
// without a channel until somebody asks for Done. A handler that does not look
// at its context costs nothing.
//
// A call is used once, so that who keeps the context past the handler's return
// sees it cancelled for ever.
type call struct {
	delivery *Delivery
	// deadline is set before the handler is called; zero = none.
	deadline time.Time

	mu       sync.Mutex // guards what follows
	done     chan struct{}
	err      error // nil = live
	byHost   bool  // the host has cancelled it
	children []*child

	// Owned by Pool.mu: answered, before the handler was called or while it runs.
	settled bool
	late    bool
}

// child is something to run when the context ends.
type child struct{ run func() }

// Deadline is when the delivery's time is over.
func (c *call) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// Value knows nothing.
func (c *call) Value(any) any { return nil }

// Done is closed at the deadline, when the host cancels the delivery, or when
// the handler has returned.
func (c *call) Done() <-chan struct{} {
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
func (c *call) Err() error {
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
func (c *call) AfterFunc(f func()) (stop func() bool) {
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
func (c *call) end(err error) {
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

// cancel is the host's.
func (c *call) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byHost = true
	c.end(context.Canceled)
}

// expire is the deadline's.
func (c *call) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(context.DeadlineExceeded)
}

// returned ends the context when the handler has.
func (c *call) returned() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(context.Canceled)
}

func (c *call) cancelled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byHost
}

func (c *call) expired(now time.Time) bool {
	return !c.deadline.IsZero() && !now.Before(c.deadline)
}
