package tracing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/metrics"
	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/test/tracing/otlp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPlan(t *testing.T) {
	const endpoint, traces = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	for name, c := range map[string]struct {
		env  map[string]string
		want plan
		err  string
	}{
		"nothing":                 {nil, plan{}, ""},
		"only a sampler":          {map[string]string{"OTEL_TRACES_SAMPLER": "always_on"}, plan{}, ""},
		"only a service's name":   {map[string]string{"OTEL_SERVICE_NAME": "x"}, plan{}, ""},
		"endpoint":                {map[string]string{endpoint: "http://c:4318"}, plan{on: true, protocol: protocolHTTP, endpoint: "http://c:4318", queue: 2048}, ""},
		"traces endpoint first":   {map[string]string{endpoint: "http://c:4318", traces: "https://d/v1/traces"}, plan{on: true, protocol: protocolHTTP, endpoint: "https://d/v1/traces", queue: 2048}, ""},
		"exporter":                {map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, plan{on: true, protocol: protocolHTTP, queue: 2048}, ""},
		"exporter none":           {map[string]string{"OTEL_TRACES_EXPORTER": "none", endpoint: "http://c:4318"}, plan{}, ""},
		"exporter unknown":        {map[string]string{"OTEL_TRACES_EXPORTER": "zipkin", endpoint: "http://c:4318"}, plan{}, `"zipkin" is not supported`},
		"disabled":                {map[string]string{"OTEL_SDK_DISABLED": "TRUE", endpoint: "http://c:4318"}, plan{}, ""},
		"not disabled":            {map[string]string{"OTEL_SDK_DISABLED": "false", endpoint: "http://c:4318"}, plan{on: true, protocol: protocolHTTP, endpoint: "http://c:4318", queue: 2048}, ""},
		"grpc":                    {map[string]string{endpoint: "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, plan{on: true, protocol: protocolGRPC, endpoint: "http://c:4317", queue: 2048}, ""},
		"protocol of traces":      {map[string]string{endpoint: "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"}, plan{on: true, protocol: protocolJSON, endpoint: "http://c", queue: 2048}, ""},
		"protocol unknown":        {map[string]string{endpoint: "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "udp"}, plan{}, `"udp" is not supported`},
		"queue":                   {map[string]string{endpoint: "http://c", "OTEL_BSP_MAX_QUEUE_SIZE": "10"}, plan{on: true, protocol: protocolHTTP, endpoint: "http://c", queue: 10}, ""},
		"queue of a billion":      {map[string]string{endpoint: "http://c", "OTEL_BSP_MAX_QUEUE_SIZE": "1000000000"}, plan{}, "1 to 65536"},
		"queue that is no number": {map[string]string{endpoint: "http://c", "OTEL_BSP_MAX_QUEUE_SIZE": "many"}, plan{}, "1 to 65536"},
		"no scheme":               {map[string]string{endpoint: "collector:4318"}, plan{}, "read " + endpoint},
		"no host":                 {map[string]string{traces: "http:///v1/traces"}, plan{}, "read " + traces},
		"a secret is not shown":   {map[string]string{endpoint: "http://user:secret@c:1/x?token=secret"}, plan{on: true, protocol: protocolHTTP, endpoint: "http://c:1/x", queue: 2048}, ""},
		"nor in an error":         {map[string]string{endpoint: "ftp://user:secret@c"}, plan{}, "not a URL such as"},
	} {
		got, err := planOf(func(name string) string { return c.env[name] })
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %+v %v, want %+v %q", name, got, err, c.want, c.err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// log is a logger's output that many goroutines write.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// stuck is an exporter that is told when to answer, and what.
type stuck struct {
	entered chan int
	answer  chan error
}

func (s stuck) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	s.entered <- len(spans)
	select {
	case err := <-s.answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (stuck) Shutdown(context.Context) error { return nil }

func endSpans(tracer *sdk.TracerProvider, n int) {
	for range n {
		_, s := tracer.Tracer("").Start(context.Background(), "x")
		s.End()
	}
}

// A full queue drops what comes, counts it, says so once, and once when it is over.
func TestGate(t *testing.T) {
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
	var out log
	e := stuck{make(chan int), make(chan error)}
	met := metrics.NewTracing(nil)
	g := newGate(e, 10, met, slog.New(slog.NewTextHandler(&out, nil)))
	p := sdk.NewTracerProvider(sdk.WithSpanProcessor(g))

	endSpans(p, 4)
	if n := <-e.entered; n != 4 {
		t.Fatalf("a batch of %d", n)
	}
	endSpans(p, 20) // the collector hangs: 6 fit
	count := func(reason string) float64 { return testutil.ToFloat64(met.Dropped.WithLabelValues(reason)) }
	if full := count(metrics.SpanQueueFull); full != 14 {
		t.Errorf("%v spans were dropped, want 14", full)
	}
	if out.count("spans are dropped") != 1 || out.count("queue here is full") != 1 {
		t.Errorf("it says:\n%s", &out.text)
	}
	e.answer <- errors.New("503\x1b[31m")
	<-e.entered
	e.answer <- nil // 2 are left
	endSpans(p, 2)
	<-e.entered
	e.answer <- nil
	endSpans(p, 4)
	<-e.entered
	if out.count("spans are sent again") != 1 || out.count("dropped=18") != 1 || out.count("spans are dropped") != 2 || out.count("not take spans: 503") != 1 {
		t.Errorf("it says:\n%s", &out.text)
	}
	e.answer <- nil
	endSpans(p, 1)
	go func() { <-e.entered; e.answer <- nil }()
	if err := p.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if left := g.abandon(); left != 0 {
		t.Errorf("%d spans are left", left)
	}
	if sent, lost := testutil.ToFloat64(met.Sent), count(metrics.SpanNotTaken); sent != 13 || lost != 4 || count(metrics.SpanAtExit) != 0 {
		t.Errorf("%v sent, %v not taken, %v at the exit", sent, lost, count(metrics.SpanAtExit))
	}
}

func TestNotSampledSpansTakeNoRoom(t *testing.T) {
	met := metrics.NewTracing(nil)
	spans := tracetest.NewInMemoryExporter()
	g := newGate(spans, 1, met, slog.New(slog.DiscardHandler))
	p := sdk.NewTracerProvider(sdk.WithSpanProcessor(g), sdk.WithSampler(sdk.NeverSample()))
	endSpans(p, 100)
	if err := p.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if n := testutil.ToFloat64(met.Dropped.WithLabelValues(metrics.SpanQueueFull)); n != 0 || g.room.Load() != 1 {
		t.Errorf("%v dropped, room for %d", n, g.room.Load())
	}
}

// line is an engine with an embedded broker that handles records.
type line struct {
	cluster *kfake.Cluster
	client  *kgo.Client
	handled atomic.Int64
	all     chan struct{} // closed when all are handled
}

const records = 2000

func (l *line) run(t *testing.T, traces *Tracing) {
	t.Helper()
	e, err := engine.New(engine.Config{
		Brokers: l.cluster.ListenAddrs(), Group: "g", Topics: []string{"t"}, TracerProvider: traces.Provider(), Logger: slog.New(slog.DiscardHandler),
		Handler: plugin.HandlerFunc(func(context.Context, *plugin.Message) error {
			if l.handled.Add(1) == records {
				close(l.all)
			}
			return nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	select {
	case <-l.all:
	case <-time.After(2 * time.Minute): // only for a broken test
		t.Errorf("%d of %d records were handled", l.handled.Load(), records)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Whatever becomes of the collector, every record is handled once, every span is
// sent or counted, and nothing is left running.
func TestCollectorsThatFail(t *testing.T) {
	wait := func(r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or nobody notices that the client goes
		<-r.Context().Done()
	}
	for name, c := range map[string]struct {
		handle http.HandlerFunc // nil = nobody listens
		sends  bool
	}{
		"down":    {nil, false},
		"hangs":   {func(_ http.ResponseWriter, r *http.Request) { wait(r) }, false},
		"slow":    {func(http.ResponseWriter, *http.Request) { time.Sleep(20 * time.Millisecond) }, true},
		"refuses": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, false},
		"busy":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, false},
		"hangs in the middle of its answer": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			wait(r)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.handle)
			url := server.URL
			if c.handle == nil {
				server.Close()
			}
			defer server.Close()
			for k, v := range map[string]string{
				"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_MAX_QUEUE_SIZE": "100", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "10", "OTEL_BSP_SCHEDULE_DELAY": "10",
			} {
				t.Setenv(k, v)
			}
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
			if err != nil {
				t.Fatal(err)
			}
			defer cluster.Close()
			client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			for i := range records {
				client.Produce(t.Context(), &kgo.Record{Topic: "t", Value: fmt.Append(nil, i)}, nil)
			}
			if err := client.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			registry := prometheus.NewRegistry()
			var out log
			traces := Start(t.Context(), Config{Getenv: os.Getenv, Registerer: registry, Logger: slog.New(slog.NewTextHandler(&out, nil))})
			if traces == nil {
				t.Fatalf("tracing is off: %s", &out.text)
			}
			l := &line{cluster: cluster, client: client, all: make(chan struct{})}
			l.run(t, traces)
			traces.Close()

			if n := l.handled.Load(); n != records {
				t.Errorf("%d records were handled, want %d", n, records)
			}
			sent, dropped := counted(t, registry)
			if sent+dropped != records || sent > 0 != c.sends {
				t.Errorf("%d spans sent and %d dropped, of %d", sent, dropped, records)
			}
			if n := out.count("level=WARN"); !c.sends && (n == 0 || n > 4) {
				t.Errorf("%d warnings:\n%s", n, &out.text)
			}
			t.Logf("%d spans sent, %d dropped; it says:\n%s", sent, dropped, &out.text)
		})
	}
}

// counted are the spans sent and dropped.
func counted(t *testing.T, r *prometheus.Registry) (sent, dropped int) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			switch f.GetName() {
			case "kconsume_trace_spans_sent_total":
				sent += int(m.GetCounter().GetValue())
			case "kconsume_trace_spans_dropped_total":
				dropped += int(m.GetCounter().GetValue())
			}
		}
	}
	return sent, dropped
}

// What the environment says of service, sampler and protocol is done.
func TestEnvironment(t *testing.T) {
	for _, c := range []struct {
		protocol, service, want string
		sampler                 string
		spans                   int
	}{
		{"http/protobuf", "", "kconsume", "", 10},
		{"grpc", "billing", "billing", "", 10},
		{"grpc", "", "kconsume", "always_off", 0},
		{"http/protobuf", "", "kconsume", "nonsense", 10},
	} {
		t.Run(c.protocol+" "+c.sampler, func(t *testing.T) {
			r := otlp.Listen(t)
			endpoint := r.HTTP()
			if c.protocol == protocolGRPC {
				endpoint = r.GRPC()
			}
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", c.protocol)
			t.Setenv("OTEL_SERVICE_NAME", c.service)
			t.Setenv("OTEL_TRACES_SAMPLER", c.sampler)
			t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
			var out log
			traces := Start(t.Context(), Config{Getenv: os.Getenv, Version: "v1", Logger: slog.New(slog.NewTextHandler(&out, nil))})
			endSpans(traces.provider, 10)
			traces.Close()
			got := r.Spans()
			if len(got) != c.spans {
				t.Fatalf("%d spans, want %d: %s", len(got), c.spans, &out.text)
			}
			for _, s := range got {
				if s.Service != c.want {
					t.Errorf("service %q, want %q", s.Service, c.want)
				}
			}
			if said := out.count("unsupported sampler"); said != 0 != (c.sampler == "nonsense") {
				t.Errorf("it says:\n%s", &out.text)
			}
		})
	}
}

// What cannot be is logged, and nothing is started.
func TestOff(t *testing.T) {
	var out log
	bad := Start(t.Context(), Config{Getenv: func(name string) string { return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "c:1"}[name] }, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	if bad != nil || out.count("tracing is off") != 1 || bad.Provider() != nil {
		t.Errorf("%v %s", bad, &out.text)
	}
	bad.Close()
	if none := Start(t.Context(), Config{Getenv: func(string) string { return "" }}); none != nil {
		t.Error("tracing is on")
	}
}
