package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// Layout of a batch header; all integers are big endian.
const (
	atLength    = 8  // int32, of everything after it
	atMagic     = 16 // int8, in every format
	atCRC       = 17 // uint32, Castagnoli, over everything after it
	atAttrs     = 21 // int16
	atLastDelta = 23 // int32
	atFirstTime = 27 // int64, unix ms
	atMaxTime   = 35 // int64, unix ms
	atProducer  = 43 // int64
	atCount     = 57 // int32

	headerSize  = 61
	prefixSize  = 12 // base offset and length, which the length does not count
	minRecord   = 7  // bytes of the smallest record: seven varints of one byte
	minHeader   = 2  // bytes of the smallest header of a record
	formatMagic = 2
)

// MaxBatch is the most bytes a batch is believed to be long. Brokers allow
// 1 MiB unless they are told otherwise.
const MaxBatch = 256 << 20

// Bits of a batch's attributes; the lowest three are the codec.
const (
	attrCodec         = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
)

// castagnoli is a constant in all but name.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// batch is one batch whose checksum has been verified.
type batch struct {
	base, last         int64 // offsets
	firstTime, maxTime int64 // unix ms
	producer           int64
	attrs              int16
	count              int    // of records, as the producer says
	body               []byte // the records, perhaps compressed
	size               int    // bytes of the whole batch in the buffer
	lastDelta          int64
}

func (b *batch) is(attr int16) bool { return b.attrs&attr != 0 }

// readBatch reads the batch that buf begins with. missing is the number of
// bytes that the batch takes, if buf ends before it does. Of the header only
// magic and length are used before the checksum has been verified, as they
// tell where it is and what it covers.
func readBatch(buf []byte) (b batch, missing int, err *Error) {
	if len(buf) <= atMagic {
		return b, headerSize, nil
	}
	if magic := int8(buf[atMagic]); magic != formatMagic {
		return b, 0, fault(Magic, fmt.Errorf("message format v%d", magic))
	}
	length := int(int32(binary.BigEndian.Uint32(buf[atLength:])))
	if length < headerSize-prefixSize || length > MaxBatch-prefixSize {
		return b, 0, fault(Corrupt, fmt.Errorf("batch length is %d", length))
	}
	size := prefixSize + length
	if size > len(buf) {
		return b, size, nil
	}
	buf = buf[:size:size]
	if crc32.Checksum(buf[atAttrs:], castagnoli) != binary.BigEndian.Uint32(buf[atCRC:]) {
		return b, 0, fault(Corrupt, errors.New("checksum does not match"))
	}
	b = batch{
		base:      int64(binary.BigEndian.Uint64(buf)),
		attrs:     int16(binary.BigEndian.Uint16(buf[atAttrs:])),
		lastDelta: int64(int32(binary.BigEndian.Uint32(buf[atLastDelta:]))),
		firstTime: int64(binary.BigEndian.Uint64(buf[atFirstTime:])),
		maxTime:   int64(binary.BigEndian.Uint64(buf[atMaxTime:])),
		producer:  int64(binary.BigEndian.Uint64(buf[atProducer:])),
		count:     int(int32(binary.BigEndian.Uint32(buf[atCount:]))),
		body:      buf[headerSize:],
		size:      size,
	}
	if b.base < 0 || b.lastDelta < 0 || b.base > math.MaxInt64-1-b.lastDelta {
		return b, 0, fault(Corrupt, fmt.Errorf("offsets begin at %d and end %d later", b.base, b.lastDelta))
	}
	b.last = b.base + b.lastDelta
	if b.count < 0 {
		return b, 0, fault(Corrupt, fmt.Errorf("record count is %d", b.count))
	}
	return b, 0, nil
}

// fault is an Error that does not know yet where it is.
func fault(c Class, err error) *Error { return &Error{Class: c, Last: -1, Err: err} }

// countRecords is how many records the whole batches of buf can hold at most,
// by headers that nobody has verified: never more than their bytes have room
// for. It saves growing the slice batch by batch.
func countRecords(buf []byte, from int64) int {
	n := 0
	for len(buf) >= headerSize {
		size := prefixSize + int(int32(binary.BigEndian.Uint32(buf[atLength:])))
		if size < headerSize || size > len(buf) {
			break
		}
		last := int64(binary.BigEndian.Uint64(buf)) + int64(int32(binary.BigEndian.Uint32(buf[atLastDelta:])))
		if control := binary.BigEndian.Uint16(buf[atAttrs:])&attrControl != 0; !control && last >= from {
			count := int(int32(binary.BigEndian.Uint32(buf[atCount:])))
			n += max(0, min(count, (size-headerSize)/minRecord))
		}
		buf = buf[size:]
	}
	return n
}
