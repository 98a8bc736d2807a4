package fetch

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go/protocol"

	"github.com/kconsume/kconsume/engine/record"
)

// answer is what was read, before the records are decoded. parts are in the
// order of the wants.
type answer struct {
	throttle time.Duration
	code     int16 // of the whole request
	parts    []part
}

// ApiKey implements protocol.Message.
func (*answer) ApiKey() protocol.ApiKey { return protocol.Fetch }

// part is what the answer tells of one wanted partition.
type part struct {
	told                                bool
	code                                int16
	highWatermark, lastStable, logStart int64
	aborted                             []record.Aborted
	records                             []byte // a buffer of its own
}

// readAnswer reads a whole answer and not a byte more. Counts and sizes in it
// only say what to try to read; memory is taken as the bytes arrive.
func readAnswer(f *frame, x *exchange) (*answer, error) {
	head := f.fields(14) // throttle, error, session, number of topics
	a := &answer{
		throttle: time.Duration(int32(binary.BigEndian.Uint32(head))) * time.Millisecond,
		code:     int16(binary.BigEndian.Uint16(head[4:])),
		parts:    make([]part, len(x.wants)),
	}
	topics := f.count(head[10:], minTopic)
	for range topics {
		if f.err != nil {
			break
		}
		f.topic(a, x)
	}
	if f.err == nil && f.left > 0 {
		f.fail(fmt.Errorf("%d bytes are left behind its end", f.left))
	}
	return a, f.err
}

// Bytes that the smallest ones of an answer take.
const (
	minTopic   = 2 + 4
	partHead   = 4 + 2 + 8 + 8 + 8 + 4 // partition, error, three offsets, number of aborted transactions
	partTail   = 4 + 4                 // preferred replica, bytes of records
	abortedTxn = 8 + 8
)

func (f *frame) topic(a *answer, x *exchange) {
	name := f.bytes(int(binary.BigEndian.Uint16(f.fields(2))), 1<<15)
	wanted := x.index[string(name)]
	parts := f.count(f.fields(4), partHead+partTail)
	for range parts {
		if f.err != nil {
			return
		}
		f.partition(a, x, wanted)
	}
}

func (f *frame) partition(a *answer, x *exchange, wanted map[int32]int) {
	head := f.fields(partHead)
	p := part{
		told:          true,
		code:          int16(binary.BigEndian.Uint16(head[4:])),
		highWatermark: int64(binary.BigEndian.Uint64(head[6:])),
		lastStable:    int64(binary.BigEndian.Uint64(head[14:])),
		logStart:      int64(binary.BigEndian.Uint64(head[22:])),
	}
	i, ok := wanted[int32(binary.BigEndian.Uint32(head))]
	ok = ok && !a.parts[i].told
	aborted := f.count(head[30:], abortedTxn)
	if ok && x.aborted {
		p.aborted = f.aborted(aborted)
	} else {
		f.skip(aborted * abortedTxn)
	}
	size := int(int32(binary.BigEndian.Uint32(f.fields(partTail)[4:])))
	switch {
	case size == -1: // null, which older brokers answer with beside an error
	case size < 0 || size > f.left || size > largest && ok && size > int(x.wants[i].MaxBytes):
		f.fail(fmt.Errorf("records of a partition say they are %d bytes long, with %d left and %d the most expected", size, f.left, largest))
	case !ok: // not asked for, or told before
		f.skip(size)
	default:
		p.records = f.bytes(size, int(x.wants[i].MaxBytes))
	}
	if ok && f.err == nil {
		a.parts[i] = p
	}
}

func (f *frame) aborted(n int) []record.Aborted {
	var list []record.Aborted
	for range n {
		b := f.fields(abortedTxn)
		if f.err != nil {
			return nil
		}
		list = append(list, record.Aborted{
			ProducerID:  int64(binary.BigEndian.Uint64(b)),
			FirstOffset: int64(binary.BigEndian.Uint64(b[8:])),
		})
	}
	return list
}

// frame reads the rest of one answer. After an error everything it reads is
// zero and nothing more is taken from the connection.
type frame struct {
	r     io.Reader
	left  int // bytes of the answer not read yet
	err   error
	small [partHead]byte
}

func (f *frame) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// read fills b.
func (f *frame) read(b []byte) {
	if f.err == nil && len(b) > f.left {
		f.fail(fmt.Errorf("it ends %d bytes too early", len(b)-f.left))
	}
	if f.err == nil {
		n, err := io.ReadFull(f.r, b)
		f.left -= n
		if err != nil {
			f.fail(err)
		}
	}
	if f.err != nil {
		clear(b)
	}
}

// fields reads n bytes, at most partHead, which are valid until the next call.
func (f *frame) fields(n int) []byte {
	b := f.small[:n]
	f.read(b)
	return b
}

// count is the length of an array whose elements take size bytes at least; a
// null one is empty.
func (f *frame) count(field []byte, size int) int {
	n := int(int32(binary.BigEndian.Uint32(field)))
	if n <= 0 {
		return 0
	}
	if n > f.left/size {
		f.fail(fmt.Errorf("%d elements cannot be in %d bytes", n, f.left))
		return 0
	}
	return n
}

// bytes reads n bytes into a buffer of their own. It is made at once if n is no
// more than trusted, else it grows with what arrives.
func (f *frame) bytes(n, trusted int) []byte {
	b := make([]byte, min(n, max(trusted, minGrow)))
	f.read(b)
	for len(b) < n && f.err == nil {
		have := len(b)
		b = append(b, make([]byte, min(n-have, have))...)
		f.read(b[have:])
	}
	return b
}

const minGrow = 64 << 10

// skip reads n bytes and forgets them.
func (f *frame) skip(n int) {
	if f.err == nil && n > f.left {
		f.fail(fmt.Errorf("it ends %d bytes too early", n-f.left))
	}
	if f.err != nil {
		return
	}
	m, err := io.CopyN(io.Discard, f.r, int64(n))
	f.left -= int(m)
	if err != nil {
		f.fail(err)
	}
}
