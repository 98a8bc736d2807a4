package host

import (
	"testing"
	"time"
)

func TestBackoffDuringASearch(t *testing.T) {
	b := backoff{min: time.Second, max: time.Minute}
	for i, c := range []struct {
		step   bool
		blamed int
		want   time.Duration
	}{
		{false, 0, time.Second},
		{false, 0, 2 * time.Second},
		{true, 0, time.Second},
		{true, 0, time.Second},
		{false, 0, 4 * time.Second}, // where it was
		{false, 1, time.Second},     // one was found
		{false, 1, 2 * time.Second},
	} {
		if got := b.after(0, c.step, c.blamed, 0); got != c.want {
			t.Errorf("wait %d is %v, want %v", i, got, c.want)
		}
	}
}

func TestBackoff(t *testing.T) {
	b := backoff{min: 250 * time.Millisecond, max: time.Second}
	for i, c := range []struct {
		lived  time.Duration
		jitter float64
		want   time.Duration
	}{
		{0, 0, 250 * time.Millisecond},
		{0, 0, 500 * time.Millisecond},
		{0, 0.5, 750 * time.Millisecond},
		{999 * time.Millisecond, 0, time.Second},
		{time.Second, 0, 250 * time.Millisecond},
		{0, 0.999, 250*time.Millisecond + 250*time.Microsecond},
	} {
		if got := b.delay(c.lived, c.jitter); got != c.want {
			t.Errorf("delay %d is %v, want %v", i, got, c.want)
		}
	}
}
