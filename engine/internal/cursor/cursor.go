// Package cursor reads Kafka's big-endian encoding from bytes that may end too
// early, as those of a broken answer do.
package cursor

import "encoding/binary"

// Cursor takes values off the front of B. Past the end every value is zero, B is
// empty and Short is set, so that it is enough to look once, at the end.
type Cursor struct {
	B     []byte
	Short bool
}

// End drops what is left: it cannot be what it says.
func (c *Cursor) End() { c.B, c.Short = nil, true }

// Take takes n bytes, nil where there are not as many. They are B's own.
func (c *Cursor) Take(n int) []byte {
	if n < 0 || n > len(c.B) {
		c.End()
		return nil
	}
	out := c.B[:n]
	c.B = c.B[n:]
	return out
}

func (c *Cursor) Int16() int16 {
	if b := c.Take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (c *Cursor) Int32() int32 {
	if b := c.Take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (c *Cursor) Int64() int64 {
	if b := c.Take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}
