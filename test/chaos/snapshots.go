package main

import (
	"context"
	"sync"
	"time"
)

// snapshots are what the group had committed, as time went. mu guards them: one
// goroutine takes them all the time, faults take their own.
type snapshots struct {
	mu  sync.Mutex
	all []snapshot // by time
}

const snapshotEvery = time.Second

// take reads the offsets again and again until ctx ends. While the coordinator
// does not answer there is none.
func (s *snapshots) take(ctx context.Context, a *admin, topics []string, partitions int) {
	tick := time.NewTicker(snapshotEvery)
	defer tick.Stop()
	for {
		if committed, err := a.committed(ctx, topics, partitions); err == nil {
			s.add(snapshot{time.Now().UnixNano(), committed})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *snapshots) add(one snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, one)
}

// latest is the last one before a moment; nil = none.
func (s *snapshots) latest(before int64) map[place]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.all) - 1; i >= 0; i-- {
		if s.all[i].at <= before {
			return s.all[i].committed
		}
	}
	return nil
}
