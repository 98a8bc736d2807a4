package dlq

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
	"github.com/kconsume/kconsume/engine/backlog"
	"github.com/kconsume/kconsume/engine/fetch"
	"github.com/kconsume/kconsume/engine/record"
	"github.com/kconsume/kconsume/engine/topics"
	"github.com/segmentio/kafka-go"
)

const (
	oneBytes   = 256 << 10 // asked for where single records are wanted
	oneWait    = 100 * time.Millisecond
	oneInflate = 64 << 20
	oneTries   = 5
	onePause   = 200 * time.Millisecond
)

// fetchPart reads one partition once, whoever leads it. committed leaves out
// what belongs to open and aborted transactions.
func fetchPart(ctx context.Context, c *kafka.Client, s *backlog.Span, at int64, most int32, committed bool) (fetch.Part, error) {
	rt := c.Transport
	if rt == nil {
		rt = kafka.DefaultTransport
	}
	for tries := 1; ; tries++ {
		a, err := fetch.Do(ctx, rt, c.Addr, fetch.Request{
			Broker: s.Leader, ClientID: topics.ClientID(rt), MaxWait: oneWait, MinBytes: 1, MaxBytes: most, ReadCommitted: committed, MaxInflate: oneInflate,
			Wants: []fetch.Want{{Topic: s.Topic, Partition: int32(s.Partition), Offset: at, MaxBytes: most, LeaderEpoch: -1}},
		})
		if err == nil && !errors.Is(a.Parts[0].Err, kafka.NotLeaderForPartition) && !errors.Is(a.Parts[0].Err, kafka.LeaderNotAvailable) {
			return a.Parts[0], nil
		}
		if err == nil {
			err = a.Parts[0].Err
		}
		if tries == oneTries || ctx.Err() != nil {
			return fetch.Part{}, err
		}
		select {
		case <-time.After(onePause):
		case <-ctx.Done():
			return fetch.Part{}, err
		}
		if l, err := topics.Layouts(ctx, c, []string{s.Topic}); err == nil && s.Partition < len(l[s.Topic].Leaders) {
			s.Leader = l[s.Topic].Leaders[s.Partition]
		}
	}
}

// at reads single dead letters of this group, with their bytes, and shows each
// to see, in the order of partition and offset. What is not there, or is another
// group's, is left out. The positions must be in that order.
func (q *queue) at(ctx context.Context, sp *spans, wants []Position, see func(*letter)) error {
	var p printer
	for i := 0; i < len(wants); {
		w := wants[i]
		if int(w.Partition) >= len(sp.parts) {
			return nil
		}
		s := sp.parts[w.Partition]
		if w.Offset < s.Start || w.Offset >= s.End {
			i++
			continue
		}
		part, err := fetchPart(ctx, q.client, &s, w.Offset, oneBytes, true)
		if err == nil && part.Err == nil && part.Set.Truncated > oneBytes {
			part, err = fetchPart(ctx, q.client, &s, w.Offset, int32(part.Set.Truncated), true)
		}
		if err != nil {
			return unavailable(err)
		}
		if part.Err != nil && !errors.Is(part.Err, kafka.OffsetOutOfRange) {
			return unavailable(part.Err)
		}
		i = q.pick(&p, sp, w.Partition, &part, wants, i, see)
	}
	return nil
}

// pick shows the wanted ones of what was read, from the i-th on, and returns the
// first that lies beyond it.
func (q *queue) pick(p *printer, sp *spans, partition int32, part *fetch.Part, wants []Position, i int, see func(*letter)) int {
	first := i
	for j := range part.Set.Records {
		r := &part.Set.Records[j]
		for i < len(wants) && wants[i].Partition == partition && wants[i].Offset < r.Offset {
			i++
		}
		if i == len(wants) || wants[i].Partition != partition {
			return i
		}
		if wants[i].Offset == r.Offset {
			if l := p.letter(sp.life, q.topic, partition, r); l.meta.Group == q.group {
				l.keep(r)
				see(&l)
			}
			i++
		}
	}
	for i < len(wants) && wants[i].Partition == partition && wants[i].Offset < part.Set.Next {
		i++
	}
	return max(i, first+1) // what does not come is not there
}

