package host

import "time"

// backoff spaces restarts: from min, doubled each time up to max.
type backoff struct {
	min, max time.Duration
	next     time.Duration // 0 = min
	blamed   int           // deliveries found guilty when a process ended last
}

// delay is the wait before the next start, after a process that lived for
// lived (0 = it did not start). jitter, in [0,1), takes off up to half, so that
// many hosts do not start theirs in step.
func (b *backoff) delay(lived time.Duration, jitter float64) time.Duration {
	if b.next == 0 || lived >= b.max {
		b.next = b.min
	}
	d := b.next
	b.next = min(b.max, 2*b.next)
	return shorten(d, jitter)
}

// after is the wait after a crash. A step in the search for a delivery that
// kills the process is followed by the next one soon: their number is bounded.
// When one was found, blamed has grown, and the crashes before were its.
func (b *backoff) after(lived time.Duration, step bool, blamed int, jitter float64) time.Duration {
	if blamed != b.blamed {
		b.blamed, b.next = blamed, 0
	}
	if step {
		return shorten(b.min, jitter)
	}
	return b.delay(lived, jitter)
}

func shorten(d time.Duration, jitter float64) time.Duration {
	return d - time.Duration(jitter*float64(d)/2)
}
