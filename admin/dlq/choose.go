package dlq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
	"github.com/kconsume/kconsume/engine/backlog"
	"github.com/kconsume/kconsume/engine/record"
)

// choose finds the records that a request means now. Its scan says whether all
// of the DLQ was looked at.
func (q *queue) choose(ctx context.Context, sp *spans, r *PlanRequest) (chosen, Scan, error) {
	c := newChooser(r, &q.line)
	sel := r.Selection.compile()
	if len(r.Selection.Positions) > 0 {
		return q.choosePositions(ctx, sp, c, &sel)
	}
	var pr printer
	scan := Scan{Complete: true}
	budget := &backlog.Budget{Bytes: planBytes}
	for i, s := range sp.parts {
		if c.full() {
			break
		}
		next, err := q.walk(ctx, s, s.Start, &sel, budget, time.Time{}, func(rec *record.Record) error {
			if c.full() {
				return errEnough
			}
			scan.Records++
			return q.consider(ctx, c, sp, &pr, int32(i), rec)
		})
		if err != nil && !errors.Is(err, errEnough) {
			return chosen{}, scan, unavailable(err)
		}
		if err == nil && next < s.End && budget.Bytes <= 0 {
			scan.Complete = false
			scan.Note = fmt.Sprintf("%d MiB of the DLQ were looked at, and it holds more: narrow the selection by fingerprint or time", planBytes>>20)
			break
		}
	}
	return c.done(), scan, nil
}

func (q *queue) choosePositions(ctx context.Context, sp *spans, c *chooser, sel *sought) (chosen, Scan, error) {
	wants := c.request.Selection.Positions
	there := 0
	var failed error
	var pr printer
	err := q.at(ctx, sp, wants, func(l *letter) {
		there++
		switch {
		case failed != nil || c.full():
		case !sel.matches(&pr, q.group, l.rec):
			c.out.excluded["does not fit the rest of the selection"]++
		default:
			failed = q.consider(ctx, c, sp, &pr, l.id.Partition, l.rec)
		}
	})
	if err == nil {
		err = failed
	}
	if n := len(wants) - there; n > 0 && err == nil {
		c.out.excluded[fmt.Sprintf("is not there (any more), or not of group %s", q.group)] += n
	}
	return c.done(), Scan{Complete: true, Records: int64(there)}, err
}

// consider hands a record to the chooser with what became of it.
func (q *queue) consider(ctx context.Context, c *chooser, sp *spans, pr *printer, partition int32, r *record.Record) error {
	l := pr.letter(sp.life, q.topic, partition, r)
	st, known, _, err := q.status(ctx, l.id)
	if err != nil {
		return err
	}
	k := candidate{
		id: l.id, status: st.Status, version: -1, holder: st.Job, handler: l.meta.Handler, topic: l.meta.Origin.Topic,
		replays: l.meta.ReplayCount, size: l.size,
	}
	if known {
		k.version = st.Version
	}
	var g glance
	g.look(r)
	k.normal = pr.of(g.class, g.message)
	c.take(k)
	return nil
}

// recOf is what every entry about a letter says.
func (q *queue) recOf(l *letter, life string, after int64, act state.Act, status Status) state.Rec {
	return state.Rec{
		V: 1, Act: act, After: after, Status: status, At: time.Now().UnixMilli(), Life: life, Group: q.group, Came: l.came, Print: l.print,
	}
}
