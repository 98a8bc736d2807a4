package plugin

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/kconsume/kconsume/plugin/internal/wire"
)

// BenchmarkStream is records through a real connection on a unix socket to a
// handler that does nothing, both ends in this process.
func BenchmarkStream(b *testing.B) {
	for _, per := range []int{1, 100, 500} {
		b.Run(fmt.Sprintf("%d a frame", per), func(b *testing.B) {
			const ahead = 1000
			p := dial(b, Config{}, HandlerFunc(func(context.Context, *Message) error { return nil }), 64)
			value, key, trace := bytes.Repeat([]byte("x"), 1024), []byte("customer-0123456"), []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
			credit := make(chan int, ahead)
			go func() {
				defer close(credit)
				var f wire.PluginFrame
				for p.RecvMsg(&f) == nil {
					credit <- len(f.Acked)
				}
			}()
			var f wire.HostFrame
			next, under := uint64(0), 0
			b.ReportAllocs()
			for b.Loop() {
				f.Reset()
				for range per {
					r := f.Add(1)
					r.Handle, r.Topic, r.Offset, r.TimeMS, r.Key, r.Value = next, "orders.confirmed", int64(next), 1700000000000, key, value
					r.Headers[0] = wire.Header{Key: "traceparent", Value: trace}
					r.Attempt, r.MaxAttempts, r.Stage, r.TimeoutMS = 1, 3, "main", 30000
					next++
				}
				p.send(b, &f)
				for under += per; under > ahead-per; {
					under -= <-credit
				}
			}
			b.ReportMetric(float64(next)/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(next), "ns/record")
			if err := p.CloseSend(); err != nil {
				b.Fatal(err)
			}
			for range credit {
			}
		})
	}
}
