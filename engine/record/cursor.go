package record

import (
	"encoding/binary"
	"unsafe"
)

// cursor reads the fields of records. Once it has run over the end it is bad
// and stays so, and everything it reads is zero.
type cursor struct {
	b   []byte
	at  int
	bad bool
}

func (c *cursor) fail() int64 {
	c.bad = true
	c.at = len(c.b)
	return 0
}

// varint reads a zigzag varint; most take one byte.
func (c *cursor) varint() int64 {
	if c.at < len(c.b) && c.b[c.at] < 0x80 {
		u := c.b[c.at]
		c.at++
		return int64(u>>1) ^ -int64(u&1)
	}
	return c.longVarint()
}

func (c *cursor) longVarint() int64 {
	v, n := binary.Varint(c.b[c.at:])
	if n <= 0 {
		return c.fail()
	}
	c.at += n
	return v
}

// bytes reads a length and as many bytes, as a view. A negative length is
// null, which is nil; an empty one is not nil.
func (c *cursor) bytes() []byte {
	n := c.varint()
	if n < 0 {
		return nil
	}
	if n > int64(len(c.b)-c.at) {
		c.fail()
		return nil
	}
	v := c.b[c.at : c.at+int(n) : c.at+int(n)]
	c.at += int(n)
	return v
}

// view is b as a string that shares its bytes, which nobody changes any more.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
