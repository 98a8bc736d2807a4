package host

import "time"

// backoff spaces restarts: from min, doubled each time up to max.
type backoff struct {
	min, max time.Duration
	next     time.Duration // 0 = min
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
	return d - time.Duration(jitter*float64(d)/2)
}
