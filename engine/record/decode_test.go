package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"

	"github.com/kconsume/kconsume/plugin"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// rich are records with everything that must be kept apart.
func rich() []kmsg.Record {
	return []kmsg.Record{
		{OffsetDelta: 0, TimestampDelta64: 0, Key: nil, Value: nil},
		{OffsetDelta: 1, TimestampDelta64: 5, Key: []byte{}, Value: []byte{}},
		{OffsetDelta: 4, TimestampDelta64: -7, Key: []byte("k"), Value: bytes.Repeat([]byte("v"), 3000)},
		{OffsetDelta: 5, TimestampDelta64: math.MaxInt32 + 1, Headers: []kmsg.Header{
			{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}, {Key: "a", Value: []byte{}},
			{Key: "", Value: []byte("no name")}, {Key: "\xff\xfe", Value: []byte{0, 255}},
		}},
		{OffsetDelta: 6, Headers: []kmsg.Header{{Key: "b", Value: bytes.Repeat([]byte("h"), 900)}}},
	}
}

func TestDecodeKeepsEveryByte(t *testing.T) {
	for name, packing := range packings {
		t.Run(name, func(t *testing.T) {
			buf := made{base: 100, records: rich(), packing: packing, firstTime: 1700000000000, maxTime: 1, producer: -1}.bytes(t)
			buf = append(buf, made{base: 107, records: plain(300), packing: packing, firstTime: -1, maxTime: 9}.bytes(t)...)
			s, err := Decode(buf, Options{From: 100})
			if err != nil {
				t.Fatal(err)
			}
			want := []Record{
				{Offset: 100, Timestamp: 1700000000000},
				{Offset: 101, Timestamp: 1700000000005, Key: []byte{}, Value: []byte{}},
				{Offset: 104, Timestamp: 1699999999993, Key: []byte("k"), Value: bytes.Repeat([]byte("v"), 3000)},
				{Offset: 105, Timestamp: 1702147483648, Headers: []plugin.Header{
					{Key: "a", Value: []byte("1")}, {Key: "a"}, {Key: "a", Value: []byte{}},
					{Key: "", Value: []byte("no name")}, {Key: "\xff\xfe", Value: []byte{0, 255}},
				}},
				{Offset: 106, Timestamp: 1700000000000, Headers: []plugin.Header{{Key: "b", Value: bytes.Repeat([]byte("h"), 900)}}},
			}
			sameRecords(t, s.Records[:len(want)], want)
			sameRecords(t, s.Records, kmsgDecode(t, buf, 0))
			if s.Next != 407 || s.Truncated != 0 || s.Records[5].Timestamp != -1 {
				t.Errorf("next %d, truncated %d, time %d", s.Next, s.Truncated, s.Records[5].Timestamp)
			}
		})
	}
}

