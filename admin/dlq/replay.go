package dlq

import (
	"context"
	"fmt"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
)

// replay sends the next chunk.
func (r *runner) replay(ctx context.Context) error {
	canary := r.job.Canary && !r.anySent(ctx)
	size := r.chunk()
	if canary {
		size = 1
	}
	wants, over, err := r.wants(ctx, size)
	if err != nil {
		return err
	}
	if len(wants) == 0 {
		r.pass(over)
		return nil
	}
	if err := r.pace(ctx, len(wants)); err != nil {
		return err
	}
	if canary {
		if err := r.report(ctx, JobCanary, "waits for the outcome of the first record"); err != nil {
			return err
		}
	}
	letters, err := r.read(ctx, wants)
	if err != nil {
		return err
	}
	if err := r.mayGoOn(ctx); err != nil { // all that took its time
		return err
	}
	wants, over = fit(wants, letters, over)
	ours, err := r.claim(ctx, wants, letters)
	if err != nil {
		return err
	}
	// From here on the chunk is ended even if the daemon stops.
	if err := r.send(context.WithoutCancel(ctx), ours); err != nil {
		return err
	}
	r.pass(over)
	if r.job.Canary {
		return r.awaitCanary(ctx)
	}
	return nil
}

// Why a record of the list is passed over.
const (
	overWanted = "" // it is not: it is sent now
	overDone   = "sent before, or uncertain"
)

// wants are the next records to send, at most n, and what is to be said of each
// of the list up to the last of them.
func (r *runner) wants(ctx context.Context, n int) (wants []state.ID, over []string, err error) {
	err = r.q.log.Read(ctx, func(v *state.View) {
		for _, id := range r.ids[r.at:] {
			rec, known := v.Record(id)
			mine := known && rec.Job == r.lease.id
			switch released := mine && rec.Act == state.Release; {
			case !known, rec.Status == StatusNew && !released, mine && rec.Status == StatusClaimed:
				if len(wants) == n {
					return
				}
				wants, over = append(wants, id), append(over, overWanted)
			case released && rec.Status == StatusNew:
				over = append(over, rec.Reason)
			case mine && rec.Replay != "":
				over = append(over, overDone)
			default:
				over = append(over, notNow(&candidate{status: rec.Status, holder: rec.Job}))
			}
		}
	})
	return wants, over, err
}

// pass counts records of the list as dealt with.
func (r *runner) pass(over []string) {
	for _, o := range over {
		if o != overWanted && o != overDone {
			r.skipped[o]++
		}
	}
	r.at += len(over)
}

// fit leaves to a later chunk what is too much for this one.
func fit(wants []state.ID, letters map[state.ID]*letter, over []string) ([]state.ID, []string) {
	bytes, n := 0, 0
	for i, o := range over {
		if o != overWanted {
			continue
		}
		if l := letters[wants[n]]; l != nil {
			bytes += l.size
		}
		if n > 0 && bytes > chunkBytes {
			return wants[:n], over[:i]
		}
		n++
	}
	return wants, over
}

// claimed is a record that is ours to send.
type claimed struct {
	id     state.ID
	letter *letter
	replay string
}

// claim claims records and returns those that are ours, in their order. Those of
// others are counted.
func (r *runner) claim(ctx context.Context, wants []state.ID, letters map[state.ID]*letter) ([]claimed, error) {
	from, err := r.q.ends(ctx, r.job.Target)
	if err != nil {
		return nil, err
	}
	left := map[string]int{}
	var ours []claimed
	err = r.q.log.Update(ctx, "claim", func(v *state.View) []state.Put {
		clear(left)
		ours = ours[:0]
		var puts []state.Put
		for _, id := range wants {
			rec, known := v.Record(id)
			l := letters[id]
			end, there := from[id.Partition]
			switch {
			case known && rec.Status == StatusClaimed && rec.Job == r.lease.id && l == nil:
				puts = append(puts, r.put(id, &rec, state.Release, "is expired"))
			case known && rec.Status == StatusClaimed && rec.Job == r.lease.id:
				ours = append(ours, claimed{id, l, rec.Replay})
			case known && rec.Status != StatusNew:
				left[notNow(&candidate{status: rec.Status, holder: rec.Job})]++
			case l == nil:
				left["is expired"]++
			case !there:
				left[fmt.Sprintf("%s has no partition %d", r.job.Target, id.Partition)]++
			default:
				puts = append(puts, r.claimOf(l, &rec, known, end))
			}
		}
		return puts
	})
	if err == nil {
		r.leave(left)
	}
	return ours, err
}

