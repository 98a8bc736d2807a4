package sim

import (
	"math/rand/v2"
	"time"
)

// act is what a handler does with a delivery.
type act uint8

const (
	actAck        act = iota // after Takes
	actTransient             // fails
	actPermanent             // fails for good
	actUnknown               // returns an error that no rule knows: permanent
	actPanic                 // panics
	actDrop                  // drops it
	actRetryAfter            // fails with a wish for Wish
	actSlow                  // waits for Takes, unless its context ends first
	actTimeout               // waits for its context to end
	actDeaf                  // goes on past its deadline for Takes, then returns nil
	actGarbled               // the answer that comes back has no verdict in it
)

// String is the act's word in a history.
func (a act) String() string {
	return [...]string{"ack", "transient", "permanent", "unknown", "panic", "drop", "retry-after", "slow", "timeout", "deaf", "garbled"}[a]
}

// Step is what a handler does with one attempt.
type Step struct {
	Act   act
	Takes time.Duration
	Wish  time.Duration
}

// slowFrom is where the slow scripts begin, of a hundred.
const slowFrom = 85

// drawScript draws what becomes of a record. brisk leaves most of the slow ones
// out: where a partition's records go one by one they would take for ever.
func drawScript(r *rand.Rand, brisk bool) []Step {
	take := func() time.Duration { return between(r, time.Millisecond, 40*time.Millisecond) }
	ack := Step{Act: actAck, Takes: take()}
	failing := func(a act) (steps []Step) { // for a while, or for ever
		n := 1 + r.IntN(6)
		for range n {
			steps = append(steps, Step{Act: a, Takes: take()})
		}
		return append(steps, ack)
	}
	n := r.IntN(100)
	if brisk && n >= slowFrom && r.IntN(5) > 0 {
		n = r.IntN(slowFrom)
	}
	switch {
	case n < 52:
		return []Step{ack}
	case n < 66:
		return failing(actTransient)
	case n < 69:
		return []Step{{Act: actPermanent, Takes: take()}}
	case n < 70:
		return []Step{{Act: actUnknown, Takes: take()}}
	case n < 72:
		return []Step{{Act: actPanic, Takes: take()}}
	case n < 74:
		return []Step{{Act: actDrop, Takes: take()}}
	case n < 82:
		wish := []time.Duration{0, 500 * time.Millisecond, 3 * time.Second, 5 * time.Second, time.Hour}[r.IntN(5)]
		return []Step{{Act: actRetryAfter, Takes: take(), Wish: wish}, ack}
	case n < 85:
		return failing(actGarbled)
	case n < 93:
		return []Step{{Act: actSlow, Takes: between(r, 200*time.Millisecond, 2500*time.Millisecond)}}
	case n < 94:
		return []Step{{Act: actTimeout}, ack}
	case n < 96:
		return []Step{{Act: actDeaf, Takes: between(r, 100*time.Millisecond, 3*time.Second)}, ack}
	default: // slow and deaf to its context, but in time: acknowledged though cancelled
		return []Step{{Act: actAck, Takes: between(r, 500*time.Millisecond, 2*time.Second)}}
	}
}

// drawQuietScript draws what has no reason to be repeated: calls that end well
// within the second that the end of a generation waits.
//
// wishes are only for where all members stop at once: a member that joins may
// take a tier over in which something is settled behind what waits.
func drawQuietScript(r *rand.Rand, wishes bool) []Step {
	ack := Step{Act: actAck, Takes: between(r, time.Millisecond, 300*time.Millisecond)}
	switch n := r.IntN(20); {
	case wishes && n < 8:
		return []Step{{Act: actRetryAfter, Takes: 5 * time.Millisecond, Wish: 500 * time.Millisecond}, ack}
	case wishes && n < 12:
		return []Step{{Act: actTransient, Takes: 5 * time.Millisecond}, ack}
	case n < 3:
		return []Step{{Act: actTransient, Takes: 5 * time.Millisecond}, ack}
	case n < 4:
		return []Step{{Act: actPermanent, Takes: 5 * time.Millisecond}}
	}
	return []Step{ack}
}

// step is the script's step of an attempt.
func (in *Input) step(attempt int) *Step {
	return &in.Script[min(attempt, len(in.Script))-1]
}
