package record

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Producers that compress as a stream, as Java's does, do not say in front how
// much there is: what it inflates to is found while it is decoded.
func TestDecodeStreamedZstd(t *testing.T) {
	for _, size := range []int{100 << 10, 500_000, 1 << 20, 3_000_000, 20_000_000} {
		for level := zstd.SpeedFastest; level <= zstd.SpeedBestCompression; level++ {
			t.Run(fmt.Sprint(size, " ", level), func(t *testing.T) {
				var value []byte
				for i := 0; len(value) < size; i++ {
					value = fmt.Appendf(value, `{"id":%d,"customer":"c%x","state":"confirmed"},`, i, i*i*7919%100_003)
				}
				var packed bytes.Buffer
				z, err := zstd.NewWriter(&packed, zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(1))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := z.Write(appendRecord(nil, kmsg.Record{Value: value})); err != nil {
					t.Fatal(err)
				}
				if err := z.Close(); err != nil {
					t.Fatal(err)
				}
				buf := made{base: 5, raw: packed.Bytes(), count: 1, attrs: codecZstd}.bytes(t)
				s, err := Decode(buf, Options{From: 5})
				if err != nil || len(s.Records) != 1 || !bytes.Equal(s.Records[0].Value, value) {
					t.Errorf("%d records, error %v", len(s.Records), err)
				}
				// One byte less than it takes is a bomb, whatever the decoder calls it.
				s, err = Decode(buf, Options{From: 5, MaxInflate: len(value)})
				if e, ok := errors.AsType[*Error](err); !ok || e.Class != Bomb || len(s.Records) != 0 {
					t.Errorf("below its size: error %v, want a bomb", err)
				}
			})
		}
	}
}
