package engine_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// logbook is a log that a test reads.
type logbook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logbook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// count is how many lines have a text.
func (b *logbook) count(text string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.text.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// Places in a record batch.
const (
	batchLength = 8
	batchMagic  = 16
	batchCRC    = 17
	batchAttrs  = 21
	batchCount  = 57
	batchBody   = 61
)

func sealed(batch []byte) []byte {
	binary.BigEndian.PutUint32(batch[batchLength:], uint32(len(batch)-12))
	binary.BigEndian.PutUint32(batch[batchCRC:], crc32.Checksum(batch[batchAttrs:], crc32.MakeTable(crc32.Castagnoli)))
	return batch
}

// damaged changes the batch that begins at an offset; the ones in front of it
// stay as they are.
func damaged(topic string, partition int32, offset int64, damage func([]byte) []byte) func(string, *kmsg.FetchResponseTopicPartition) {
	return func(of string, p *kmsg.FetchResponseTopicPartition) {
		if of != topic || p.Partition != partition {
			return
		}
		b := p.RecordBatches
		for at := 0; at+batchBody <= len(b); {
			end := at + 12 + int(binary.BigEndian.Uint32(b[at+batchLength:]))
			if end > len(b) {
				return
			}
			if int64(binary.BigEndian.Uint64(b[at:])) == offset {
				p.RecordBatches = append(bytes.Clone(b[:at]), damage(bytes.Clone(b[at:end]))...)
				return
			}
			at = end
		}
	}
}

// bomb is a batch of the same offset that inflates to half a GiB.
func bomb(t *testing.T) func([]byte) []byte {
	var packed bytes.Buffer
	z, err := zstd.NewWriter(&packed, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for range 512 {
		if _, err := z.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return func(b []byte) []byte {
		b = append(b[:batchBody], packed.Bytes()...)
		b[batchAttrs+1] = 4 // zstd
		return sealed(b)
	}
}

// A batch that is damaged on its way or was written so: nothing of it is
// delivered and nothing is passed over, others go on, it is told once, little
// memory is taken, and the partition goes on when the damage is gone.
func TestDamagedBatches(t *testing.T) {
	for name, one := range map[string]struct {
		damage func([]byte) []byte
		reason string // of the failure in the metrics, "" = it may be whole yet
	}{
		"a bit flipped":       {func(b []byte) []byte { b[len(b)-2] ^= 1; return b }, "corrupt"},
		"a bit of its offset": {func(b []byte) []byte { b[batchAttrs+5] ^= 1; return b }, "corrupt"},
		"cut off":             {func(b []byte) []byte { return b[:len(b)-3] }, ""},
		"a length too long":   {func(b []byte) []byte { b[batchLength+1] = 1; return b }, ""},
		"a negative length":   {func(b []byte) []byte { b[batchLength] = 0x80; return b }, "corrupt"},
		"an old format":       {func(b []byte) []byte { b[batchMagic] = 1; return b }, "magic"},
		"a format to come":    {func(b []byte) []byte { b[batchMagic] = 3; return b }, "magic"},
		"an unknown codec":    {func(b []byte) []byte { b[batchAttrs+1] = 7; return sealed(b) }, "codec"},
		"codec and no data":   {func(b []byte) []byte { b[batchAttrs+1] = 1; return sealed(b) }, "codec"},
		"too few records":     {func(b []byte) []byte { b[batchCount+1] = 1; return sealed(b) }, "truncated-record"},
		"a bomb":              {bomb(t), "bomb"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 3, []string{"t"}, func(w *world) {
				var c calls
				var log logbook
				m := &meddler{w: w}
				reg := prometheus.NewRegistry()
				cfg := w.config(probe(&c))
				cfg.Dial, cfg.Logger, cfg.Registerer = m.dial, log.logger(), reg
				for i := range 10 { // a batch each
					for p := range int32(3) {
						w.produce(&kgo.Record{Topic: "t", Partition: p, Value: fmt.Appendf(nil, "ok %d/%d", p, i)})
					}
				}
				m.set(damaged("t", 0, 5, one.damage))
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				r := w.start(cfg)
				time.Sleep(10 * time.Second)
				w.produce(&kgo.Record{Topic: "t", Partition: 1, Value: []byte("ok neighbour")})
				time.Sleep(10 * time.Second)
				runtime.ReadMemStats(&after)

				if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 400<<20 {
					t.Errorf("the heap grew by %d MiB", grown>>20)
				}
				of := map[int32]int{}
				for _, one := range c.all() {
					of[one.msg.Partition]++
					if one.msg.Partition == 0 && one.msg.Offset >= 5 {
						t.Errorf("offset %d was delivered from a damaged batch or behind it", one.msg.Offset)
					}
				}
				if of[0] != 5 || of[1] != 11 || of[2] != 10 {
					t.Errorf("deliveries by partition: %v, want 5, 11, 10", of)
				}
				if lag := w.lag("g", "t"); lag != 5 {
					t.Errorf("lag %d, want 5: a damaged batch was passed over, or the rest was not committed", lag)
				}
				p := statusOf(r).Stages[0].Partitions[0]
				if p.Position != 5 || !strings.Contains(p.Problem, "t/0") || !strings.Contains(p.Problem, "nothing is passed over") || !strings.Contains(p.Problem, "offset 5") {
					t.Errorf("status of the partition: %+v", p)
				}
				if n := log.count("nothing is passed over"); n != 1 {
					t.Errorf("it is told in %d lines of the log, want 1", n)
				}
				if one.reason != "" {
					n := counted(t, reg, "kconsume_fetch_failures_total", map[string]string{"topic": "t", "reason": one.reason})
					if n < 10 || n > 25 {
						t.Errorf("%v failures are counted in 20 s, want one for each second: %s", n, p.Problem)
					}
				}

				m.set(nil)
				time.Sleep(5 * time.Second)
				if s := statusOf(r); s.Problem != "" || s.Stages[0].Partitions[0].Problem != "" {
					t.Errorf("the damage is gone, but it says %q", s.Problem)
				}
				r.end()
				if n := len(c.all()); n != 31 {
					t.Errorf("%d deliveries at the end, want each of 31 once", n)
				}
				if lag := w.lag("g", "t"); lag != 0 {
					t.Errorf("lag %d at the end", lag)
				}
			})
		})
	}
}

// Records of an unusual shape are ordinary input: they go the whole way, byte
// for byte, and their neighbours are not disturbed.
func TestUnusualShapes(t *testing.T) {
	inWorld(t, 2, nil, func(w *world) {
		w.topic("t", 2, 16<<20)
		var many []kgo.RecordHeader
		for i := range 10_000 {
			many = append(many, kgo.RecordHeader{Key: fmt.Sprint("h", i%7), Value: fmt.Append(nil, i)})
		}
		large := []kgo.RecordHeader{{Key: "large", Value: bytes.Repeat([]byte{0xff}, 900<<10)}}
		client, err := kgo.NewClient(kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.Dialer(w.net.DialContext),
			kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(15<<20), kgo.BrokerMaxWriteBytes(64<<20))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		shapes := []*kgo.Record{
			{Value: []byte("fail 9\nmany headers"), Headers: many},
			{Value: []byte("fail 9\na large header"), Headers: large},
			{Value: []byte(noise("fail 9", 12<<20))},
			{Key: bytes.Repeat([]byte("k"), 500<<10), Value: []byte("fail 9\na large key")},
		}
		for _, s := range shapes {
			s.Topic = "t"
			if err := client.ProduceSync(w.t.Context(), s).FirstErr(); err != nil {
				t.Fatal(err)
			}
			w.produce(&kgo.Record{Topic: "t", Value: []byte("ok")}, &kgo.Record{Topic: "t", Partition: 1, Value: []byte("ok")})
		}
		var c calls
		cfg := w.tiers(&c, time.Second)
		cfg.MaxBuffer = 1 << 20 // less than some of them
		r := w.start(cfg)
		time.Sleep(2 * time.Minute)
		r.end()
		if n := len(c.of("ok")); n != 8 {
			t.Errorf("%d neighbours were handled, want 8", n)
		}
		dead := w.read("t.dlq")
		if len(dead) != len(shapes) {
			t.Fatalf("%d are in the DLQ, want %d", len(dead), len(shapes))
		}
		for _, got := range dead {
			want := shapes[0]
			for _, s := range shapes {
				if bytes.Equal(s.Value, got.Value) {
					want = s
				}
			}
			if !bytes.Equal(got.Value, want.Value) || !bytes.Equal(got.Key, want.Key) || len(got.Headers) < len(want.Headers) {
				t.Fatalf("a dead letter of %d bytes with %d headers is none of those produced", len(got.Value), len(got.Headers))
			}
			for i, h := range want.Headers {
				if got.Headers[i].Key != h.Key || !bytes.Equal(got.Headers[i].Value, h.Value) {
					t.Fatalf("header %d is not as produced", i)
				}
			}
		}
		if lag := w.lag("g", "t", "t.retry.1s"); lag != 0 {
			t.Errorf("lag %d", lag)
		}
	})
}
