package host

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A host that stands still is told from one that is busy: whoever asks gets an
// answer in either case.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &Host{}
		if err := h.Alive(t.Context()); err != nil {
			t.Error(err)
		}
		ask := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			return h.Alive(ctx)
		}
		h.mu.Lock()
		if err := ask(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("of one that stands still: %v", err)
		}
		time.AfterFunc(9*time.Second, h.mu.Unlock)
		if err := ask(); err != nil {
			t.Errorf("of one that was busy: %v", err)
		}
		if !h.mu.TryLock() {
			t.Error("it is held on")
		}
		h.mu.Unlock()
	})
}
