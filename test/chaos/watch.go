package main

import (
	"context"
	"fmt"
	"time"
)

// watch measures how long a fault holds up each partition: until a record is
// delivered that was written after the fault. No such record can have been with
// the member, or the leader, that the fault struck. Guarded by ledger.mu.
type watch struct {
	since   int64   // unix ns
	stage   bool    // deliveries from the tiers count, and only they
	first   []int64 // by partition: the first delivery, 0 = none yet
	written []int64 // by partition: the first acknowledgement to the producer
}

func (w *watch) delivered(d *delivery, written int64) {
	if written <= w.since || int(d.partition) >= len(w.first) || w.stage != (d.stage > 0) {
		return
	}
	if w.first[d.partition] == 0 {
		w.first[d.partition] = d.begin
	}
}

func (w *watch) acknowledged(partition int, written, now int64) {
	if written > w.since && w.written[partition] == 0 {
		w.written[partition] = now
	}
}

// slowest is when the last partition had its first event, 0 = not all have.
func slowest(first []int64) int64 {
	var last int64
	for _, at := range first {
		if at == 0 {
			return 0
		}
		last = max(last, at)
	}
	return last
}

// recovery is how long a fault held up the slowest partition.
type recovery struct {
	kind     string
	took     time.Duration // until a record was delivered that was written since
	producer time.Duration // of it: until the producer could write to every partition
}

// progressPatience is far above a session timeout, a broker's return and the
// longest backoff together.
const progressPatience = 2 * time.Minute

// watch begins to look for progress from now on. stage looks at the tiers.
func (l *ledger) watch(partitions int, stage bool) *watch {
	w := &watch{since: time.Now().UnixNano(), stage: stage, first: make([]int64, partitions), written: make([]int64, partitions)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watches = append(l.watches, w)
	return w
}

// progress waits until every partition goes on, and ends the watch.
func (l *ledger) progress(ctx context.Context, w *watch, kind string) (recovery, error) {
	var done, written int64
	err := until(ctx, progressPatience, "progress in every partition after: "+kind, func(context.Context) (bool, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		done, written = slowest(w.first), slowest(w.written)
		return done != 0, nil
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.watches {
		if l.watches[i] == w {
			l.watches = append(l.watches[:i], l.watches[i+1:]...)
			break
		}
	}
	if err != nil {
		return recovery{}, fmt.Errorf("%w; first deliveries by partition: %v; first acknowledgements: %v", err, since(w, w.first), since(w, w.written))
	}
	return recovery{kind, time.Duration(done - w.since), time.Duration(max(0, written-w.since))}, nil
}

func since(w *watch, first []int64) []time.Duration {
	out := make([]time.Duration, len(first))
	for i, at := range first {
		if at > 0 {
			out[i] = time.Duration(at - w.since)
		}
	}
	return out
}
