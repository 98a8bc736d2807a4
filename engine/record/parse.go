package record

import (
	"errors"
	"fmt"

	"github.com/kconsume/kconsume/plugin"
)

// slabHeaders is how many headers are made at once at most, unless one record
// has more.
const slabHeaders = 4096

// parse appends the wanted records of body to the set, which has room for all.
func (d *decoder) parse(b *batch, body []byte) *Error {
	c := cursor{b: body}
	previous := int64(-1)
	for i := range b.count {
		n := len(d.set.Records)
		d.set.Records = d.set.Records[:n+1]
		r := &d.set.Records[n]
		if err := d.record(&c, b, i, r); err != nil {
			return err
		}
		delta := r.Offset - b.base
		if delta <= previous || delta > b.lastDelta {
			return fault(Corrupt, fmt.Errorf("record %d of the batch has offset delta %d after %d, and the batch's last is %d", i, delta, previous, b.lastDelta))
		}
		previous = delta
		if r.Offset < d.from {
			*r = Record{}
			d.set.Records = d.set.Records[:n]
		}
	}
	if c.at < len(body) {
		return fault(Corrupt, fmt.Errorf("%d bytes are left behind the last record", len(body)-c.at))
	}
	return nil
}

// record reads the i-th record of the batch into r. On an error r is garbage.
func (d *decoder) record(c *cursor, b *batch, i int, r *Record) (err *Error) {
	size := c.varint()
	if c.bad || size < 1 || size > int64(len(c.b)-c.at) {
		return fault(TruncatedRecord, fmt.Errorf("record %d of the batch is %d bytes long, of which %d are there", i, size, len(c.b)-c.at))
	}
	end := c.at + int(size)
	c.at++ // attributes, of which none are defined
	r.Timestamp = b.firstTime + c.varint()
	if b.is(attrLogAppendTime) {
		r.Timestamp = b.maxTime
	}
	r.Offset = b.base + c.varint()
	r.Key = c.bytes()
	r.Value = c.bytes()
	if r.Headers, err = d.headers(c, end, b.count-i); err != nil {
		return err
	}
	if c.bad || c.at > end {
		return fault(TruncatedRecord, fmt.Errorf("fields of record %d of the batch run over its end", i))
	}
	if c.at < end {
		return fault(Corrupt, fmt.Errorf("record %d of the batch is %d bytes longer than its fields", i, end-c.at))
	}
	return nil
}

// headers reads the headers of a record that ends at end; left is how many
// records of the batch there are from this one on. Running over the end is for
// the caller to see.
func (d *decoder) headers(c *cursor, end, left int) ([]plugin.Header, *Error) {
	n := c.varint()
	if n == 0 || c.bad || c.at > end {
		return nil, nil
	}
	if n < 0 {
		return nil, fault(Corrupt, fmt.Errorf("a record has %d headers", n))
	}
	if n > int64((end-c.at)/minHeader) {
		return nil, fault(TruncatedRecord, fmt.Errorf("a record says it has %d headers in %d bytes", n, end-c.at))
	}
	hs, err := d.takeHeaders(int(n), left)
	if err != nil {
		return nil, err
	}
	for i := range hs {
		name := c.bytes()
		if name == nil && !c.bad {
			return nil, fault(Corrupt, errors.New("the name of a header is null"))
		}
		hs[i] = plugin.Header{Key: view(name), Value: c.bytes()}
	}
	return hs, nil
}

// takeHeaders cuts n headers off the slab, and makes a new one for the records
// that are left if they should have as many each.
func (d *decoder) takeHeaders(n, left int) ([]plugin.Header, *Error) {
	if n > len(d.slab) {
		size := max(n, min(n*left, slabHeaders))
		if d.used += size * fieldSize; d.used > d.limit {
			return nil, d.bomb()
		}
		d.slab = make([]plugin.Header, size)
	}
	hs := d.slab[:n:n]
	d.slab = d.slab[n:]
	return hs, nil
}
