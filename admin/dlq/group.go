package dlq

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
)

// tally is how many records of each fingerprint are in each status but new. It
// holds for one state of the log and of the index.
type tally struct {
	next   int64 // of the view
	gen    int   // of the index
	index  *index
	counts map[*print]map[Status]int64
	// open is the oldest open record by partition, as far as it is known.
	open map[int32]oldest
}

// tallyUp joins the state with the index. The lock must be held.
func (q *queue) tallyUp(v *state.View) *tally {
	t := &q.tallied
	if t.index == q.index && t.next == v.Next && t.gen == q.index.gen {
		return t
	}
	*t = tally{v.Next, q.index.gen, q.index, map[*print]map[Status]int64{}, map[int32]oldest{}}
	life := state.Life(q.index.life)
	for p, part := range q.index.parts {
		if o := part.oldest; o != nil {
			if r, known := v.Record(o.id); !known || r.Status.Open() {
				t.open[int32(p)] = *o
			}
		}
	}
	for id, r := range v.Records {
		if r.Life != life || r.Group != q.group || !q.index.covers(id.Partition, id.Offset) {
			continue
		}
		if r.Status.Open() {
			if o, ok := t.open[id.Partition]; !ok || id.Offset < o.id.Offset {
				t.open[id.Partition] = oldest{id, r.Came}
			}
		}
		if r.Status == StatusNew {
			continue
		}
		pr, ok := q.index.prints[r.Print]
		if !ok {
			pr = q.index.prints[other]
		}
		if t.counts[pr] == nil {
			t.counts[pr] = map[Status]int64{}
		}
		t.counts[pr][r.Status]++
	}
	return t
}

// statuses are a fingerprint's records by status.
func (t *tally) statuses(pr *print) map[Status]int64 {
	out := maps.Clone(t.counts[pr])
	if out == nil {
		out = map[Status]int64{}
	}
	left := pr.n
	for _, n := range out {
		left -= n
	}
	if left > 0 {
		out[StatusNew] = left
	}
	return out
}

func openOf(counts map[Status]int64) (n int64) {
	for s, c := range counts {
		if s.Open() {
			n += c
		}
	}
	return n
}

// joined calls f with the index and the state joined, both up to date.
func (q *queue) joined(ctx context.Context, f func(*index, *tally, Scan)) error {
	if err := q.fresh(ctx); err != nil {
		return err
	}
	return unavailableOrNil(q.log.Read(ctx, func(v *state.View) {
		q.mu.Lock()
		defer q.mu.Unlock()
		f(q.index, q.tallyUp(v), q.scanned())
	}))
}

// summary is the DLQ in short.
func (q *queue) summary(ctx context.Context) (Summary, error) {
	s := Summary{Topic: q.topic, Of: q.line.Topic, Target: replayTopic(&q.line), Counts: map[Status]int64{}}
	for _, st := range Statuses() {
		s.Counts[st] = 0
	}
	retention := q.retention(ctx)
	err := q.joined(ctx, func(x *index, t *tally, scan Scan) {
		s.Partitions, s.Scan, s.Records = len(x.parts), scan, scan.Records
		for _, pr := range x.prints {
			for st, n := range t.statuses(pr) {
				s.Counts[st] += n
			}
		}
		if openOf(s.Counts) > 0 {
			s.Oldest = msTime(t.oldestOpen())
		}
		if !s.Oldest.IsZero() && retention > 0 {
			s.Deadline = s.Oldest.Add(retention)
		}
	})
	return s, err
}

// oldestOpen is when the oldest open record came, unix ms; 0 = there is none, or
// it has not been found yet.
func (t *tally) oldestOpen() int64 {
	best := int64(0)
	for _, o := range t.open {
		if best == 0 || o.came < best {
			best = o.came
		}
	}
	return best
}

// groups are the DLQ's records by fingerprint.
func (q *queue) groups(ctx context.Context, f Filter) (GroupPage, error) {
	limit, err := pageLimit(f.Limit)
	if err != nil {
		return GroupPage{}, err
	}
	var at struct{ Skip int }
	if err := readCursor(f.Cursor, &at); err != nil || at.Skip < 0 {
		return GroupPage{}, errCursor
	}
	page := GroupPage{Groups: []Group{}}
	err = q.joined(ctx, func(x *index, t *tally, scan Scan) {
		page.Scan = scan
		for _, pr := range x.prints {
			if g := x.group(pr, t); g.Records > 0 && g.in(f.Statuses) {
				page.Groups = append(page.Groups, g)
			}
		}
	})
	if err != nil {
		return GroupPage{}, err
	}
	slices.SortFunc(page.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Open, a.Open), cmp.Compare(b.Records, a.Records), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	page.Groups = page.Groups[min(at.Skip, len(page.Groups)):]
	if len(page.Groups) > limit {
		page.Groups = page.Groups[:limit]
		page.Cursor = cursorOf(struct{ Skip int }{at.Skip + limit})
	}
	return page, nil
}

func (g *Group) in(statuses []Status) bool {
	if len(statuses) == 0 {
		return true
	}
	return slices.ContainsFunc(statuses, func(s Status) bool { return g.Counts[s] > 0 })
}

func (x *index) group(pr *print, t *tally) Group {
	g := Group{
		Fingerprint: pr.print, Class: pr.class, Error: pr.normal, Sample: pr.sample, Example: pr.example, Records: pr.n,
		Counts: t.statuses(pr), Handlers: append([]string{}, pr.handlers...), Spark: pr.lastHours(time.Now()),
	}
	g.Open = openOf(g.Counts)
	slices.Reverse(g.Handlers)
	var first, last int64
	for _, p := range x.parts {
		for _, b := range p.blocks {
			if c := b.counts[pr]; c != nil {
				if first == 0 || c.first < first {
					first = c.first
				}
				last = max(last, c.last)
			}
		}
	}
	g.First, g.Last = msTime(first), msTime(last)
	return g
}

// retentionOf reads retention.ms; none is 0.
func retentionOf(text string) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms <= 0 || ms > most {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

var errCursor = &Error{Kind: KindInvalid, Text: "the cursor is none of this list: begin without one"}

func cursorOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "" // numbers and texts only
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func readCursor(text string, v any) error {
	if text == "" {
		return nil
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return errCursor
	}
	if json.Unmarshal(b, v) != nil {
		return errCursor
	}
	return nil
}

func pageLimit(n int) (int, error) {
	switch {
	case n == 0:
		return DefaultPage, nil
	case n < 1 || n > MaxPage:
		return 0, refuse(KindInvalid, "limit %d: use 1 to %d", n, MaxPage)
	}
	return n, nil
}
