package record

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// allocated runs f and returns the bytes that it allocated in all.
func allocated(f func()) int {
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	f()
	runtime.ReadMemStats(&b)
	return int(b.TotalAlloc - a.TotalAlloc)
}

func TestDecodeBombs(t *testing.T) {
	const limit = 1 << 20
	zeros := []kmsg.Record{{Value: make([]byte, 64<<20)}}
	tests := map[string]made{
		"gzip":           {records: zeros, packing: codecGzip},
		"snappy":         {records: zeros, packing: codecSnappy},
		"xerial":         {records: zeros, packing: packXerial},
		"lz4":            {records: zeros, packing: codecLZ4},
		"zstd":           {records: zeros, packing: codecZstd},
		"many records":   {records: make([]kmsg.Record, 100_000), packing: codecZstd},
		"plain records":  {records: make([]kmsg.Record, 100_000)},
		"many headers":   {records: []kmsg.Record{{Headers: make([]kmsg.Header, 400_000)}}, packing: codecLZ4},
		"spread headers": {records: withHeaders(300, 100), packing: codecZstd},
	}
	for name, m := range tests {
		t.Run(name, func(t *testing.T) {
			for i := range m.records {
				m.records[i].OffsetDelta = int32(i)
			}
			m.base = 5
			buf := append(made{base: 4, records: plain(1)}.bytes(t), m.bytes(t)...)
			bad := buf[len(buf)-len(m.bytes(t)):]
			var err error
			var s Set
			if n := allocated(func() { s, err = Decode(bad, Options{From: 5, MaxInflate: limit}) }); n > 12*limit {
				t.Errorf("%d bytes were allocated for a limit of %d", n, limit)
			}
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Class != Bomb || e.Offset != 5 || e.Last != 4+int64(len(m.records)) {
				t.Fatalf("error %v, want a bomb at 5", err)
			}
			if len(s.Records) != 0 || s.Next != 5 || s.Bytes != 0 {
				t.Errorf("%d records, next %d, %d bytes", len(s.Records), s.Next, s.Bytes)
			}
			// Behind another batch it waits for a fetch of its own.
			if s, err = Decode(buf, Options{From: 4, MaxInflate: limit}); err != nil || s.Next != 5 || len(s.Records) != 1 {
				t.Errorf("behind another: %d records, next %d, error %v", len(s.Records), s.Next, err)
			}
		})
	}
}

func withHeaders(records, headers int) []kmsg.Record {
	rs := make([]kmsg.Record, records)
	for i := range rs {
		rs[i].Headers = make([]kmsg.Header, headers)
	}
	return rs
}

// Exactly the limit is allowed, one byte more is not.
func TestDecodeLimitIsExact(t *testing.T) {
	for name, packing := range packings {
		if packing == codecNone {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{100, 70_000, 300_000} {
				records := []kmsg.Record{{Value: bytes.Repeat([]byte("abcdefgh"), size/8)}}
				need := len(appendRecord(nil, records[0])) + recordSize
				buf := made{records: records, packing: packing}.bytes(t)
				s, err := Decode(buf, Options{MaxInflate: need})
				if err != nil || len(s.Records) != 1 || s.Bytes != need {
					t.Errorf("limit %d: %d records, %d bytes, error %v", need, len(s.Records), s.Bytes, err)
				}
				_, err = Decode(buf, Options{MaxInflate: need - 1})
				if e, ok := errors.AsType[*Error](err); !ok || e.Class != Bomb {
					t.Errorf("limit %d: error %v, want a bomb", need-1, err)
				}
			}
		})
	}
}

// A set holds no more than the limit, and reading on gives all records.
func TestDecodeSetStopsAtTheLimit(t *testing.T) {
	var buf []byte
	var want []Record
	var ends []int
	for i := range 20 {
		m := made{base: int64(i * 3), packing: codecZstd, records: plain(3)}
		m.records[1].Value = make([]byte, 40_000)
		one := m.bytes(t)
		buf = append(buf, one...)
		ends = append(ends, len(buf))
		want = append(want, kmsgDecode(t, one, 0)...)
	}
	const limit = 100_000
	var got []Record
	for next, calls := int64(0), 0; next < 60; calls++ {
		if calls == 20 {
			t.Fatal("no progress")
		}
		at := 0
		if next > 0 {
			at = ends[next/3-1]
		}
		s, err := Decode(buf[at:], Options{From: next, MaxInflate: limit})
		if err != nil {
			t.Fatal(err)
		}
		if s.Bytes > limit {
			t.Errorf("a set of %d bytes", s.Bytes)
		}
		got, next = append(got, s.Records...), s.Next
	}
	sameRecords(t, got, want)
}

// Lies about counts and lengths cost no memory.
func TestDecodeTrustsNoCount(t *testing.T) {
	for name, m := range map[string]made{
		"records":          {records: plain(1), count: math.MaxInt32},
		"records in zstd":  {records: plain(1), count: math.MaxInt32, packing: codecZstd},
		"headers":          {raw: []byte("\x14\x00\x00\x00\x01\x01\x80\x80\x80\x80\x10"), count: 1},
		"snappy":           {raw: []byte("\xff\xff\xff\x0f\x00"), count: 1, attrs: codecSnappy},
		"zstd content 1GB": {raw: []byte("\x28\xb5\x2f\xfd\xa0\x00\x00\x00\x40\x01\x00\x00"), count: 1, attrs: codecZstd},
	} {
		buf := m.bytes(t)
		if n := allocated(func() { _, _ = Decode(buf, Options{}) }); n > 8<<20 {
			t.Errorf("%s: %d bytes were allocated", name, n)
		}
	}
}

func TestDecodeAllocations(t *testing.T) {
	rs := plain(200)
	for i := range rs {
		rs[i].Headers = []kmsg.Header{{Key: "a", Value: []byte("b")}, {Key: "c"}}
	}
	var buf []byte
	for i := range 10 {
		buf = append(buf, made{base: int64(i) * 200, records: rs}.bytes(t)...)
	}
	// one slice of records, and a slab of headers a batch
	if n := testing.AllocsPerRun(20, func() { _, _ = Decode(buf, Options{}) }); n > 11 {
		t.Errorf("%v allocations for 10 batches", n)
	}
}

// Many decoders at once share the pool.
func TestDecodeConcurrently(t *testing.T) {
	done := make(chan error)
	for name, packing := range packings {
		buf := made{records: rich(), packing: packing}.bytes(t)
		want := kmsgDecode(t, buf, 0)
		go func() {
			for range 50 {
				s, err := Decode(buf, Options{})
				if err != nil || len(s.Records) != len(want) || !bytes.Equal(s.Records[2].Value, want[2].Value) {
					done <- errors.Join(err, errors.New(name))
					return
				}
			}
			done <- nil
		}()
	}
	for range packings {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