func TestDecodeOffsets(t *testing.T) {
	at := func(deltas ...int32) (rs []kmsg.Record) {
		for _, d := range deltas {
			rs = append(rs, kmsg.Record{OffsetDelta: d})
		}
		return rs
	}
	tests := []struct {
		name string
		from int64
		in   []made
		want []int64
		next int64
	}{
		{"nothing", 42, nil, []int64{}, 42},
		{"plain", 0, []made{{records: at(0, 1, 2)}}, []int64{0, 1, 2}, 3},
		{"begins before the wanted offset", 2, []made{{records: at(0, 1, 2, 3)}}, []int64{2, 3}, 4},
		{"wanted offset compacted away", 2, []made{{records: at(0, 1, 5)}}, []int64{5}, 6},
		{"batch before the wanted offset", 10, []made{{records: at(0, 1)}, {base: 10, records: at(0)}}, []int64{10}, 11},
		{"only before the wanted offset", 10, []made{{records: at(0, 1)}}, []int64{}, 10},
		{"compacted tail", 0, []made{{records: at(0, 1), lastDelta: 99}}, []int64{0, 1}, 100},
		{"empty batch left by compaction", 0, []made{{lastDelta: 999}}, []int64{}, 1000},
		{"gap, empty, gap", 5, []made{{records: at(5), lastDelta: 9}, {base: 20, lastDelta: 9}, {base: 40, records: at(1, 3)}}, []int64{5, 41, 43}, 44},
		{"control batch", 0, []made{{records: at(0)}, {base: 1, attrs: attrControl | attrTransactional, records: at(0)}, {base: 2, records: at(0)}}, []int64{0, 2}, 3},
		{"trailing control batch", 0, []made{{records: at(0)}, {base: 1, attrs: attrControl, records: at(0)}}, []int64{0}, 2},
		{"all below within the batch", 3, []made{{records: at(0, 1), lastDelta: 9}}, []int64{}, 10},
		{"largest offset", math.MaxInt64 - 1, []made{{base: math.MaxInt64 - 1, records: at(0)}}, []int64{math.MaxInt64 - 1}, math.MaxInt64},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var buf []byte
			for _, m := range tt.in {
				buf = append(buf, m.bytes(t)...)
			}
			s, err := Decode(buf, Options{From: tt.from})
			if err != nil {
				t.Fatal(err)
			}
			if got := offsets(s.Records); !reflect.DeepEqual(got, tt.want) || s.Next != tt.next || s.Truncated != 0 {
				t.Errorf("offsets %v, next %d, truncated %d; want %v, %d, 0", got, s.Next, s.Truncated, tt.want, tt.next)
			}
		})
	}
}

