package record

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// choices turns fuzz input into decisions; when it has run out all are zero.
type choices []byte

func (c *choices) next() int {
	if len(*c) == 0 {
		return 0
	}
	v := (*c)[0]
	*c = (*c)[1:]
	return int(v)
}

// bytes are null, empty, or some of the input.
func (c *choices) bytes() []byte {
	n := c.next()
	switch {
	case n%8 == 0:
		return nil
	case n%8 == 1:
		return []byte{}
	}
	n = min(n, len(*c))
	v := append([]byte{}, (*c)[:n]...)
	*c = (*c)[n:]
	for range n % 3 { // something to pack
		v = append(v, v...)
	}
	return v
}

func (c *choices) batch(base int64) made {
	kinds := []int{codecNone, codecGzip, codecSnappy, packXerial, codecLZ4, codecZstd}
	m := made{base: base, packing: kinds[c.next()%len(kinds)], producer: int64(c.next()) - 1, firstTime: int64(c.next())*1e10 - 1, maxTime: 7}
	for i, bit := range []int16{attrLogAppendTime, attrTransactional, attrControl} {
		if c.next()%(2+2*i) == 1 {
			m.attrs |= bit
		}
	}
	delta := int32(-1)
	for range c.next() % 20 {
		delta += 1 + int32(c.next()%3)
		r := kmsg.Record{OffsetDelta: delta, TimestampDelta64: int64(c.next()-128) * 1e9, Key: c.bytes(), Value: c.bytes()}
		for range c.next() % 4 {
			r.Headers = append(r.Headers, kmsg.Header{Key: string(c.bytes()), Value: c.bytes()})
		}
		m.records = append(m.records, r)
	}
	m.lastDelta = max(delta, 0) + int32(c.next()%3)
	return m
}

// Valid batches decode to what kmsg makes of them, whatever is in them.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 2, 3, 4, 0, 0, 0, 5, 1, 130, 9, 'h', 'e', 'l', 'l', 'o', 1, 2, 3, 2, 10, 'a', 8})
	for k := range byte(6) {
		f.Add(append([]byte{k, 0, 1, 0, 0, 0, 4, 0, 128, 5, 'a', 'b', 'c', 'd', 'e', 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 8, 2}, make([]byte, 60)...))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		c := choices(in)
		from := int64(c.next() % 8)
		base := int64(c.next() % 4)
		var buf []byte
		next := from
		control := 0
		for range 1 + c.next()%4 {
			m := c.batch(base)
			buf = append(buf, m.bytes(t)...)
			base += int64(m.lastDelta) + 1
			if len(m.records) == 0 {
				base = m.base + max(int64(m.lastDelta), 0) + 1
			}
			if base > from {
				next = base
				if m.attrs&attrControl != 0 {
					control++
				}
			}
			base += int64(c.next() % 3)
		}
		s, err := Decode(buf, Options{From: from})
		if err != nil {
			t.Fatal(err)
		}
		sameRecords(t, s.Records, append([]Record(nil), kmsgDecode(t, buf, from)...))
		if s.Next != next || s.Control != control {
			t.Errorf("next %d, control %d; want %d, %d", s.Next, s.Control, next, control)
		}
	})
}

// Arbitrary bytes neither panic nor take more memory than is allowed, and what
// is returned keeps to the promises of Set.
func FuzzDecodeBytes(f *testing.F) {
	for _, packing := range packings {
		f.Add(made{records: rich(), packing: packing}.bytes(f), int64(0), true)
		f.Add(made{base: 9, records: plain(3), packing: packing}.bytes(f), int64(10), false)
	}
	f.Add(marker(5, 1, 0).bytes(f), int64(0), true)
	f.Fuzz(func(t *testing.T, buf []byte, from int64, sealed bool) {
		const limit = 1 << 20
		if sealed {
			sealAll(buf)
		}
		s, err := Decode(buf, Options{From: from, MaxInflate: limit, Aborted: []Aborted{{1, 0}}})
		if e, ok := errors.AsType[*Error](err); err != nil && (!ok || e.Offset != s.Next || e.Error() == "") {
			t.Errorf("error %#v, next %d", err, s.Next)
		}
		if s.Next < from || s.Bytes > limit+len(buf) || s.Truncated < 0 || s.Truncated > len(buf)+MaxBatch {
			t.Errorf("from %d: next %d, %d bytes, truncated %d", from, s.Next, s.Bytes, s.Truncated)
		}
		last := from - 1
		for _, r := range s.Records {
			if r.Offset <= last || r.Offset >= s.Next {
				t.Errorf("offset %d after %d, next is %d", r.Offset, last, s.Next)
			}
			last = r.Offset
		}
	})
}

// sealAll gives each batch the right checksum, so that the fuzzer gets past it.
func sealAll(buf []byte) {
	for len(buf) >= headerSize {
		size := prefixSize + int(int32(binary.BigEndian.Uint32(buf[atLength:])))
		if size < headerSize || size > len(buf) {
			return
		}
		seal(buf[:size])
		buf = buf[size:]
	}
}
