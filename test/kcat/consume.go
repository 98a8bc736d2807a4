package kcat

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kconsume/kconsume/plugin"
)

// Consume reads a whole topic up to its present end, by partition and offset.
// Aborted and open transactions are left out, checksums are checked. Further
// arguments go to kcat: -p 3 for one partition, -X isolation.level=read_uncommitted.
func Consume(t testing.TB, brokers, topic string, args ...string) []Record {
	t.Helper()
	args = append([]string{
		"-C", "-b", brokers, "-t", topic, "-o", "beginning", "-e", "-q", "-J",
		"-X", "check.crcs=true", "-X", "fetch.wait.max.ms=50",
	}, args...)
	var records []Record
	for line := range bytes.Lines(run(t, nil, args...)) {
		r, err := parse(line)
		if err != nil {
			t.Fatalf("read kcat's output: %v", err)
		}
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return records
}

// parse reads one line of kcat -J.
func parse(line []byte) (Record, error) {
	var j struct {
		Partition int32
		Offset    int64
		TSType    string
		TS        int64
		Headers   []*raw // name, value, name, value
		Key       *raw
		Payload   *raw
	}
	if err := json.Unmarshal(widen(line), &j); err != nil {
		return Record{}, fmt.Errorf("decode %q: %w", line, err)
	}
	if len(j.Headers)%2 != 0 {
		return Record{}, fmt.Errorf("decode %q: a header without a value", line)
	}
	r := Record{
		Partition:  j.Partition,
		Offset:     j.Offset,
		AppendTime: j.TSType == "logappend",
		Key:        j.Key.bytes(),
		Value:      j.Payload.bytes(),
	}
	if j.TSType != "" {
		r.Time = time.UnixMilli(j.TS)
	}
	for h := range slices.Chunk(j.Headers, 2) {
		r.Headers = append(r.Headers, plugin.Header{Key: string(h[0].bytes()), Value: h[1].bytes()})
	}
	return r, nil
}

// raw is a string of kcat's, decoded from widened JSON.
type raw []byte

// bytes keeps null (nil) and empty apart.
func (r *raw) bytes() []byte {
	if r == nil {
		return nil
	}
	return *r
}

// UnmarshalJSON turns every character back into the byte it stands for.
func (r *raw) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	*r = make(raw, 0, len(s))
	for _, c := range s {
		if c > 0xff {
			return fmt.Errorf("character %U is no byte", c)
		}
		*r = append(*r, byte(c))
	}
	return nil
}

// widen makes proper JSON of kcat's: each byte becomes the character of that number.
func widen(line []byte) []byte {
	wide := make([]byte, 0, len(line)+len(line)/2)
	for _, c := range line {
		wide = utf8.AppendRune(wide, rune(c))
	}
	return wide
}
