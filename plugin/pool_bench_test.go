package plugin

import (
	"context"
	"errors"
	"testing"
	"time"
)

// BenchmarkPool delivers frames of 100 records to a handler that does nothing,
// with as many under way as a host sends ahead.
func BenchmarkPool(b *testing.B) {
	const frame, ahead = 100, 1000
	for _, k := range []struct {
		name string
		h    Handler
	}{
		{"noop", HandlerFunc(func(context.Context, *Message) error { return nil })},
		{"looks at Done", HandlerFunc(func(ctx context.Context, _ *Message) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			default:
				return nil
			}
		})},
		{"permanent", HandlerFunc(func(context.Context, *Message) error { return errBench })},
		{"batches", Batches(BatchHandlerFunc(func(context.Context, *Batch) error { return nil }), BatchConfig{Max: frame})},
		{"permanent batches", Batches(BatchHandlerFunc(func(context.Context, *Batch) error { return errBench }), BatchConfig{Max: frame})},
	} {
		b.Run(k.name, func(b *testing.B) {
			p := NewPool(k.h, PoolConfig{Concurrency: 64})
			defer p.Close()
			records, batches, under := 0, 0, 0
			b.ReportAllocs()
			for b.Loop() {
				p.Deliver(some(frame, 30*time.Second))
				records += frame
				for under += frame; under > ahead-frame; batches++ {
					a := <-p.Answers()
					under -= len(a.Acked) + len(a.Verdicts)
				}
			}
			b.ReportMetric(float64(records)/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(float64(records)/float64(max(batches, 1)), "records/batch")
		})
	}
}

var errBench = Permanent(errors.New("no"))
