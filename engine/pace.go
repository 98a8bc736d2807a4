package engine

import "time"

// What is sent ahead of the handler's free calls: about paceAhead of its work,
// at most maxAhead records and maxAheadBytes. A fast handler then sees full
// frames, and a slow one holds little that a crash would repeat.
const (
	paceAhead     = 50 * time.Millisecond
	paceSample    = 50 * time.Millisecond
	maxAhead      = 1000
	maxAheadBytes = 1 << 20
)

// pace follows the handler's speed and sets how many records may be with it.
// The owner loop alone uses it.
type pace struct {
	window int // never below the calls that may run at once
	least  int
	rate   float64 // answers per second, smoothed
	count  int     // answers since
	since  time.Time
}

func newPace(concurrency int) pace { return pace{window: concurrency, least: concurrency} }

// answered counts n answers at now.
func (p *pace) answered(n int, now time.Time) {
	if p.since.IsZero() {
		p.since = now
	}
	p.count += n
	elapsed := now.Sub(p.since)
	if elapsed < paceSample {
		return
	}
	p.rate = (p.rate + float64(p.count)/elapsed.Seconds()) / 2
	p.count, p.since = 0, now
	p.window = max(p.least, min(maxAhead, int(p.rate*paceAhead.Seconds())))
}
