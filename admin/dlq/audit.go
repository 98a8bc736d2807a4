package dlq

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
)

// newULID is a ULID: 26 characters that sort by time.
func newULID(now time.Time) string {
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	var b [16]byte
	ms := uint64(now.UnixMilli())
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	_, _ = rand.Read(b[6:]) // never fails
	out := make([]byte, 26)
	// 128 bits in groups of five, the first of three.
	for i := range out {
		var v uint
		for bit := range 5 {
			n := 5*i + bit - 2
			if n >= 0 && b[n/8]&(1<<(7-n%8)) != 0 {
				v |= 1 << (4 - bit)
			}
		}
		out[i] = digits[v]
	}
	return string(out)
}

// auditID is an id for an audit entry, later than all that this process gave.
func (s *Service) auditID(now time.Time) string {
	s.audits.Lock()
	defer s.audits.Unlock()
	ms := max(now.UnixMilli(), s.lastAudit+1)
	s.lastAudit = ms
	return newULID(time.UnixMilli(ms))
}

// note writes an audit entry: before what it tells of is done.
func (s *Service) note(ctx context.Context, q *queue, e AuditEntry) error {
	e.At = time.Now().UTC()
	e.ID, e.Topic, e.Daemon = s.auditID(e.At), q.topic, s.cfg.Daemon
	e.Reason = cutText(e.Reason, MaxReason)
	key := "audit/" + e.ID
	err := q.log.Update(ctx, "audit", func(v *state.View) []state.Put {
		all := v.Audits()
		for i := len(all) - 1; i >= 0 && all[i].ID >= e.ID; i-- {
			if all[i].ID == e.ID {
				return nil
			}
		}
		return []state.Put{{Key: key, Value: e}}
	})
	return unavailableOrNil(err)
}

// Audit is a page of who did what and why.
func (s *Service) Audit(ctx context.Context, query AuditQuery) (AuditPage, error) {
	limit, err := pageLimit(query.Limit)
	if err != nil {
		return AuditPage{}, err
	}
	var before string
	if err := readCursor(query.Cursor, &before); err != nil {
		return AuditPage{}, err
	}
	qs, err := s.queuesOf(query.Topic)
	if err != nil {
		return AuditPage{}, err
	}
	page := AuditPage{Entries: []AuditEntry{}}
	for _, q := range qs {
		err := q.log.Read(ctx, func(v *state.View) {
			n := 0
			for _, a := range slices.Backward(v.Audits()) {
				if before != "" && a.ID >= before {
					continue
				}
				var e AuditEntry
				if json.Unmarshal(a.Body, &e) != nil || !query.means(&e) {
					continue
				}
				e.ID = a.ID
				page.Entries = append(page.Entries, e)
				if n++; n > limit {
					break
				}
			}
		})
		if err != nil {
			return AuditPage{}, unavailable(err)
		}
	}
	slices.SortFunc(page.Entries, func(a, b AuditEntry) int { return cmp.Compare(b.ID, a.ID) })
	if len(page.Entries) > limit {
		page.Entries = page.Entries[:limit]
		page.Cursor = cursorOf(page.Entries[limit-1].ID)
	}
	return page, nil
}

func (a *AuditQuery) means(e *AuditEntry) bool {
	return (a.Actor == "" || e.Actor.Name == a.Actor) && (a.Action == "" || e.Action == a.Action) &&
		(a.Since.IsZero() || !e.At.Before(a.Since)) && (a.Until.IsZero() || e.At.Before(a.Until))
}
