package record

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// words are n bytes that pack about as well as JSON does.
func words(r *rand.Rand, n int) []byte {
	var b []byte
	for len(b) < n {
		b = fmt.Appendf(b, `{"id":%d,"state":"pending","amount":%d.%02d},`, r.Uint32(), r.IntN(1000), r.IntN(100))
	}
	return b[:n]
}

func BenchmarkDecode(b *testing.B) {
	for _, name := range []string{"none", "gzip", "snappy", "xerial", "lz4", "zstd"} {
		for _, n := range []int{100, 1000} {
			for _, headers := range []int{0, 3} {
				b.Run(fmt.Sprintf("%s/%dx1KiB/%dheaders", name, n, headers), func(b *testing.B) {
					r := rand.New(rand.NewPCG(1, 2))
					rs := plain(n)
					for i := range rs {
						rs[i].Value = words(r, 1<<10)
						for h := range headers {
							rs[i].Headers = append(rs[i].Headers, kmsg.Header{Key: fmt.Sprintf("X-Header-%d", h), Value: []byte("some value")})
						}
					}
					buf := made{records: rs, packing: packings[name]}.bytes(b)
					b.SetBytes(int64(n) << 10)
					b.ReportAllocs()
					for b.Loop() {
						if s, err := Decode(buf, Options{}); err != nil || len(s.Records) != n {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/record")
				})
			}
		}
	}
}