func (r *runner) claimOf(l *letter, rec *state.Record, known bool, end int64) state.Put {
	after := int64(-1)
	if known {
		after = rec.Version
	}
	next := r.q.recOf(l, r.life, after, state.Claim, StatusClaimed)
	next.Daemon, next.By, next.Reason, next.Job = daemonOf(r.lease.me), r.job.By, r.job.Reason, r.lease.id
	next.Replay, next.Target, next.From = l.id.ReplayID(r.lease.id), r.job.Target, end
	return state.Put{Key: l.id.Key(), Value: next}
}

// anySent reports whether the canary was sent before.
func (r *runner) anySent(ctx context.Context) (any bool) {
	// An error is met again at once by whoever reads next.
	_ = r.q.log.Read(ctx, func(v *state.View) {
		for _, id := range r.ids {
			if rec, ok := v.Record(id); ok && rec.Job == r.lease.id && rec.Replay != "" && rec.Status != StatusNew && rec.Status != StatusClaimed {
				any = true
				return
			}
		}
	})
	return any
}

// awaitCanary waits for the outcome of the first record that was sent.
func (r *runner) awaitCanary(ctx context.Context) error {
	for {
		changed := r.q.log.Changed()
		var first *state.Record
		var at state.ID
		err := r.q.log.Read(ctx, func(v *state.View) {
			for _, id := range r.ids {
				if rec, ok := v.Record(id); ok && rec.Job == r.lease.id && rec.Replay != "" && rec.Status != StatusNew {
					first, at = &rec, id
					return
				}
			}
		})
		switch {
		case err != nil:
			return err
		case first == nil: // it was left out: the next one is the canary
			return nil
		case first.Status == StatusSucceeded:
			return nil
		case first.Status == StatusFailedAgain:
			return &endedError{fmt.Sprintf("the canary %v failed again: nothing else was sent", Position{at.Partition, at.Offset})}
		case first.Status != StatusReplayed:
			return &endedError{fmt.Sprintf("the canary %v is %s: nothing else was sent", Position{at.Partition, at.Offset}, first.Status)}
		}
		if err := r.mayGoOn(ctx); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return cause(ctx)
		}
	}
}

// recover deals with what an earlier runner claimed and did not record as sent:
// it waits until nothing of that one can arrive any more, and looks into the
// target. What is found is recorded; what is certainly not there is left claimed
// and will be sent; where that cannot be told the record is uncertain.
func (r *runner) recover(ctx context.Context) error {
	var open []claim
	err := r.q.log.Read(ctx, func(v *state.View) {
		for _, id := range r.ids {
			if rec, ok := v.Record(id); ok && rec.Status == StatusClaimed && rec.Job == r.lease.id {
				open = append(open, claim{id, rec.Replay, rec.From})
			}
		}
	})
	if err != nil || len(open) == 0 {
		return err
	}
	r.logger.Info("a job looks for what was claimed and perhaps sent", "job", r.lease.id, "records", len(open))
	t := time.NewTimer(quietTime)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return cause(ctx)
	}
	found, err := r.q.look(ctx, r.job.Target, open)
	if err != nil {
		return err
	}
	return r.q.log.Update(ctx, "recover", func(v *state.View) []state.Put {
		var puts []state.Put
		for _, c := range open {
			rec, ok := v.Record(c.id)
			if !ok || rec.Status != StatusClaimed || rec.Job != r.lease.id {
				continue
			}
			switch at, f := found.at[c.replay], found.part[c.id.Partition]; {
			case at != nil:
				puts = append(puts, r.sentPut(c.id, &rec, *at))
			case !f.whole:
				puts = append(puts, r.put(c.id, &rec, state.Unsure, f.why))
			}
		}
		return puts[:min(len(puts), chunkRecords)]
	})
}

func (r *runner) sentPut(id state.ID, rec *state.Record, offset int64) state.Put {
	p := r.put(id, rec, state.Sent, rec.Reason)
	next := p.Value.(state.Rec)
	next.Offset = offset
	p.Value = next
	return p
}
