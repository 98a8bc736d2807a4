package backlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/kconsume/kconsume/engine/internal/cursor"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/describegroups"
)

// State is what the coordinator says of a group.
type State struct {
	Name    string // "Stable", "Empty", "Dead" (there is no such group), …
	Members int
	// Owned are the partitions that its members have been given.
	Owned map[Place]bool
}

// Vacant reports that nobody is in the group; it may not exist at all.
func (s State) Vacant() bool { return s.Members == 0 && (s.Name == "Empty" || s.Name == "Dead") }

// Group asks for a group's state. (kafka-go's own call shows no members at all
// where one of them, another make's, has more to say than it knows.)
func (r *Reader) Group(ctx context.Context, group string) (State, error) {
	m, err := r.transport.RoundTrip(ctx, r.addr, &describegroups.Request{Groups: []string{group}})
	if err != nil {
		return State{}, fmt.Errorf("describe group %q: %w", group, err)
	}
	res, ok := m.(*describegroups.Response)
	if !ok || len(res.Groups) != 1 || res.Groups[0].GroupID != group {
		return State{}, fmt.Errorf("describe group %q: the coordinator answered for another", group)
	}
	g := &res.Groups[0]
	switch code := kafka.Error(g.ErrorCode); code {
	case 0:
	case kafka.GroupIdNotFound:
		return State{Name: "Dead"}, nil
	default:
		return State{}, fmt.Errorf("describe group %q: %w", group, code)
	}
	s := State{Name: g.GroupState, Members: len(g.Members), Owned: map[Place]bool{}}
	for _, member := range g.Members {
		if err := owned(member.MemberAssignment, s.Owned); err != nil {
			return State{}, fmt.Errorf("describe group %q: assignment of member %q: %w", group, member.MemberID, err)
		}
	}
	return s, nil
}

var errCutShort = errors.New("it ends too early")

// owned reads an assignment as the consumer protocol writes it: a version, and
// partitions by topic. What other makes add behind that is theirs.
func owned(b []byte, into map[Place]bool) error {
	if len(b) == 0 {
		return nil
	}
	r := reader{cursor.Cursor{B: b}}
	r.Take(2) // version
	for range r.count() {
		topic := string(r.Take(int(r.Int16())))
		for range r.count() {
			p := int(r.Int32())
			if r.Short {
				return errCutShort
			}
			into[Place{topic, p}] = true
		}
	}
	if r.Short {
		return errCutShort
	}
	return nil
}

// reader reads the consumer protocol.
type reader struct{ cursor.Cursor }

// count is the length of an array, of which each entry takes four bytes at least.
func (r *reader) count() int {
	n := int(r.Int32())
	if n < 0 || n > len(r.B)/4 {
		r.Short = true
		return 0
	}
	return n
}
