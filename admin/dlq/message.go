package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
	"github.com/kconsume/kconsume/engine/backlog"
	"github.com/kconsume/kconsume/engine/record"
)

// pagePayload bounds the bytes of the records of one page.
const pagePayload = 8 << 20

// smallStep is how many records are read backwards at least.
const smallStep = 4

// place is where a page of messages goes on. It belongs to one life of the
// topic, one order and one selection.
type place struct {
	Life   string  `json:"l"`
	Oldest bool    `json:"o,omitempty"`
	Sel    string  `json:"s"`           // a digest of the selection
	At     []int64 `json:"a,omitempty"` // by partition: oldest first from here on, newest first below
}

// pager fills one page.
type pager struct {
	q     *queue
	sp    *spans
	sel   sought
	query *Query
	limit int
	b     backlog.Budget
	until time.Time
	at    []int64
	seen  int64 // records that matched but for their status
	found []*letter
	moved bool // newest first: some piece was read
}

func (q *queue) messages(ctx context.Context, query Query) (MessagePage, error) {
	limit, err := pageLimit(query.Limit)
	if err != nil {
		return MessagePage{}, err
	}
	if err := query.Selection.check(); err != nil {
		return MessagePage{}, err
	}
	sp, err := q.spans(ctx)
	if err != nil {
		return MessagePage{}, err
	}
	p := &pager{q: q, sp: &sp, sel: query.Selection.compile(), query: &query, limit: limit, b: backlog.Budget{Bytes: pageBytes}, until: time.Now().Add(pageTime)}
	if err := p.begin(); err != nil {
		return MessagePage{}, err
	}
	switch {
	case len(query.Selection.Positions) > 0:
		err = p.positions(ctx)
	case query.Oldest:
		err = p.oldest(ctx)
	default:
		err = p.newest(ctx)
	}
	if err != nil {
		return MessagePage{}, err
	}
	page := MessagePage{Scan: p.scan()}
	if !p.exhausted() {
		page.Cursor = cursorOf(p.cursor())
	}
	if page.Messages, err = p.show(ctx); err != nil {
		return MessagePage{}, err
	}
	if query.Earlier && query.Cursor == "" {
		page.Earlier, err = q.earlier(ctx, sp.lifeText())
	}
	return page, err
}

// begin takes the cursor's place, or the list's beginning.
func (p *pager) begin() error {
	var c place
	if err := readCursor(p.query.Cursor, &c); err != nil {
		return err
	}
	if p.query.Cursor == "" {
		for _, s := range p.sp.parts {
			if p.query.Oldest {
				p.at = append(p.at, s.Start)
			} else {
				p.at = append(p.at, s.End)
			}
		}
		return nil
	}
	switch want := p.cursor(); {
	case c.Life != want.Life:
		return refuse(KindGone, "topic %s was made anew since: begin without a cursor", p.q.topic)
	case c.Oldest != want.Oldest, c.Sel != want.Sel:
		return refuse(KindInvalid, "the cursor belongs to another selection or order: begin without one")
	}
	p.at = c.At
	for len(p.at) < len(p.sp.parts) { // it has grown
		s := p.sp.parts[len(p.at)]
		p.at = append(p.at, s.Start)
	}
	for i, s := range p.sp.parts {
		p.at[i] = max(s.Start, min(p.at[i], s.End))
	}
	p.at = p.at[:len(p.sp.parts)]
	return nil
}

func (p *pager) cursor() place {
	return place{Life: p.sp.lifeText(), Oldest: p.query.Oldest, Sel: p.query.Selection.digest(), At: p.at}
}

// exhausted reports that no further page has anything.
func (p *pager) exhausted() bool {
	if len(p.query.Selection.Positions) > 0 {
		return true
	}
	for i, s := range p.sp.parts {
		if p.query.Oldest && p.at[i] < s.End || !p.query.Oldest && p.at[i] > s.Start {
			return false
		}
	}
	return true
}

func (p *pager) spent() bool { return p.b.Bytes <= 0 || !time.Now().Before(p.until) }

func (p *pager) scan() Scan {
	s := Scan{Complete: true, Records: p.seen}
	if len(p.found) < p.limit && !p.exhausted() {
		s.Complete = false
		s.Note = fmt.Sprintf("a page reads %d MiB at most: go on with the cursor", pageBytes>>20)
	}
	return s
}

// take adds a record if its status is meant. Its bytes are not kept.
func (p *pager) take(ctx context.Context, pr *printer, partition int, r *record.Record) (*letter, error) {
	p.seen++
	l := pr.letter(p.sp.life, p.q.topic, int32(partition), r)
	st, _, _, err := p.q.status(ctx, l.id)
	if err != nil || !p.sel.wantsStatus(st.Status) {
		return nil, err
	}
	return &l, nil
}

// positions are single records.
func (p *pager) positions(ctx context.Context) error {
	wants := order(p.query.Selection.Positions)
	if len(wants) > p.limit {
		wants = wants[:p.limit]
	}
	var failed error
	var pr printer
	err := p.q.at(ctx, p.sp, wants, func(l *letter) {
		if !p.sel.matches(&pr, p.q.group, l.rec) || failed != nil {
			return
		}
		got, err := p.take(ctx, &pr, int(l.id.Partition), l.rec)
		if failed = err; got != nil {
			p.found = append(p.found, got)
		}
	})
	return cmp.Or(err, failed)
}

