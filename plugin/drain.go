package plugin

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"time"
)

// drainingKey is what Draining asks a call's context for.
type drainingKey struct{}

// Draining is closed when kconsume asks the handler's process to finish what it
// has: before a stop, or because a new version takes over. ctx is a handler's,
// or made from one. A call need not heed it, and has the rest of its deadline. One
// that takes long may stop early: what it returns counts as ever, but for an
// error that is context.Canceled, which hands the record back: it is delivered
// again as the same attempt.
//
//	select {
//	case <-plugin.Draining(ctx):
//		return context.Canceled
//	case <-step:
//	}
//
// For any other context it is nil, which is never closed.
func Draining(ctx context.Context) <-chan struct{} {
	draining, _ := ctx.Value(drainingKey{}).(<-chan struct{})
	return draining
}

// goodbye calls Config.Close and waits for it, not longer than bound: the host
// waits too, for the end of the stream.
func goodbye(c Config, bound time.Duration) {
	if c.Close == nil {
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		defer func() {
			if r := recover(); r != nil {
				fmt.Fprintf(os.Stderr, "[ERROR] close handler %q: panic: %v\n%s", c.Name, r, debug.Stack())
			}
		}()
		c.Close()
	}()
	late := time.NewTimer(bound)
	defer late.Stop()
	select {
	case <-closed:
	case <-late.C:
		fmt.Fprintf(os.Stderr, "[WARN] close handler %q: Config.Close is not back after %v: left behind\n", c.Name, bound)
	}
}
