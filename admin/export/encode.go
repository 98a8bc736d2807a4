package export

import (
	"encoding/json"
	"fmt"
	"io"
)

// Encode writes a record as one line.
func Encode(w io.Writer, r *Record) error {
	out := lineJSON{
		Topic: r.Topic, Partition: &r.Partition, Key: r.Key, Value: r.Value, Attempt: r.Attempt, About: r.About,
	}
	if r.Offset >= 0 {
		out.Offset = &r.Offset
	}
	if r.Timestamp != -1 {
		out.Timestamp = &r.Timestamp
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, HeaderJSON{Bytes(h.Key), h.Value})
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if err := e.Encode(out); err != nil {
		return fmt.Errorf("write record %s/%d@%d: %w", r.Topic, r.Partition, r.Offset, err)
	}
	return nil
}

// lineJSON is a line, its fields in the order in which they are written.
type lineJSON struct {
	Topic     string          `json:"topic,omitempty"`
	Partition *int32          `json:"partition,omitempty"`
	Offset    *int64          `json:"offset,omitempty"`
	Timestamp *int64          `json:"timestamp,omitempty"`
	Key       Bytes           `json:"key"`
	Value     Bytes           `json:"value"`
	Headers   []HeaderJSON    `json:"headers,omitempty"`
	Attempt   int             `json:"attempt,omitempty"`
	About     json.RawMessage `json:"about,omitempty"`
}

// HeaderJSON is a header as it stands in JSON.
type HeaderJSON struct {
	Key   Bytes `json:"key"`
	Value Bytes `json:"value"`
}
