package wire

import (
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// AppendID appends the stable id of a record to b:
// topic/partition/offset@timestamp-ms.
func AppendID(b []byte, topic string, partition int32, offset, timestampMS int64) []byte {
	b = append(b, topic...)
	b = append(b, '/')
	b = strconv.AppendInt(b, int64(partition), 10)
	b = append(b, '/')
	b = strconv.AppendInt(b, offset, 10)
	b = append(b, '@')
	return strconv.AppendInt(b, timestampMS, 10)
}

// SizeID is how long AppendID's text is.
func SizeID(topic string, partition int32, offset, timestampMS int64) int {
	return len(topic) + 3 + sizeInt(int64(partition)) + sizeInt(offset) + sizeInt(timestampMS)
}

func sizeInt(v int64) int {
	n, u := 1, uint64(v)
	if v < 0 {
		n, u = 2, -u
	}
	for ; u >= 10; u /= 10 {
		n++
	}
	return n
}

// Every field number of the contract is below 16, so that a tag is one byte.
const tagSize = 1

func varintTag(field byte) byte { return field<<3 | byte(protowire.VarintType) }
func bytesTag(field byte) byte  { return field<<3 | byte(protowire.BytesType) }

// sizeVarint and appendVarint leave a zero out, as proto3 does.
func sizeVarint(v uint64) int {
	if v == 0 {
		return 0
	}
	return tagSize + protowire.SizeVarint(v)
}

func appendVarint(b []byte, field byte, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(append(b, varintTag(field)), v)
}

func sizeBool(v bool) int {
	if v {
		return tagSize + 1
	}
	return 0
}

func appendBool(b []byte, field byte, v bool) []byte {
	if v {
		b = append(b, varintTag(field), 1)
	}
	return b
}

// sizeField is the size of a field of n bytes, with its tag and length.
func sizeField(n int) int { return tagSize + protowire.SizeBytes(n) }

func appendLength(b []byte, field byte, n int) []byte {
	return protowire.AppendVarint(append(b, bytesTag(field)), uint64(n))
}

// sizeText and appendText leave an empty text out.
func sizeText(s string) int {
	if s == "" {
		return 0
	}
	return sizeField(len(s))
}

func appendText(b []byte, field byte, s string) []byte {
	if s == "" {
		return b
	}
	return append(appendLength(b, field, len(s)), s...)
}

// sizeTexts and appendTexts keep empty elements, which count in a list.
func sizeTexts(list []string) int {
	n := 0
	for _, s := range list {
		n += sizeField(len(s))
	}
	return n
}

func appendTexts(b []byte, field byte, list []string) []byte {
	for _, s := range list {
		b = append(appendLength(b, field, len(s)), s...)
	}
	return b
}

// sizeBytes and appendBytes leave null out and keep empty.
func sizeBytes(v []byte) int {
	if v == nil {
		return 0
	}
	return sizeField(len(v))
}

func appendBytes(b []byte, field byte, v []byte) []byte {
	if v == nil {
		return b
	}
	return append(appendLength(b, field, len(v)), v...)
}

// packedSize is the size of a list's numbers alone.
func packedSize(list []uint64) int {
	n := 0
	for _, v := range list {
		n += protowire.SizeVarint(v)
	}
	return n
}

func sizePacked(list []uint64) int {
	if len(list) == 0 {
		return 0
	}
	return sizeField(packedSize(list))
}

func appendPacked(b []byte, field byte, list []uint64) []byte {
	if len(list) == 0 {
		return b
	}
	b = appendLength(b, field, packedSize(list))
	for _, v := range list {
		b = protowire.AppendVarint(b, v)
	}
	return b
}

func (h *Header) size() int { return sizeText(h.Key) + sizeBytes(h.Value) }

func sizeHeaders(list []Header) int {
	n := 0
	for i := range list {
		n += sizeField(list[i].size())
	}
	return n
}

func appendHeaders(b []byte, field byte, list []Header) []byte {
	for i := range list {
		h := &list[i]
		b = appendLength(b, field, h.size())
		b = appendText(b, 1, h.Key)
		b = appendBytes(b, 2, h.Value)
	}
	return b
}
