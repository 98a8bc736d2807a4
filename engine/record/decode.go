package record

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/kconsume/kconsume/plugin"
)

// DefaultMaxInflate is the limit where Options names none.
const DefaultMaxInflate = 64 << 20

// Options of one Decode.
type Options struct {
	// From is the first offset wanted; a batch may begin before it.
	From int64
	// Aborted are the aborted transactions that the broker told beside the
	// records; nil with read_uncommitted. It is not changed.
	Aborted []Aborted
	// MaxInflate is how many bytes of memory the batches may become: what
	// they inflate to, and the Record and Header values made of them. 0 means
	// DefaultMaxInflate. One batch that needs more is a Bomb; several that
	// need more together are not an error, the set ends before the one that
	// has no room.
	MaxInflate int
}

// Set is what one partition's answer holds.
type Set struct {
	// Records by value, in offset order. Keys, values, headers and their
	// names are views of the buffer, or of what it inflated to; null is nil.
	Records []Record
	// Next is the offset to fetch next: behind the last whole batch that was
	// decoded, whether or not it held records, and never below From.
	Next int64
	// Bytes of memory that the records keep alive: the buffer if one of them
	// is a view of it, the inflated buffers, and the values themselves.
	Bytes int
	// Control is the number of transaction markers that were skipped.
	Control int
	// Aborted is the number of records dropped with their transaction.
	Aborted int
	// Truncated is the number of bytes that a fetch from Next must allow for,
	// where the buffer ended before even one batch did; else 0. No checksum
	// covers it, so it may be wrong, but a batch is never more than MaxBatch.
	Truncated int
}

// Memory that the values take, which the limit counts too: the smallest record
// and header are 7 and 2 bytes on the wire.
const (
	recordSize = int(unsafe.Sizeof(Record{}))
	fieldSize  = int(unsafe.Sizeof(plugin.Header{}))
)

// Decode reads the record set of one partition, which is a sequence of
// batches; the last may be cut off. buf must not change as long as a record of
// it is in use. An error is always an *Error and comes with the records of the
// batches before the bad one; Next then points at it.
func Decode(buf []byte, o Options) (Set, error) {
	if o.MaxInflate <= 0 {
		o.MaxInflate = DefaultMaxInflate
	}
	d := decoder{
		set:    Set{Next: o.From},
		from:   o.From,
		limit:  o.MaxInflate,
		aborts: newAborts(o.Aborted),
	}
	if n := min(countRecords(buf, o.From), o.MaxInflate/recordSize); n > 0 {
		d.set.Records = make([]Record, 0, n)
	}
	err := d.batches(buf)
	d.set.Bytes = d.used
	if d.views {
		d.set.Bytes += len(buf)
	}
	if err != nil {
		err.Offset = d.set.Next
		return d.set, err
	}
	return d.set, nil
}

// decoder is the state of one Decode.
type decoder struct {
	set    Set
	from   int64
	end    int64 // behind the last batch met, also one below from
	limit  int   // bytes of memory for the whole set
	used   int   // of them
	views  bool  // a record is a view of the input buffer
	aborts aborts
	slab   []plugin.Header // made and not given to a record yet
}

func (d *decoder) batches(buf []byte) *Error {
	for at := 0; at < len(buf); {
		b, missing, err := readBatch(buf[at:])
		if err != nil {
			return err
		}
		if missing > 0 {
			if d.set.Next == d.from {
				d.set.Truncated = at + missing
			}
			return nil
		}
		if b.base < d.end {
			return fault(Corrupt, fmt.Errorf("batch begins at offset %d, below the end %d of the one before it", b.base, d.end))
		}
		if b.last >= d.from {
			if err := d.batch(&b); err != nil {
				if err.Class == Bomb && d.used > 0 {
					return nil // it has no room now, but will have in the next fetch
				}
				err.Last = b.last
				return err
			}
			d.set.Next = b.last + 1
		}
		d.end = b.last + 1
		at += b.size
	}
	return nil
}

// batch takes in one batch that reaches into the wanted offsets.
func (d *decoder) batch(b *batch) *Error {
	d.aborts.reach(b.last)
	switch {
	case b.is(attrControl):
		return d.control(b)
	case b.is(attrTransactional) && d.aborts.has(b.producer):
		d.set.Aborted += b.count
		return nil
	case b.count == 0: // compaction left only its offsets
		return nil
	}
	return d.records(b)
}

// control skips a marker; an abort marker ends its producer's void batches.
func (d *decoder) control(b *batch) *Error {
	if d.aborts.has(b.producer) {
		body, err := d.inflate(b)
		if err != nil {
			return err
		}
		if abortMarker(body) {
			delete(d.aborts.open, b.producer)
		}
	}
	d.set.Control++
	return nil
}

// inflate returns the bytes of the batch's records.
func (d *decoder) inflate(b *batch) ([]byte, *Error) {
	codec := int(b.attrs & attrCodec)
	if codec == codecNone {
		return b.body, nil
	}
	body, err := inflate(codec, b.body, d.limit-d.used)
	if err == errBomb {
		return nil, d.bomb()
	}
	if err != nil {
		return nil, fault(Codec, err)
	}
	return body, nil
}

func (d *decoder) bomb() *Error {
	return fault(Bomb, fmt.Errorf("it takes more than %d bytes of memory", d.limit))
}

// records appends the batch's records to the set: all that are wanted, or none
// on an error.
func (d *decoder) records(b *batch) *Error {
	body, err := d.inflate(b)
	if err != nil {
		return err
	}
	if b.count > len(body)/minRecord {
		return fault(TruncatedRecord, fmt.Errorf("it says it has %d records in %d bytes", b.count, len(body)))
	}
	start, used := len(d.set.Records), d.used
	packed := b.is(attrCodec)
	if packed {
		d.used += len(body)
	}
	if d.used += b.count * recordSize; d.used > d.limit {
		err = d.bomb()
	} else {
		d.set.Records = slices.Grow(d.set.Records, b.count)
		err = d.parse(b, body)
	}
	if err != nil {
		clear(d.set.Records[start:])
		d.set.Records, d.slab = d.set.Records[:start], nil
	}
	if len(d.set.Records) == start {
		d.used = used
		return err
	}
	d.views = d.views || !packed
	return nil
}
