package dlq

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
)

const (
	cleanEvery  = time.Minute
	cleanAtOnce = 500                 // entries of a round
	cleanJobs   = 30 * 24 * time.Hour // that ended jobs and earlier topics' entries are kept
	staleAfter  = time.Hour           // see state.View.Stale; compaction waits for a day
)

// clean deletes from the state what nobody needs any more, and says again what
// compaction would lose, until ctx ends. Every daemon does it, each at times of
// its own; it does no harm twice.
func (s *Service) clean(ctx context.Context, q *queue) {
	for {
		t := time.NewTimer(cleanEvery + rand.N(cleanEvery))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		if err := s.cleanOnce(ctx, q); err != nil && ctx.Err() == nil {
			s.cfg.Logger.Info("old state of dead letters was not deleted: it is tried again", "topic", q.topic, "error", err)
		}
	}
}

func (s *Service) cleanOnce(ctx context.Context, q *queue) error {
	sp, err := q.spans(ctx)
	if err != nil {
		return err
	}
	var puts []state.Put
	err = q.log.Read(ctx, func(v *state.View) { puts = needless(v, &sp, time.Now()) })
	if err != nil || len(puts) == 0 {
		return err
	}
	return q.effect("clean", func() error {
		_, err := q.log.Append(ctx, puts...)
		return err
	})
}

// needless are the entries to write so that the log holds what is needed.
func needless(v *state.View, sp *spans, now time.Time) []state.Put {
	var puts []state.Put
	gone := func(key string) bool {
		puts = append(puts, state.Put{Key: key})
		return len(puts) < cleanAtOnce
	}
	for key, value := range v.Stale(v.Time.Add(-staleAfter)) {
		if puts = append(puts, state.Put{Key: key, Value: value}); len(puts) >= cleanAtOnce {
			return puts
		}
	}
	busy := map[string]bool{}
	for j := range v.Jobs {
		if !j.Ended {
			busy[j.Digest] = true
		} else if v.Time.Sub(j.Renewed) > cleanJobs && !gone("job/"+j.ID) {
			return puts
		}
	}
	for p := range v.Plans {
		if !busy[p.Digest] && now.UnixMilli() > p.Expires && !gone("plan/"+p.Digest) {
			return puts
		}
	}
	for id, r := range v.Records {
		old := now.Sub(time.UnixMilli(r.At)) > cleanJobs
		if (expired(sp, id, r.Life) || r.Life != sp.lifeText() && old) && !gone(id.Key()) {
			return puts
		}
	}
	for replay, o := range v.Outcomes {
		_, id, ok := state.ParseReplayID(replay)
		_, known := v.Record(id)
		old := now.Sub(time.UnixMilli(o.At)) > cleanJobs
		if ok && !known && old && !gone("out/"+replay) {
			return puts
		}
	}
	return puts
}

// expired reports whether retention has deleted a record of this life.
func expired(sp *spans, id state.ID, life string) bool {
	return life == sp.lifeText() && int(id.Partition) < len(sp.parts) && id.Offset < sp.parts[id.Partition].Start
}
