package main

import (
	"math"
	"math/rand/v2"
	"time"
)

// kind is a kind of fault.
type kind string

const (
	killMember   kind = "member killed"
	freezeMember kind = "member frozen"
	killHandler  kind = "handler killed"
	stopBroker   kind = "broker stopped"
	killBroker   kind = "broker killed"
	rolling      kind = "rolling restart"
	moveLeaders  kind = "leaders moved"
	forbidTier   kind = "retry topic shut"
)

// quarter is how often each fault comes in a quarter of an hour.
func quarter() map[kind]int {
	return map[kind]int{
		killMember: 32, freezeMember: 11, killHandler: 6, stopBroker: 6, killBroker: 6, rolling: 6, moveLeaders: 6, forbidTier: 4,
	}
}

// kinds is their order, in schedules and tables.
func kinds() []kind {
	return []kind{killMember, freezeMember, killHandler, stopBroker, killBroker, rolling, moveLeaders, forbidTier}
}

// schedule is the faults of a run in a random order: those of quarter scaled to
// the duration, each kind at least once.
func schedule(duration time.Duration, rng *rand.Rand) []kind {
	var all []kind
	counts := quarter()
	for _, k := range kinds() {
		n := int(math.Round(float64(counts[k]) * duration.Minutes() / 15))
		for range max(1, n) {
			all = append(all, k)
		}
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}
