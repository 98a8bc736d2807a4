package host

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/kconsume/kconsume/plugin"
)

// BenchmarkDeliver carries records of 1 KiB through a real handler process that
// does nothing, in batches as the engine would make them, at most 1,000
// unanswered at a time. One op is one record.
func BenchmarkDeliver(b *testing.B) {
	for _, batch := range []int{1, 100, 500} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) { benchmarkDeliver(b, batch) })
	}
}

func benchmarkDeliver(b *testing.B, batch int) {
	const window = 1000
	cfg := config(b, "serve")
	cfg.Concurrency, cfg.Logger = 64, slog.New(slog.DiscardHandler)
	h, err := Start(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer h.Stop(b.Context())
	headers := []plugin.Header{{Key: "traceparent", Value: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")}}
	key, value := []byte("customer-0123456"), make([]byte, 1<<10)
	list := make([]plugin.Delivery, batch)
	open, next, answered := 0, uint64(0), 0
	b.ReportAllocs()
	b.ResetTimer()
	for answered < b.N {
		for int(next) < b.N && open+batch <= window {
			n := min(batch, b.N-int(next))
			for i := range n {
				list[i] = plugin.Delivery{Handle: next, Timeout: 30 * time.Second, Message: plugin.Message{
					Topic: "orders.v1", Partition: 3, Offset: int64(next), Time: time.UnixMilli(1_700_000_000_000),
					Key: key, Value: value, Headers: headers, Attempt: 1, MaxAttempts: 3, Stage: "main",
				}}
				next++
			}
			h.Deliver(list[:n])
			open += n
		}
		a := <-h.Answers()
		open -= len(a.Acked)
		answered += len(a.Acked)
		if len(a.Verdicts) > 0 {
			b.Fatalf("verdict %+v", a.Verdicts[0])
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
