package topology

import (
	"slices"
	"strings"
	"time"
)

// unknownDelay is the delay of a leftover tier whose name does not tell it: a
// tier keeps its records at least this long, so that no record waits longer.
const unknownDelay = minRetention

// Leftovers are the topics that were tiers of the topology's lines under other
// settings: those among names that its retry template makes with a delay in our
// spelling, or without one, and that are nothing in the topology now. Records
// may still wait in them. Their stages are marked Leftover and bound how long a
// record may wait; line i of the result belongs to line i of the topology.
func (t *Topology) Leftovers(names []string) [][]Stage {
	out := make([][]Stage, len(t.Lines))
	used := map[string]bool{}
	for _, n := range t.Names() {
		used[n] = true
	}
	for _, name := range slices.Sorted(slices.Values(names)) {
		if used[name] {
			continue
		}
		for i, l := range t.Lines {
			if delay, ok := t.delayOf(l.Topic, name); ok {
				out[i] = append(out[i], leftover(name, delay))
				used[name] = true
				break
			}
		}
	}
	return out
}

func leftover(name string, delay time.Duration) Stage {
	s := Stage{Name: "retry", Topic: name, Delay: unknownDelay, Leftover: true}
	if delay > 0 {
		s.Name, s.Delay = "retry."+FormatDelay(delay), delay
	}
	return s
}

// delayOf reads the delay out of a name that the retry template makes for a
// main topic; 0 where the template has none.
func (t *Topology) delayOf(main, name string) (time.Duration, bool) {
	before, _, varies := strings.Cut(t.retryTopic, "{delay}")
	if !varies {
		made, err := expand("", t.retryTopic, t.group, main, "-")
		return 0, err == nil && made == name
	}
	prefix, err := fill("", before, t.group, main, "-")
	if err != nil {
		return 0, false
	}
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	for _, unit := range []string{"ms", "s", "m", "h"} {
		if !strings.HasPrefix(rest[digits:], unit) {
			continue
		}
		spelled := rest[:digits+len(unit)]
		d, err := time.ParseDuration(spelled)
		if err != nil || d <= 0 || FormatDelay(d) != spelled {
			continue
		}
		if made, err := expand("", t.retryTopic, t.group, main, spelled); err == nil && made == name {
			return d, true
		}
	}
	return 0, false
}
