package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codecs of a batch, by their number in its attributes.
const (
	codecNone = iota
	codecGzip
	codecSnappy
	codecLZ4
	codecZstd
)

// What the caller must tell apart.
var errBomb = errors.New("it inflates to more than the limit")

var errCutOff = errors.New("read snappy: xerial frame is cut off")

const (
	minScratch  = 64 << 10
	keepScratch = 8 << 20 // a larger scratch buffer is left to the collector
)

// inflaters keeps decoders between batches, as each costs tens of KiB to make.
// It is a cache: what it holds has no meaning.
var inflaters = sync.Pool{New: func() any { return new(inflater) }}

// inflater holds the decoders of one goroutine at a time.
type inflater struct {
	gzip    *gzip.Reader
	lz4     *lz4.Reader
	zstd    *zstd.Decoder
	src     bytes.Reader
	scratch []byte
}

// inflate returns what src holds, in a buffer of just its size, or errBomb as
// soon as that is seen to be more than limit bytes. Besides the result it
// takes at most three times limit for the time of the call.
func inflate(codec int, src []byte, limit int) ([]byte, error) {
	if codec == codecSnappy {
		return unsnappy(src, limit)
	}
	f := inflaters.Get().(*inflater)
	defer f.release()
	var out []byte
	var err error
	switch codec {
	case codecGzip:
		out, err = f.ungzip(src, limit)
	case codecLZ4:
		out, err = f.unlz4(src, limit)
	case codecZstd:
		out, err = f.unzstd(src, limit)
	default:
		return nil, fmt.Errorf("unknown codec %d", codec)
	}
	if err != nil {
		return nil, err
	}
	exact := make([]byte, len(out))
	copy(exact, out)
	return exact, nil
}

// release gives the inflater back without holding on to a batch.
func (f *inflater) release() {
	f.src.Reset(nil)
	if cap(f.scratch) > keepScratch {
		f.scratch = nil
	}
	inflaters.Put(f)
}

func (f *inflater) ungzip(src []byte, limit int) (out []byte, err error) {
	f.src.Reset(src)
	if f.gzip == nil {
		f.gzip, err = gzip.NewReader(&f.src)
	} else {
		err = f.gzip.Reset(&f.src)
	}
	if err != nil {
		return nil, fmt.Errorf("read gzip: %w", err)
	}
	if out, err = f.drain(f.gzip, len(src), limit); err != nil && err != errBomb {
		return nil, fmt.Errorf("read gzip: %w", err)
	}
	return out, err
}

func (f *inflater) unlz4(src []byte, limit int) ([]byte, error) {
	f.src.Reset(src)
	if f.lz4 == nil {
		f.lz4 = lz4.NewReader(&f.src)
	} else {
		f.lz4.Reset(&f.src)
	}
	out, err := f.drain(f.lz4, len(src), limit)
	f.lz4.Reset(nil) // gives its block buffers back
	if err != nil && err != errBomb {
		return nil, fmt.Errorf("read lz4: %w", err)
	}
	return out, err
}

// drain reads r to its end into the scratch buffer, which it doubles up to one
// byte over the limit: the byte that proves a bomb.
func (f *inflater) drain(r io.Reader, packed, limit int) ([]byte, error) {
	f.grow(min(4*packed, limit+1))
	n := 0
	for {
		if n > limit {
			return nil, errBomb
		}
		if n == len(f.scratch) {
			old := f.scratch
			f.scratch = make([]byte, min(2*len(old), max(limit+1, minScratch)))
			copy(f.scratch, old)
		}
		m, err := r.Read(f.scratch[n:])
		n += m
		if err == io.EOF && n <= limit {
			return f.scratch[:n], nil
		}
		if err != nil && err != io.EOF {
			return nil, err
		}
	}
}

// grow makes the scratch buffer at least n bytes long.
func (f *inflater) grow(n int) {
	f.scratch = f.scratch[:cap(f.scratch)]
	if n = max(n, minScratch); len(f.scratch) < n {
		f.scratch = make([]byte, n)
	}
}

// unzstd decodes into the scratch buffer, whose capacity is the decoder's
// limit, and begins again with a larger one while that is too small. Decoding
// as a stream instead would let the frame choose its window, up to 512 MiB.
func (f *inflater) unzstd(src []byte, limit int) (out []byte, err error) {
	if f.zstd == nil {
		f.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return nil, fmt.Errorf("make zstd decoder: %w", err)
		}
	}
	f.grow(min(4*len(src), limit))
	for {
		room := min(len(f.scratch), limit)
		out, err = f.zstd.DecodeAll(src, f.scratch[:0:room])
		// A frame that does not say its size fails in the block that does not
		// fit, with an error of no name: what came out tells that it was that one.
		if err == nil || !errors.Is(err, zstd.ErrDecoderSizeExceeded) && len(out)+maxZstdBlock <= room {
			break
		}
		if room == limit {
			return nil, errBomb
		}
		f.scratch = nil // before its successor is made
		f.scratch = make([]byte, min(2*room, max(limit, minScratch)))
	}
	if err != nil {
		return nil, fmt.Errorf("read zstd: %w", err)
	}
	return out, nil
}

// maxZstdBlock is the most that one block of a zstd frame inflates to.
const maxZstdBlock = 128 << 10

// xerialMagic begins what Java producers write: this, two versions of four
// bytes, then blocks with their lengths.
const (
	xerialMagic  = "\x82SNAPPY\x00"
	xerialHeader = 16
)

// unsnappy decodes a bare block, or xerial's framing of several.
func unsnappy(src []byte, limit int) ([]byte, error) {
	size, err := snappySize(src, limit)
	if err != nil {
		return nil, err
	}
	out := make([]byte, size)
	at := 0
	err = eachSnappy(src, func(block []byte) error {
		got, err := snappy.Decode(out[at:], block)
		at += len(got)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read snappy: %w", err)
	}
	return out, nil
}

// snappySize adds up what the blocks say they inflate to. A block is not
// believed if it says more than the format can express.
func snappySize(src []byte, limit int) (int, error) {
	const bestRatio = 22 // a copy of 64 bytes takes 3
	size := 0
	err := eachSnappy(src, func(block []byte) error {
		n, err := snappy.DecodedLen(block)
		if err != nil {
			return fmt.Errorf("read snappy: %w", err)
		}
		if n > bestRatio*len(block) {
			return fmt.Errorf("read snappy: a block of %d bytes says it inflates to %d", len(block), n)
		}
		if size += n; size > limit {
			return errBomb
		}
		return nil
	})
	return size, err
}

// eachSnappy calls do with each block of src.
func eachSnappy(src []byte, do func(block []byte) error) error {
	if !bytes.HasPrefix(src, []byte(xerialMagic)) {
		return do(src)
	}
	for len(src) > 0 {
		if bytes.HasPrefix(src, []byte(xerialMagic)) { // streams may follow each other
			if len(src) < xerialHeader {
				return errCutOff
			}
			src = src[xerialHeader:]
			continue
		}
		if len(src) < 4 {
			return errCutOff
		}
		n := int(binary.BigEndian.Uint32(src))
		if src = src[4:]; n > len(src) {
			return errCutOff
		}
		if err := do(src[:n:n]); err != nil {
			return err
		}
		src = src[n:]
	}
	return nil
}
