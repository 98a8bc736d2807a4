package engine

import (
	"time"

	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/engine/topology"
	"github.com/kconsume/kconsume/plugin"
)

// route is where a decided record goes.
type route uint8

const (
	routeSettle route = iota + 1 // nowhere: it is done
	routeRetry                   // to a tier of its line
	routeDead                    // to the DLQ of its line
)

// decision is what becomes of one delivery.
type decision struct {
	route   route
	failed  int       // failed deliveries so far, this one included
	tier    int       // routeRetry: index into the line's tiers
	due     time.Time // routeRetry: not before
	reason  plugin.Reason
	dropped bool // routeSettle: the handler dropped it
}

// policy is what decisions depend on.
type policy struct {
	tiers            []topology.Stage
	maxAttempts      int
	retryAfterMax    time.Duration
	unknownTransient bool
	// after is the delay of the leftover tier that a record was delivered from,
	// else 0: it goes on to the next longer tier, not to the one of its number.
	after time.Duration
}

// decide says what becomes of a delivery that failed `failed` times before,
// answered with v at now. It is total: whatever a handler sends, the result is
// never an acknowledgement unless the verdict says so, and never endless (I5).
func (p *policy) decide(failed int, v *plugin.Verdict, now time.Time) decision {
	switch v.Class {
	case plugin.ClassAck:
		return decision{route: routeSettle, failed: failed}
	case plugin.ClassDrop:
		return decision{route: routeSettle, failed: failed, dropped: true}
	}
	d := decision{failed: failed + 1, reason: v.Reason}
	transient := v.Class != plugin.ClassPermanent
	if v.Class == plugin.ClassPermanent && v.Rule == plugin.RuleUnknown && p.unknownTransient {
		transient, d.reason = true, plugin.ReasonTransient
	}
	if d.reason == "" {
		d.reason = plugin.ReasonTransient
		if !transient {
			d.reason = plugin.ReasonPermanent
		}
	}
	if !transient || d.failed >= p.maxAttempts || len(p.tiers) == 0 {
		d.route = routeDead
		return d
	}
	d.route = routeRetry
	d.tier = min(d.failed, len(p.tiers)) - 1
	if p.after > 0 && v.RetryAfter == 0 {
		next := p.longer(p.after)
		if next < 0 {
			d.route, d.tier = routeDead, 0
			return d
		}
		d.tier = next
	}
	delay := p.tiers[d.tier].Delay
	if v.RetryAfter > 0 {
		delay = min(v.RetryAfter, p.retryAfterMax)
		d.tier = p.tierFor(delay)
	}
	d.due = now.Add(delay)
	return d
}

// longer is the shortest tier that is longer than a delay, −1 if none is.
func (p *policy) longer(delay time.Duration) int {
	best := -1
	for i, t := range p.tiers {
		if t.Delay > delay && (best < 0 || t.Delay < p.tiers[best].Delay) {
			best = i
		}
	}
	return best
}

// tierFor is the shortest tier that is not shorter than a delay, or the longest
// of all: records of a tier wait at most its delay.
func (p *policy) tierFor(delay time.Duration) int {
	best := -1
	for i, t := range p.tiers {
		if t.Delay >= delay && (best < 0 || t.Delay < p.tiers[best].Delay) {
			best = i
		}
	}
	if best >= 0 {
		return best
	}
	for i, t := range p.tiers {
		if best < 0 || t.Delay > p.tiers[best].Delay {
			best = i
		}
	}
	return best
}

// afterFailure is what a forward of a record says once its delivery has failed.
func afterFailure(m history.Meta, group string, d decision, v *plugin.Verdict, handler string, now time.Time) history.Meta {
	m.Group, m.Failed = group, d.failed
	m.Due = 0
	if d.route == routeRetry {
		m.Due = d.due.UnixMilli()
	}
	if m.FirstFailure == 0 {
		m.FirstFailure = now.UnixMilli()
	}
	m.Class, m.Code, m.Message = string(d.reason), v.Code, v.Message
	m.ErrorTime, m.Handler = now.UnixMilli(), handler
	return m
}
