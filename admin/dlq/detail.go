package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
	"github.com/kconsume/kconsume/admin/export"
	"github.com/kconsume/kconsume/engine/record"
)

// maxTimeline bounds how many entries of a record's state are read.
const maxTimeline = 32

// Message is one dead letter and its timeline. An expired one is gone.
func (s *Service) Message(ctx context.Context, topic string, r Ref, payload bool) (Detail, error) {
	q, err := s.queueOf(topic)
	if err != nil {
		return Detail{}, err
	}
	sp, err := q.spans(ctx)
	if err != nil {
		return Detail{}, err
	}
	l, err := q.one(ctx, &sp, r)
	if err != nil {
		return Detail{}, err
	}
	st, known, out, err := q.status(ctx, l.id)
	if err != nil {
		return Detail{}, err
	}
	d := Detail{Message: l.message(topic, st, known, out, payload)}
	d.Timeline = l.failures()
	if err := q.before(ctx, &d); err != nil {
		return d, err
	}
	if known {
		if err := q.history(ctx, &d, st); err != nil {
			return d, err
		}
	}
	if out.Status != "" {
		d.Timeline = append(d.Timeline, outcomeEntry(topic, st.Job, out))
	}
	slices.SortStableFunc(d.Timeline, func(a, b TimelineEntry) int { return a.At.Compare(b.At) })
	return d, nil
}

// failures are what the record's own headers tell.
func (l *letter) failures() []TimelineEntry {
	var t []TimelineEntry
	if at := msTime(l.meta.FirstFailure); !at.IsZero() {
		t = append(t, TimelineEntry{At: at, What: "first_failed"})
	}
	return append(t, TimelineEntry{At: msTime(l.came), What: "dead", Reason: l.meta.Class, Handler: l.meta.Handler, Attempts: l.meta.Failed})
}

// before names the dead letter that this one was before it was replayed.
func (q *queue) before(ctx context.Context, d *Detail) error {
	err := q.log.Read(ctx, func(v *state.View) {
		id, ok := v.Before(state.Again{Partition: d.Partition, Offset: d.Offset})
		if !ok {
			return
		}
		if rec, ok := v.Record(id); ok && q.sameLife(rec.Life) {
			d.Timeline = append(d.Timeline, TimelineEntry{
				At: msTime(rec.At), What: "earlier", By: rec.By, Job: rec.Job, Place: &Place{q.topic, Position{id.Partition, id.Offset}},
			})
		}
	})
	return unavailableOrNil(err)
}

func (q *queue) sameLife(life string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.index == nil || state.Life(q.index.life) == life
}

// history reads back what was done, entry by entry: each names the one that it
// follows.
func (q *queue) history(ctx context.Context, d *Detail, last state.Record) error {
	first := len(d.Timeline)
	defer func() { slices.Reverse(d.Timeline[first:]) }()
	for at, n := last.Version, 0; at >= 0; n++ {
		e, ok, err := q.log.At(ctx, at)
		if err != nil {
			return unavailable(err)
		}
		var rec state.Rec
		if !ok || n == maxTimeline || json.Unmarshal(e.Value, &rec) != nil {
			d.Timeline = append(d.Timeline, TimelineEntry{At: e.Time.UTC(), What: "incomplete", Reason: "older entries are not kept"})
			return nil
		}
		if rec.Act != state.Restatement {
			d.Timeline = append(d.Timeline, doneEntry(&rec, d.Partition))
		}
		at = rec.After
	}
	return nil
}

func doneEntry(r *state.Rec, partition int32) TimelineEntry {
	t := TimelineEntry{At: msTime(r.At), What: string(r.Act), By: r.By, Reason: r.Reason, Job: r.Job}
	if r.Act == state.Sent {
		t.Place = &Place{r.Target, Position{partition, r.Offset}}
	}
	return t
}

func outcomeEntry(topic, job string, o state.Out) TimelineEntry {
	t := TimelineEntry{At: msTime(o.At), What: o.Status, Job: job, Handler: text(o.Handler), Reason: text(o.Class), Attempts: o.Attempts}
	if o.Again != nil {
		t.Place = &Place{topic, Position{o.Again.Partition, o.Again.Offset}}
	}
	return t
}

// Export writes dead letters by partition and offset, a line of JSON each, with
// "about" what the API shows of them, and returns how many.
func (s *Service) Export(ctx context.Context, topic string, sel Selection, w io.Writer) (int, error) {
	q, err := s.queueOf(topic)
	if err != nil {
		return 0, err
	}
	if err := sel.check(); err != nil {
		return 0, err
	}
	sp, err := q.spans(ctx)
	if err != nil {
		return 0, err
	}
	x := &exporter{q: q, sp: &sp, sel: sel.compile(), w: w}
	if len(sel.Positions) > 0 {
		err := x.positions(ctx)
		return x.n, err
	}
	for i, part := range sp.parts {
		_, err := q.walk(ctx, part, part.Start, &x.sel, unbounded(), time.Time{}, func(r *record.Record) error { return x.one(ctx, int32(i), r) })
		if errors.Is(err, errEnough) {
			break
		}
		if err != nil {
			return x.n, unavailable(err)
		}
	}
	return x.n, nil
}

type exporter struct {
	q   *queue
	sp  *spans
	sel sought
	pr  printer
	w   io.Writer
	n   int
}

func (x *exporter) positions(ctx context.Context) error {
	var failed error
	err := x.q.at(ctx, x.sp, order(x.sel.Positions), func(l *letter) {
		if failed == nil && x.sel.matches(&x.pr, x.q.group, l.rec) {
			failed = x.one(ctx, l.id.Partition, l.rec)
		}
	})
	if err == nil && !errors.Is(failed, errEnough) {
		err = failed
	}
	return err
}

// one writes a record, errEnough once the limit is reached.
func (x *exporter) one(ctx context.Context, partition int32, r *record.Record) error {
	if x.sel.Limit > 0 && x.n == x.sel.Limit {
		return errEnough
	}
	l := x.pr.letter(x.sp.life, x.q.topic, partition, r)
	st, known, out, err := x.q.status(ctx, l.id)
	if err != nil || !x.sel.wantsStatus(st.Status) {
		return err
	}
	about, err := json.Marshal(l.message(x.q.topic, st, known, out, false))
	if err != nil {
		return fmt.Errorf("export %v: %w", l.position(), err)
	}
	x.n++
	return export.Encode(x.w, &export.Record{
		Topic: x.q.topic, Partition: partition, Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value, Headers: r.Headers, About: about,
	})
}
