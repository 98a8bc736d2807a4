package record

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"reflect"
	"testing"

	"github.com/kconsume/kconsume/plugin"
	goxerial "github.com/segmentio/kafka-go/compress/snappy/go-xerial-snappy"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Packings of a batch: the codecs, and xerial's framing of snappy.
const packXerial = 8 + codecSnappy

var packings = map[string]int{
	"none": codecNone, "gzip": codecGzip, "snappy": codecSnappy, "xerial": packXerial, "lz4": codecLZ4, "zstd": codecZstd,
}

// made describes a batch to be encoded by kmsg. Zero values are right for a
// plain one: count, last delta and checksum are filled in.
type made struct {
	base      int64
	records   []kmsg.Record
	packing   int
	attrs     int16
	lastDelta int32 // -1: of the last record
	firstTime int64
	maxTime   int64
	producer  int64
	count     int32        // 0: of the records
	raw       []byte       // in place of records
	edit      func([]byte) // before the checksum
	spoil     func([]byte) // after the checksum
}

func (m made) bytes(tb testing.TB) []byte {
	tb.Helper()
	body := m.raw
	last := int32(0)
	for _, r := range m.records {
		body = appendRecord(body, r)
		last = r.OffsetDelta
	}
	if m.lastDelta > 0 {
		last = m.lastDelta
	}
	if m.count == 0 {
		m.count = int32(len(m.records))
	}
	b := kmsg.RecordBatch{
		FirstOffset: m.base, PartitionLeaderEpoch: 3, Magic: 2, Attributes: m.attrs | int16(m.packing&attrCodec),
		LastOffsetDelta: last, FirstTimestamp: m.firstTime, MaxTimestamp: m.maxTime,
		ProducerID: m.producer, ProducerEpoch: -1, FirstSequence: -1,
		NumRecords: m.count, Records: pack(tb, m.packing, body),
	}
	b.Length = int32(len(b.AppendTo(nil)) - prefixSize)
	raw := b.AppendTo(nil)
	if m.edit != nil {
		m.edit(raw)
	}
	seal(raw)
	if m.spoil != nil {
		m.spoil(raw)
	}
	return raw
}

// appendRecord fills in the record's length.
func appendRecord(b []byte, r kmsg.Record) []byte {
	r.Length = 0 // which takes one byte
	r.Length = int32(len(r.AppendTo(nil)) - 1)
	return r.AppendTo(b)
}

// seal writes the right checksum.
func seal(raw []byte) {
	binary.BigEndian.PutUint32(raw[atCRC:], crc32.Checksum(raw[atAttrs:], crc32.MakeTable(crc32.Castagnoli)))
}

func pack(tb testing.TB, packing int, body []byte) []byte {
	tb.Helper()
	switch packing {
	case codecNone:
		return body
	case packXerial: // in several blocks
		half := len(body) / 2
		return goxerial.EncodeStream(goxerial.EncodeStream(nil, body[:half]), body[half:])
	}
	kinds := map[int]kgo.CompressionCodec{
		codecGzip: kgo.GzipCompression(), codecSnappy: kgo.SnappyCompression(), codecLZ4: kgo.Lz4Compression(), codecZstd: kgo.ZstdCompression(),
	}
	c, err := kgo.DefaultCompressor(kinds[packing])
	if err != nil {
		tb.Fatal(err)
	}
	out, got := c.Compress(new(bytes.Buffer), body)
	if int(got) != packing {
		tb.Fatalf("packed with codec %d, want %d", got, packing)
	}
	return bytes.Clone(out)
}

// kmsgDecode reads whole batches by kmsg, and knows nothing of ours. It does
// not check anything.
func kmsgDecode(tb testing.TB, buf []byte, from int64) []Record {
	tb.Helper()
	var out []Record
	for len(buf) > 0 {
		var b kmsg.RecordBatch
		size := 12 + int(binary.BigEndian.Uint32(buf[8:]))
		if err := b.ReadFrom(buf[:size]); err != nil {
			tb.Fatal(err)
		}
		buf = buf[size:]
		if b.Attributes&0x20 != 0 || b.NumRecords == 0 {
			continue
		}
		body, err := kgo.DefaultDecompressor().Decompress(b.Records, kgo.CompressionCodecType(b.Attributes&7))
		if err != nil {
			tb.Fatal(err)
		}
		for range b.NumRecords {
			length, n := binary.Varint(body)
			var r kmsg.Record
			if err := r.ReadFrom(body[:n+int(length)]); err != nil {
				tb.Fatal(err)
			}
			body = body[n+int(length):]
			got := Record{Offset: b.FirstOffset + int64(r.OffsetDelta), Timestamp: b.FirstTimestamp + r.TimestampDelta64, Key: r.Key, Value: r.Value}
			if b.Attributes&0x08 != 0 {
				got.Timestamp = b.MaxTimestamp
			}
			for _, h := range r.Headers {
				got.Headers = append(got.Headers, plugin.Header{Key: h.Key, Value: h.Value})
			}
			if got.Offset >= from {
				out = append(out, got)
			}
		}
	}
	return out
}

// sameRecords compares with null and empty told apart.
func sameRecords(tb testing.TB, got, want []Record) {
	tb.Helper()
	if len(got) != len(want) {
		tb.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], want[i]) {
			tb.Fatalf("record %d is\n%#v, want\n%#v", i, got[i], want[i])
		}
	}
}

// plain are n records with deltas from 0 on.
func plain(n int) []kmsg.Record {
	rs := make([]kmsg.Record, n)
	for i := range rs {
		rs[i] = kmsg.Record{OffsetDelta: int32(i), Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "value %d", i)}
	}
	return rs
}

func offsets(rs []Record) []int64 {
	out := []int64{}
	for _, r := range rs {
		out = append(out, r.Offset)
	}
	return out
}
