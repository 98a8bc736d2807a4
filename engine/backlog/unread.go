package backlog

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/engine/record"
)

// unreadBytes is how far Unread looks for a first record of a group in a topic
// of which the group has no offset. Beyond that it takes one to be there: a
// topic read for nothing costs less than a record that nobody reads.
const unreadBytes = 64 << 20

// maxGroupName bounds the names that are kept, in bytes. Kafka's own bound is
// that of a string in its protocol.
const maxGroupName = 255

var errFound = errors.New("found")

// Unread are those of some topics in which a group still has unread records: it
// has not committed up to their end, or has no offset there and records of it
// are. Records of its own are told by their header.
func (r *Reader) Unread(ctx context.Context, group string, names []string) (map[string]bool, error) {
	spans, err := r.Spans(ctx, names)
	if err != nil {
		return nil, err
	}
	committed, err := r.Committed(ctx, group, spans)
	if err != nil {
		return nil, err
	}
	unread := map[string]bool{}
	budgets := map[string]*Budget{}
	for _, s := range spans {
		at := committed[s.Place]
		if unread[s.Topic] || max(at, s.Start) >= s.End {
			continue
		}
		if at >= 0 {
			unread[s.Topic] = true
			continue
		}
		b := budgets[s.Topic]
		if b == nil {
			b = &Budget{unreadBytes}
			budgets[s.Topic] = b
		}
		next, err := r.Scan(ctx, s, s.Start, b, func(rec *record.Record) error {
			if g, ok := Header(rec, history.HeaderGroup); ok && g == group {
				return errFound
			}
			return nil
		})
		switch {
		case errors.Is(err, errFound):
			unread[s.Topic] = true
		case err != nil:
			return nil, err
		case next < s.End && b.Bytes <= 0:
			unread[s.Topic] = true
		}
	}
	return unread, nil
}

// Count is how many records of one group wait in a topic.
type Count struct {
	Records int
	// Partial: the budget was spent before the end, there may be more.
	Partial bool
}

// Count counts a group's records that it has not committed, by topic; topics
// without one are left out.
func (r *Reader) Count(ctx context.Context, group string, names []string, b *Budget) (map[string]Count, error) {
	spans, err := r.Spans(ctx, names)
	if err != nil {
		return nil, err
	}
	committed, err := r.Committed(ctx, group, spans)
	if err != nil {
		return nil, err
	}
	out := map[string]Count{}
	for _, s := range spans {
		n := out[s.Topic]
		next, err := r.Scan(ctx, s, max(committed[s.Place], s.Start), b, func(rec *record.Record) error {
			if g, ok := Header(rec, history.HeaderGroup); ok && g == group {
				n.Records++
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		n.Partial = n.Partial || next < s.End && b.Bytes <= 0
		if n.Records > 0 || n.Partial {
			out[s.Topic] = n
		}
	}
	return out, nil
}

// Groups are the groups whose records lie on some topics, at most so many.
func (r *Reader) Groups(ctx context.Context, names []string, most int, b *Budget) ([]string, error) {
	spans, err := r.Spans(ctx, names)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, s := range spans {
		_, err := r.Scan(ctx, s, s.Start, b, func(rec *record.Record) error {
			if g, ok := Header(rec, history.HeaderGroup); ok && g != "" && len(g) <= maxGroupName && len(seen) < most {
				seen[g] = true
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(seen)), nil
}
