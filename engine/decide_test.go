package engine

import (
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine/topology"
	"github.com/kconsume/kconsume/plugin"
)

func tiers(ds ...time.Duration) []topology.Stage {
	var out []topology.Stage
	for i, d := range ds {
		out = append(out, topology.Stage{Name: "retry." + topology.FormatDelay(d), Topic: "t.retry." + topology.FormatDelay(d), Delay: d, Tier: i + 1})
	}
	return out
}

// leftover is a policy for records out of a tier of earlier settings.
func leftover(p policy, delay time.Duration) policy {
	p.after = delay
	return p
}

func TestDecide(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	two := policy{tiers: tiers(5*time.Second, 30*time.Second), maxAttempts: 3, retryAfterMax: 30 * time.Second}
	more := two
	more.maxAttempts = 6
	none := policy{maxAttempts: 1}
	lenient := two
	lenient.unknownTransient = true
	transient := plugin.Verdict{Class: plugin.ClassTransient, Reason: plugin.ReasonTransient}
	after := func(d time.Duration) plugin.Verdict {
		return plugin.Verdict{Class: plugin.ClassTransient, RetryAfter: d}
	}
	unknown := plugin.Verdict{Class: plugin.ClassPermanent, Reason: plugin.ReasonPermanent, Rule: plugin.RuleUnknown}
	for _, c := range []struct {
		name   string
		p      policy
		failed int
		v      plugin.Verdict
		want   decision
	}{
		{"ack", two, 1, plugin.Verdict{Class: plugin.ClassAck}, decision{route: routeSettle, failed: 1}},
		{"drop", two, 0, plugin.Verdict{Class: plugin.ClassDrop}, decision{route: routeSettle, dropped: true}},
		{"first failure", two, 0, transient, decision{route: routeRetry, failed: 1, tier: 0, due: now.Add(5 * time.Second), reason: "transient"}},
		{"second failure", two, 1, transient, decision{route: routeRetry, failed: 2, tier: 1, due: now.Add(30 * time.Second), reason: "transient"}},
		{"limit", two, 2, transient, decision{route: routeDead, failed: 3, reason: "transient"}},
		{"last tier repeats", more, 3, transient, decision{route: routeRetry, failed: 4, tier: 1, due: now.Add(30 * time.Second), reason: "transient"}},
		{"no tiers", none, 0, transient, decision{route: routeDead, failed: 1, reason: "transient"}},
		{"permanent", two, 0, plugin.Verdict{Class: plugin.ClassPermanent}, decision{route: routeDead, failed: 1, reason: "permanent"}},
		{"poison", two, 0, plugin.Verdict{Class: plugin.ClassPermanent, Reason: plugin.ReasonPoison}, decision{route: routeDead, failed: 1, reason: "poison"}},
		{"unknown error", two, 0, unknown, decision{route: routeDead, failed: 1, reason: "permanent"}},
		{"unknown error, lenient", lenient, 0, unknown, decision{route: routeRetry, failed: 1, due: now.Add(5 * time.Second), reason: "transient"}},
		{"no verdict costs an attempt", two, 0, plugin.Verdict{}, decision{route: routeRetry, failed: 1, due: now.Add(5 * time.Second), reason: "transient"}},
		{"a class nobody knows", two, 0, plugin.Verdict{Class: 99}, decision{route: routeRetry, failed: 1, due: now.Add(5 * time.Second), reason: "transient"}},
		{"retry after, short", two, 0, after(2 * time.Second), decision{route: routeRetry, failed: 1, tier: 0, due: now.Add(2 * time.Second), reason: "transient"}},
		{"retry after, between", two, 0, after(20 * time.Second), decision{route: routeRetry, failed: 1, tier: 1, due: now.Add(20 * time.Second), reason: "transient"}},
		{"retry after, too long", two, 0, after(time.Hour), decision{route: routeRetry, failed: 1, tier: 1, due: now.Add(30 * time.Second), reason: "transient"}},
		{"leftover, to the next longer tier", leftover(more, 10*time.Second), 1, transient, decision{route: routeRetry, failed: 2, tier: 1, due: now.Add(30 * time.Second), reason: "transient"}},
		{"leftover, shorter than all", leftover(more, time.Second), 4, transient, decision{route: routeRetry, failed: 5, tier: 0, due: now.Add(5 * time.Second), reason: "transient"}},
		{"leftover, no tier is longer", leftover(more, time.Minute), 1, transient, decision{route: routeDead, failed: 2, reason: "transient"}},
		{"leftover, as long as the longest", leftover(more, 30*time.Second), 1, transient, decision{route: routeDead, failed: 2, reason: "transient"}},
		{"leftover, at the limit", leftover(two, time.Second), 2, transient, decision{route: routeDead, failed: 3, reason: "transient"}},
		{"leftover, no tiers", leftover(none, time.Second), 0, transient, decision{route: routeDead, failed: 1, reason: "transient"}},
		{"leftover, retry after", leftover(more, time.Hour), 1, after(7 * time.Second), decision{route: routeRetry, failed: 2, tier: 1, due: now.Add(7 * time.Second), reason: "transient"}},
		{"leftover, ack", leftover(two, time.Second), 1, plugin.Verdict{Class: plugin.ClassAck}, decision{route: routeSettle, failed: 1}},
		{"retry after at the limit", two, 2, after(time.Second), decision{route: routeDead, failed: 3, reason: "transient"}},
	} {
		if got := c.p.decide(c.failed, &c.v, now); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestTierForUnorderedTiers(t *testing.T) {
	p := policy{tiers: tiers(30*time.Second, 5*time.Second, 10*time.Second)}
	for d, want := range map[time.Duration]int{time.Second: 1, 5 * time.Second: 1, 6 * time.Second: 2, 20 * time.Second: 0, time.Hour: 0} {
		if got := p.tierFor(d); got != want {
			t.Errorf("%v: tier %d, want %d", d, got, want)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	p := policy{tiers: tiers(5*time.Second, 30*time.Second), maxAttempts: 3, retryAfterMax: 30 * time.Second}
	v := plugin.Verdict{Class: plugin.ClassTransient, Reason: plugin.ReasonTransient}
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		if d := p.decide(0, &v, now); d.route != routeRetry {
			b.Fatal(d)
		}
	}
}