func TestDecodeLogAppendTime(t *testing.T) {
	buf := made{records: []kmsg.Record{{TimestampDelta64: 3}, {OffsetDelta: 1, TimestampDelta64: 4}}, firstTime: 1000, maxTime: 77, attrs: attrLogAppendTime}.bytes(t)
	s, err := Decode(buf, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range s.Records {
		if r.Timestamp != 77 {
			t.Errorf("offset %d has time %d, want the broker's 77", r.Offset, r.Timestamp)
		}
	}
}

// Every cut of two batches: the whole ones are there, and it is no error.
func TestDecodeTruncatedTail(t *testing.T) {
	first := made{records: plain(2)}.bytes(t)
	buf := append(bytes.Clone(first), made{base: 2, records: plain(3)}.bytes(t)...)
	for n := range len(buf) {
		s, err := Decode(buf[:n:n], Options{})
		if err != nil {
			t.Fatalf("cut at %d: %v", n, err)
		}
		want := Set{Records: s.Records, Bytes: s.Bytes}
		switch {
		case n >= len(first):
			want.Next = 2
		case n > atMagic:
			want.Truncated = len(first)
		case n > 0:
			want.Truncated = headerSize
		}
		if !reflect.DeepEqual(s, want) || len(s.Records) != int(want.Next) {
			t.Fatalf("cut at %d: %d records, %+v", n, len(s.Records), s)
		}
	}
}

// A damaged length must not ask for a fetch that cannot be sent.
func TestDecodeTruncatedIsBounded(t *testing.T) {
	buf := made{records: plain(1)}.bytes(t)
	binary.BigEndian.PutUint32(buf[atLength:], MaxBatch-prefixSize)
	if s, err := Decode(buf, Options{}); err != nil || s.Truncated != MaxBatch {
		t.Errorf("truncated %d, error %v, want %d", s.Truncated, err, MaxBatch)
	}
}

func TestDecodeTruncatedBehindUnwanted(t *testing.T) {
	first := made{records: plain(2)}.bytes(t)
	second := made{base: 2, records: plain(3)}.bytes(t)
	s, err := Decode(append(bytes.Clone(first), second[:80]...), Options{From: 3})
	if err != nil || s.Next != 3 || s.Truncated != len(first)+len(second) {
		t.Errorf("next %d, truncated %d, error %v; a fetch needs %d bytes", s.Next, s.Truncated, err, len(first)+len(second))
	}
}

func TestDecodeRefuses(t *testing.T) {
	put32 := func(at int, v int32) func([]byte) {
		return func(b []byte) { binary.BigEndian.PutUint32(b[at:], uint32(v)) }
	}
	raw := func(hex string) made {
		var b []byte
		fmt.Sscanf(hex, "%x", &b)
		return made{raw: b, count: 1}
	}
	tests := []struct {
		name string
		bad  made
		want Class
	}{
		{"bit flip in a value", made{records: plain(3), spoil: func(b []byte) { b[len(b)-3] ^= 4 }}, Corrupt},
		{"bit flip in the attributes", made{records: plain(3), spoil: func(b []byte) { b[atAttrs+1] ^= 0x20 }}, Corrupt},
		{"bit flip in the record count", made{records: plain(3), spoil: func(b []byte) { b[atCount+3] ^= 1 }}, Corrupt},
		{"length shorter than a header", made{records: plain(1), spoil: put32(atLength, 48)}, Corrupt},
		{"length negative", made{records: plain(1), spoil: put32(atLength, -1)}, Corrupt},
		{"length beyond any batch", made{records: plain(1), spoil: put32(atLength, MaxBatch-prefixSize+1)}, Corrupt},
		{"length of 2^31", made{records: plain(1), spoil: put32(atLength, math.MaxInt32)}, Corrupt},
		{"offset negative", made{base: -5, records: plain(1)}, Corrupt},
		{"offsets overflow", made{base: math.MaxInt64 - 2, lastDelta: 2}, Corrupt},
		{"last delta negative", made{records: plain(1), edit: put32(atLastDelta, -1)}, Corrupt},
		{"count negative", made{records: plain(1), edit: put32(atCount, -1)}, Corrupt},
		{"offset goes back", made{base: 3, records: plain(3)}, Corrupt},
		{"magic 0", made{records: plain(1), spoil: func(b []byte) { b[atMagic] = 0 }}, Magic},
		{"magic 1", made{records: plain(1), spoil: func(b []byte) { b[atMagic] = 1 }}, Magic},
		{"magic 3", made{records: plain(1), spoil: func(b []byte) { b[atMagic] = 3 }}, Magic},
		{"count too large", made{records: plain(3), count: 4}, TruncatedRecord},
		{"count larger than all bytes", made{records: plain(3), count: math.MaxInt32}, TruncatedRecord},
		{"count too small", made{records: plain(3), count: 2}, Corrupt},
		{"deltas not rising", made{records: []kmsg.Record{{OffsetDelta: 1}, {OffsetDelta: 1}}}, Corrupt},
		{"delta negative", made{records: []kmsg.Record{{OffsetDelta: -1}}, lastDelta: 9}, Corrupt},
		{"delta behind the last", made{records: []kmsg.Record{{OffsetDelta: 7}}, edit: put32(atLastDelta, 6)}, Corrupt},
		// length, attributes, time, offset, key, value, headers
		{"record longer than the batch", raw("0e000000010100"), TruncatedRecord},
		{"record of no length", raw("00000000010100"), TruncatedRecord},
		{"record of negative length", raw("01000000010100"), TruncatedRecord},
		{"key longer than the record", raw("0c000000040100"), TruncatedRecord},
		{"key longer than 2^62", raw("18000000feffffffffffffffff01"), TruncatedRecord},
		{"varint that never ends", raw("0c0000ffffffffffffffffffffff"), TruncatedRecord},
		{"value longer than the record", raw("0c000000010800"), TruncatedRecord},
		{"fields shorter than the record", raw("0e00000001010000"), Corrupt},
		{"header count too large", raw("100000000101040000"), TruncatedRecord},
		{"header count of 2^31", raw("1400000001018080808010"), TruncatedRecord},
		{"header count negative", raw("0c000000010101"), Corrupt},
		{"header name null", raw("100000000101020101"), Corrupt},
		{"header value over the end", raw("100000000101020002"), TruncatedRecord},
		{"codec 5", made{records: plain(3), attrs: 5}, Codec},
		{"codec 7", made{records: plain(3), attrs: 7}, Codec},
		{"not gzip", made{records: plain(3), attrs: codecGzip}, Codec},
		{"not snappy", made{records: plain(3), attrs: codecSnappy}, Codec},
		{"not lz4", made{records: plain(3), attrs: codecLZ4}, Codec},
		{"not zstd", made{records: plain(3), attrs: codecZstd}, Codec},
		{"xerial with a cut head", made{raw: []byte(xerialMagic), count: 1, attrs: codecSnappy}, Codec},
		{"xerial with a long block", made{raw: []byte(xerialMagic + "\x00\x00\x00\x01\x00\x00\x00\x01\xff\xff\xff\xff"), count: 1, attrs: codecSnappy}, Codec},
		{"snappy that says too much", made{raw: []byte("\xff\xff\xff\x0f\x00"), count: 1, attrs: codecSnappy}, Codec},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.bad.base == 0 {
				tt.bad.base = 4
			}
			buf := append(made{records: plain(4)}.bytes(t), tt.bad.bytes(t)...)
			s, err := Decode(buf, Options{})
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Class != tt.want {
				t.Fatalf("error %v, want class %s", err, tt.want)
			}
			if e.Offset != 4 || s.Next != 4 || s.Truncated != 0 {
				t.Errorf("error at %d, next %d; both should be 4", e.Offset, s.Next)
			}
			sameRecords(t, s.Records, kmsgDecode(t, made{records: plain(4)}.bytes(t), 0))
		})
	}
}

