package wire

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrFrame is what every decoding error wraps: the other end does not speak the
// contract, and its stream is of no more use.
var ErrFrame = errors.New("frame is not valid protobuf")

// scan goes over the fields of a message. bytes fields are views of the message
// that cannot be appended into it. Fields of another type than the contract's,
// and unknown ones, are left to the caller to pass over.
type scan struct {
	rest   []byte
	err    error
	field  protowire.Number
	kind   protowire.Type
	number uint64 // of a varint
	bytes  []byte // of a bytes field; never nil
}

func (s *scan) next() bool {
	if s.err != nil || len(s.rest) == 0 {
		return false
	}
	field, kind, n := protowire.ConsumeTag(s.rest)
	if n < 0 {
		return s.fail("tag", n)
	}
	if field > protowire.MaxValidNumber { // ConsumeTag lets some of them pass
		s.err = fmt.Errorf("read tag: %w: field number %d is too large", ErrFrame, field)
		return false
	}
	s.rest, s.field, s.kind = s.rest[n:], field, kind
	switch kind {
	case protowire.VarintType:
		s.number, n = protowire.ConsumeVarint(s.rest)
	case protowire.BytesType:
		s.bytes, n = protowire.ConsumeBytes(s.rest)
		s.bytes = s.bytes[:len(s.bytes):len(s.bytes)]
	default:
		n = protowire.ConsumeFieldValue(field, kind, s.rest)
	}
	if n < 0 {
		return s.fail("value", n)
	}
	s.rest = s.rest[n:]
	return true
}

func (s *scan) fail(what string, code int) bool {
	s.err = fmt.Errorf("read %s of field %d: %w: %w", what, s.field, ErrFrame, protowire.ParseError(code))
	return false
}

// varint and blob tell that the field at hand is this one, of this type.
func (s *scan) varint(field protowire.Number) bool {
	return s.field == field && s.kind == protowire.VarintType
}

func (s *scan) blob(field protowire.Number) bool {
	return s.field == field && s.kind == protowire.BytesType
}

// numbers appends the numbers of the field at hand, packed or not.
func (s *scan) numbers(list []uint64) []uint64 {
	if s.kind == protowire.VarintType {
		return append(list, s.number)
	}
	if list == nil {
		list = make([]uint64, 0, countVarints(s.bytes))
	}
	for b := s.bytes; len(b) > 0; {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			s.fail("packed number", n)
			return list
		}
		list, b = append(list, v), b[n:]
	}
	return list
}

// list tells that the field at hand is a list of numbers.
func (s *scan) list(field protowire.Number) bool { return s.varint(field) || s.blob(field) }

func countVarints(b []byte) int {
	n := 0
	for _, c := range b {
		if c < 0x80 {
			n++
		}
	}
	return n
}

// decode reads a header whose name may be the one at last, see same.
func (h *Header) decode(b []byte, last *string) error {
	s := scan{rest: b}
	for s.next() {
		switch {
		case s.blob(1):
			h.Key = same(last, s.bytes)
		case s.blob(2):
			h.Value = s.bytes
		}
	}
	return s.err
}