// oldest goes on by partition and offset.
func (p *pager) oldest(ctx context.Context) error {
	var pr printer
	for i, s := range p.sp.parts {
		if len(p.found) == p.limit || p.spent() {
			return nil
		}
		next, err := p.q.walk(ctx, s, p.at[i], &p.sel, &p.b, p.until, func(r *record.Record) error {
			if len(p.found) == p.limit {
				return errEnough
			}
			l, err := p.take(ctx, &pr, i, r)
			if l != nil {
				p.found = append(p.found, l)
			}
			return err
		})
		p.at[i] = next
		if err != nil && !errors.Is(err, errEnough) {
			return unavailable(err)
		}
	}
	return nil
}

// tail is what has been read backwards of a partition and not shown yet.
type tail struct {
	below int64 // read down to here
	step  int64
	buf   []*letter // in the order of offsets
}

// newest merges the partitions by time, the latest first.
func (p *pager) newest(ctx context.Context) error {
	tails := make([]tail, len(p.sp.parts))
	for i := range tails {
		tails[i] = tail{below: p.at[i], step: int64(2 * p.limit)}
	}
	for len(p.found) < p.limit {
		best := -1
		for i := range tails {
			t := &tails[i]
			for len(t.buf) == 0 && t.below > p.sp.parts[i].Start && !p.spent() {
				if err := p.fill(ctx, i, t); err != nil {
					return err
				}
			}
			if len(t.buf) == 0 && t.below > p.sp.parts[i].Start {
				best = -1 // which one comes next is not known
				break
			}
			if len(t.buf) > 0 && (best < 0 || t.last().came > tails[best].last().came) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		t := &tails[best]
		p.found = append(p.found, t.last())
		t.buf = t.buf[:len(t.buf)-1]
	}
	for i := range tails {
		t := &tails[i]
		p.at[i] = t.below
		if len(t.buf) > 0 {
			p.at[i] = t.last().id.Offset + 1
		}
	}
	return nil
}

func (t *tail) last() *letter { return t.buf[len(t.buf)-1] }

// fill reads the piece before what was read of a partition: more each time that
// nothing was found, and of what was found a page's worth is kept.
func (p *pager) fill(ctx context.Context, i int, t *tail) error {
	s := p.sp.parts[i]
	if next, ok := p.q.skipBack(i, t.below, p.sel.Selection); ok {
		t.below = max(next, s.Start)
		return nil
	}
	from := max(s.Start, t.below-t.step)
	s.End = t.below
	var pr printer
	next, err := p.q.walk(ctx, s, from, &p.sel, &p.b, p.until, func(r *record.Record) error {
		l, err := p.take(ctx, &pr, i, r)
		if l != nil {
			t.buf = append(t.buf, l)
		}
		return err
	})
	if err != nil {
		return unavailable(err)
	}
	if next < s.End && p.spent() {
		t.buf = nil // the piece was not read to its end: the next page begins with it
		if !p.moved && t.step > smallStep {
			t.step, p.b.Bytes, p.until = smallStep, sliceBytes, time.Now().Add(pageTime) // large records
		}
		return nil
	}
	t.below, p.moved = from, true
	if n := len(t.buf) - p.limit; n > 0 {
		t.buf = slices.Clone(t.buf[n:])
		t.below = t.buf[0].id.Offset
	}
	if len(t.buf) == 0 {
		t.step = min(4*t.step, blockSize)
	}
	return nil
}

// show makes messages of what was found.
func (p *pager) show(ctx context.Context) ([]Message, error) {
	if p.query.Payload {
		if err := p.payloads(ctx); err != nil {
			return nil, err
		}
	}
	out := []Message{}
	for _, l := range p.found {
		r, known, o, err := p.q.status(ctx, l.id)
		if err != nil {
			return nil, err
		}
		out = append(out, l.message(p.q.topic, r, known, o, p.query.Payload))
	}
	return out, nil
}

// payloads reads the bytes of what was found, up to pagePayload.
func (p *pager) payloads(ctx context.Context) error {
	by := map[Position]*letter{}
	var wants []Position
	total := 0
	for _, l := range p.found {
		if total += l.size; total > pagePayload && len(wants) > 0 {
			break
		}
		by[l.position()] = l
		wants = append(wants, l.position())
	}
	return p.q.at(ctx, p.sp, order(wants), func(l *letter) {
		if have := by[l.position()]; have != nil && have.id == l.id {
			have.rec = l.rec
		}
	})
}

// earlier is what is known of dead letters of earlier topics of this name.
func (q *queue) earlier(ctx context.Context, life string) ([]Message, error) {
	out := []Message{}
	err := q.log.Read(ctx, func(v *state.View) {
		for id, r := range v.Records {
			if r.Life == life || r.Group != q.group {
				continue
			}
			o, _ := v.Outcome(r.Replay)
			out = append(out, earlierMessage(q.topic, id, r, o))
		}
	})
	slices.SortFunc(out, func(a, b Message) int {
		return cmp.Or(b.State.At.Compare(a.State.At), comparePositions(a.Position, b.Position), cmp.Compare(a.Identity, b.Identity))
	})
	return out[:min(len(out), MaxPage)], unavailableOrNil(err)
}

func earlierMessage(topic string, id state.ID, r *state.Record, o state.Out) Message {
	m := Message{
		Position: Position{id.Partition, id.Offset}, Identity: id.Identity, Topic: topic, Time: msTime(r.Came),
		Group: r.Group, Fingerprint: r.Print, State: stateOf(id, *r, o),
	}
	m.State.Earlier = true
	return m
}