// A batch whose header is right can be skipped by the error that it gives.
func TestErrorTellsWhereToGoOn(t *testing.T) {
	for _, tt := range []struct {
		name string
		bad  made
		last int64
	}{
		{"codec", made{base: 10, records: plain(5), attrs: 6}, 14},
		{"flipped", made{base: 10, records: plain(5), spoil: func(b []byte) { b[len(b)-1] ^= 1 }}, -1},
	} {
		_, err := Decode(tt.bad.bytes(t), Options{From: 12})
		if e, ok := errors.AsType[*Error](err); !ok || e.Last != tt.last || e.Offset != 12 {
			t.Errorf("%s: %+v, want offset 12, last %d", tt.name, err, tt.last)
		}
	}
}

// marker is a control batch of the producer.
func marker(base, producer int64, kind byte) made {
	return made{base: base, producer: producer, attrs: attrControl | attrTransactional,
		records: []kmsg.Record{{Key: []byte{0, 0, 0, kind}, Value: []byte{0, 0, 0, 0, 0, 1}}}}
}

func TestDecodeAbortedTransactions(t *testing.T) {
	const abort, commit = 0, 1
	tx := func(base, producer int64, n int) made {
		return made{base: base, producer: producer, attrs: attrTransactional, records: plain(n)}
	}
	log := []made{
		tx(0, 1, 2), // aborted by 5
		tx(2, 2, 1), // committed by 4
		{base: 3, producer: 1, records: plain(1)}, // not transactional
		marker(4, 2, commit),
		marker(5, 1, abort),
		tx(6, 1, 2), // committed by 8
		marker(8, 1, commit),
		tx(9, 1, 1),  // aborted by 12
		tx(10, 2, 2), // aborted by 13
		marker(12, 1, abort),
		marker(13, 2, abort),
		tx(14, 2, 1), // committed by 15
		marker(15, 2, commit),
	}
	var buf []byte
	for i, m := range log {
		m.packing = i % 2 * codecZstd
		buf = append(buf, m.bytes(t)...)
	}
	list := []Aborted{{2, 10}, {1, 0}, {1, 9}} // in no order
	tests := []struct {
		name    string
		from    int64
		aborted []Aborted
		want    []int64
		dropped int
		control int
	}{
		{"read_committed", 0, list, []int64{2, 3, 6, 7, 14}, 5, 6},
		{"read_uncommitted", 0, nil, []int64{0, 1, 2, 3, 6, 7, 9, 10, 11, 14}, 0, 6},
		{"from inside a transaction", 1, list, []int64{2, 3, 6, 7, 14}, 5, 6},
		{"from behind the first", 6, list[:1], []int64{6, 7, 9, 14}, 2, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Decode(buf, Options{From: tt.from, Aborted: tt.aborted})
			if err != nil {
				t.Fatal(err)
			}
			if got := offsets(s.Records); !reflect.DeepEqual(got, tt.want) || s.Aborted != tt.dropped || s.Control != tt.control || s.Next != 16 {
				t.Errorf("offsets %v, dropped %d, control %d, next %d; want %v, %d, %d, 16", got, s.Aborted, s.Control, s.Next, tt.want, tt.dropped, tt.control)
			}
			sameAsKgo(t, buf, tt.from, tt.aborted, s)
		})
	}
	if !reflect.DeepEqual(list, []Aborted{{2, 10}, {1, 0}, {1, 9}}) {
		t.Error("the caller's list was changed")
	}
}