// sought is a compiled selection.
type sought struct {
	*Selection
	since, until int64 // unix ms, 0 = none
}

func (s *Selection) compile() sought {
	c := sought{Selection: s}
	if !s.Since.IsZero() {
		c.since = s.Since.UnixMilli()
	}
	if !s.Until.IsZero() {
		c.until = s.Until.UnixMilli()
	}
	return c
}

// matches holds a record against all of a selection but positions and statuses.
func (s *sought) matches(p *printer, group string, r *record.Record) bool {
	if s.since > 0 && r.Timestamp < s.since || s.until > 0 && r.Timestamp >= s.until {
		return false
	}
	if s.Key != nil && (r.Key == nil || string(r.Key) != *s.Key) {
		return false
	}
	var g glance
	g.look(r)
	if !g.known || string(g.group) != group || s.Class != "" && string(g.class) != s.Class {
		return false
	}
	if s.Handler != "" && !handlerIs(string(g.handler), s.Handler) {
		return false
	}
	return s.Fingerprint == "" || p.of(g.class, g.message).print == s.Fingerprint
}

// handlerIs compares name@version with a name, or with a name@version.
func handlerIs(have, want string) bool {
	if have == want {
		return true
	}
	return len(have) > len(want) && have[:len(want)] == want && have[len(want)] == '@'
}

// walk shows the records of a partition that a selection means, from an offset
// on, positions and statuses aside. It passes over what the index knows to hold
// none. It returns where it stopped: at the span's end, where the budget or
// until ended it, or at the record for which visit returned an error.
func (q *queue) walk(ctx context.Context, s backlog.Span, from int64, sel *sought, b *backlog.Budget, until time.Time, visit func(*record.Record) error) (int64, error) {
	var p printer
	at, end := max(from, s.Start), s.End
	for at < end && b.Bytes > 0 && (until.IsZero() || time.Now().Before(until)) {
		if next, ok := q.skip(s.Partition, at, sel.Selection); ok {
			at = max(at, min(next, end))
			continue
		}
		part := s
		part.End = min(end, at+blockSize)
		next, err := q.reader.Scan(ctx, part, at, b, func(r *record.Record) error {
			if !sel.matches(&p, q.group, r) {
				return nil
			}
			return visit(r)
		})
		if err != nil {
			return next, err
		}
		if next == at {
			return at, nil // an open transaction
		}
		at = next
	}
	return at, nil
}

func (q *queue) skip(partition int, at int64, sel *Selection) (int64, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.index == nil {
		return at, false
	}
	return q.index.skip(partition, at, sel)
}

func (q *queue) skipBack(partition int, end int64, sel *Selection) (int64, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.index == nil {
		return end, false
	}
	return q.index.skipBack(partition, end, sel)
}

// status is what became of a dead letter.
func (q *queue) status(ctx context.Context, id state.ID) (r state.Record, known bool, out state.Out, err error) {
	err = q.log.Read(ctx, func(v *state.View) {
		if r, known = v.Record(id); known {
			out, _ = v.Outcome(r.Replay)
		} else {
			r.Status = StatusNew
		}
	})
	return r, known, out, unavailableOrNil(err)
}

// wantsStatus reports whether a selection means records in a status.
func (s *Selection) wantsStatus(st Status) bool {
	return len(s.Statuses) == 0 || slices.Contains(s.Statuses, st)
}

// order sorts positions by partition and offset, and takes out repeated ones.
func order(ps []Position) []Position {
	out := slices.Clone(ps)
	slices.SortFunc(out, comparePositions)
	return slices.Compact(out)
}

func comparePositions(a, b Position) int {
	return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
}
