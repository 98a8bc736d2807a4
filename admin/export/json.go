package export

import (
	"bytes"
	"errors"
)

// MarshalJSON writes the record as a line has it.
func (r Record) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	if err := Encode(&out, &r); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *Record) UnmarshalJSON(text []byte) error {
	got, err := Parse(text)
	if e, ok := errors.AsType[*Error](err); ok {
		return errors.New(e.Reason)
	}
	if err == nil {
		*r = got
	}
	return err
}