// sameAsKgo compares offsets with what franz-go makes of the same answer.
func sameAsKgo(t *testing.T, buf []byte, from int64, aborted []Aborted, got Set) {
	t.Helper()
	rp := kmsg.FetchResponseTopicPartition{HighWatermark: math.MaxInt64, LastStableOffset: math.MaxInt64, RecordBatches: buf}
	o := kgo.ProcessFetchPartitionOpts{Offset: from, IsolationLevel: kgo.ReadUncommitted()}
	if aborted != nil {
		o.IsolationLevel = kgo.ReadCommitted()
	}
	for _, a := range aborted {
		rp.AbortedTransactions = append(rp.AbortedTransactions, kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset})
	}
	fp, next := kgo.ProcessFetchPartition(o, &rp, kgo.DefaultDecompressor(), nil)
	if fp.Err != nil {
		t.Fatal(fp.Err)
	}
	want := []int64{}
	for _, r := range fp.Records {
		want = append(want, r.Offset)
	}
	if !reflect.DeepEqual(offsets(got.Records), want) || got.Next != next {
		t.Errorf("offsets %v, next %d; franz-go says %v, %d", offsets(got.Records), got.Next, want, next)
	}
}

// A marker that cannot be read ends nothing, and is passed.
func TestDecodeOddMarkers(t *testing.T) {
	for name, m := range map[string]made{
		"empty":       {base: 1, producer: 1, attrs: attrControl, lastDelta: 0},
		"short key":   {base: 1, producer: 1, attrs: attrControl, records: []kmsg.Record{{Key: []byte{0}}}},
		"null key":    {base: 1, producer: 1, attrs: attrControl, records: []kmsg.Record{{}}},
		"other kind":  marker(1, 1, 4),
		"garbage":     {base: 1, producer: 1, attrs: attrControl, raw: []byte{2}, count: 1},
		"other maker": marker(1, 7, 0),
	} {
		buf := made{producer: 1, attrs: attrTransactional, records: plain(1)}.bytes(t)
		buf = append(buf, m.bytes(t)...)
		buf = append(buf, made{base: 2, producer: 1, attrs: attrTransactional, records: plain(1)}.bytes(t)...)
		s, err := Decode(buf, Options{Aborted: []Aborted{{1, 0}}})
		if err != nil || s.Aborted != 2 || s.Control != 1 || s.Next != 3 {
			t.Errorf("%s: %+v, error %v", name, s, err)
		}
	}
}

// Records are views: no byte of an unpacked batch is copied.
func TestDecodeViews(t *testing.T) {
	buf := made{records: []kmsg.Record{{Value: []byte("AAAA"), Key: []byte("BBBB"), Headers: []kmsg.Header{{Key: "CCCC", Value: []byte("DDDD")}}}}}.bytes(t)
	s, err := Decode(buf, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range buf {
		buf[i] |= 0x20 // to lower case
	}
	r := s.Records[0]
	if got := string(r.Key) + string(r.Value) + r.Headers[0].Key + string(r.Headers[0].Value); got != "bbbbaaaaccccdddd" {
		t.Errorf("records hold %q, not what the buffer does", got)
	}
	if cap(r.Value) != 4 || cap(r.Key) != 4 || cap(r.Headers) != 1 {
		t.Error("appending to a view would write over what follows it")
	}
}
