package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/kconsume/kconsume/metrics"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// maxQueue bounds the spans that may wait: a span takes about 3 KiB.
const maxQueue = 1 << 16

func queueSize(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxQueue {
		return 0, fmt.Errorf("%.20q spans: 1 to %d", text, maxQueue)
	}
	return n, nil
}

// gate stands on both sides of the SDK's batcher, which drops what does not fit
// and tells nobody: it lets no more spans in than fit, and counts what becomes
// of each. OnEnd is called by the engine's loop, and never waits.
type gate struct {
	batcher  sdk.SpanProcessor
	exporter sdk.SpanExporter
	size     int64
	room     atomic.Int64 // spans that still fit
	met      *metrics.Tracing
	logger   *slog.Logger

	mu      sync.Mutex      // guards what follows
	failing map[string]bool // why spans are being dropped: what was told; empty = they are not
	dropped int             // since that began
	recent  bool            // some were dropped since the last batch that was taken
	over    bool            // what is still on its way is counted already
}

func newGate(e sdk.SpanExporter, size int, m *metrics.Tracing, l *slog.Logger) *gate {
	g := &gate{exporter: e, size: int64(size), met: m, logger: l, failing: map[string]bool{}}
	g.room.Store(g.size)
	g.batcher = sdk.NewBatchSpanProcessor(behind{g}, sdk.WithMaxQueueSize(size))
	return g
}

func (g *gate) OnStart(context.Context, sdk.ReadWriteSpan) {}

func (g *gate) OnEnd(s sdk.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if g.room.Add(-1) < 0 {
		g.room.Add(1)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.drop(1, metrics.SpanQueueFull, "the trace collector takes less than comes: its queue here is full")
		return
	}
	g.batcher.OnEnd(s)
}

// Shutdown sends what waits. When ctx ends first, what is under way is cut off.
func (g *gate) Shutdown(ctx context.Context) error {
	err := g.batcher.Shutdown(ctx)
	if ctx.Err() != nil {
		err = errors.Join(err, g.exporter.Shutdown(ctx))
	}
	return err
}

func (g *gate) ForceFlush(ctx context.Context) error { return g.batcher.ForceFlush(ctx) }

// abandon counts what was not sent, and returns how much that is.
func (g *gate) abandon() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
	left := g.size - g.room.Load()
	g.met.Dropped.WithLabelValues(metrics.SpanAtExit).Add(float64(left))
	return left
}

// behind is the gate's side behind the batcher, which calls it from one
// goroutine, a batch at a time.
type behind struct{ *gate }

// ExportSpans sends a batch. It returns no error: that has been seen to.
func (g behind) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := g.exporter.ExportSpans(ctx, spans)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return nil
	}
	g.room.Add(int64(len(spans)))
	if err != nil {
		g.drop(len(spans), metrics.SpanNotTaken, fmt.Sprintf("the trace collector does not take spans: %.300s", err))
		return nil
	}
	g.met.Sent.Add(float64(len(spans)))
	g.taken()
	return nil
}

func (g behind) Shutdown(ctx context.Context) error { return g.exporter.Shutdown(ctx) }

// drop counts spans that are lost, and tells of each reason when that begins. It
// is called with mu held, as taken is.
func (g *gate) drop(n int, reason, why string) {
	g.met.Dropped.WithLabelValues(reason).Add(float64(n))
	g.recent = true
	g.dropped += n
	if !g.failing[reason] {
		g.failing[reason] = true
		g.logger.Warn("spans are dropped: kconsume_trace_spans_dropped_total counts them; deliveries go on as ever", "why", why)
	}
}

// taken tells when no more spans are lost: none was between two batches.
func (g *gate) taken() {
	if len(g.failing) > 0 && !g.recent {
		g.logger.Info("spans are sent again", "dropped", g.dropped)
		clear(g.failing)
		g.dropped = 0
	}
	g.recent = false
}

// problems logs what goes wrong in the libraries, once as long as it is the same.
type problems struct {
	logger *slog.Logger
	mu     sync.Mutex
	last   string // guarded by mu
}

func (p *problems) handle(err error) {
	text := fmt.Sprintf("%.300s", err)
	p.mu.Lock()
	defer p.mu.Unlock()
	if text != p.last {
		p.last = text
		p.logger.Warn("tracing", "error", text)
	}
}
