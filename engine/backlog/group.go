package backlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

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
	r := reader{b: b}
	r.take(2) // version
	for range r.count() {
		topic := string(r.take(r.number(2)))
		for range r.count() {
			p := r.number(4)
			if r.short {
				return errCutShort
			}
			into[Place{topic, p}] = true
		}
	}
	if r.short {
		return errCutShort
	}
	return nil
}

// reader reads big-endian numbers. Past the end everything is zero.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.b, r.short = nil, true
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) number(size int) int {
	b := r.take(size)
	switch {
	case b == nil:
		return 0
	case size == 2:
		return int(int16(binary.BigEndian.Uint16(b)))
	}
	return int(int32(binary.BigEndian.Uint32(b)))
}

// count is the length of an array, of which each entry takes four bytes at least.
func (r *reader) count() int {
	n := r.number(4)
	if n < 0 || n > len(r.b)/4 {
		r.short = true
		return 0
	}
	return n
}
