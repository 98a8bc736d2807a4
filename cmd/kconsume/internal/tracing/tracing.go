// Package tracing sends the spans of deliveries to a collector over OTLP, as the
// environment's OTEL_* variables say. Without them it is off.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/kconsume/kconsume/metrics"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// closeTimeout bounds the sending of what is left at the end.
const closeTimeout = 2 * time.Second

// defaultService is the name of the service where OTEL_SERVICE_NAME gives none.
const defaultService = "kconsume"

// Config is what Start needs beside the process' environment, of which the
// exporter, the batcher and the sampler read the rest by themselves.
type Config struct {
	Getenv     func(string) string
	Version    string // of this program
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Tracing sends spans. nil is off.
type Tracing struct {
	provider *sdk.TracerProvider
	gate     *gate
	logger   *slog.Logger
}

// Start begins, or returns nil: nobody asked for traces, or what was asked for
// cannot be, which is logged. A collector that is not there is no reason not to start.
func Start(ctx context.Context, c Config) *Tracing {
	p, err := planOf(c.Getenv)
	if err != nil {
		c.Logger.Error("tracing is off", "error", err)
		return nil
	}
	if !p.on {
		return nil
	}
	// The libraries have one place for what goes wrong in them, for the whole process.
	otel.SetLogger(logr.FromSlogHandler(c.Logger.Handler()))
	problems := &problems{logger: c.Logger}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(problems.handle))
	t, err := p.start(ctx, c)
	if err != nil {
		c.Logger.Error("tracing is off", "error", err)
		return nil
	}
	c.Logger.Info("tracing deliveries", "protocol", p.protocol, "endpoint", p.endpoint)
	return t
}

func (p plan) start(ctx context.Context, c Config) (*Tracing, error) {
	res, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", defaultService), attribute.String("service.version", c.Version)),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithProcessPID(), resource.WithFromEnv())
	if res == nil {
		return nil, fmt.Errorf("describe this process to the trace collector: %w", err)
	}
	if err != nil { // a part of it is missing
		c.Logger.Warn("traces tell less of this process than they should", "error", err)
	}
	exporter, err := p.exporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("set up the sending of traces to %s: %w", p.endpoint, err)
	}
	g := newGate(exporter, p.queue, metrics.NewTracing(c.Registerer), c.Logger)
	return &Tracing{
		provider: sdk.NewTracerProvider(sdk.WithResource(res), sdk.WithSpanProcessor(g)),
		gate:     g, logger: c.Logger,
	}, nil
}

func (p plan) exporter(ctx context.Context) (sdk.SpanExporter, error) {
	if p.protocol == protocolGRPC {
		return otlptracegrpc.New(ctx)
	}
	return otlptracehttp.New(ctx)
}

// Provider is for the engine; nil = off.
func (t *Tracing) Provider() trace.TracerProvider {
	if t == nil {
		return nil
	}
	return t.provider
}

// Close sends what is left, for closeTimeout at most.
func (t *Tracing) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // what it did not send is counted and told of here
	if left := t.gate.abandon(); left > 0 {
		t.logger.Warn("spans were not sent before the end", "spans", left)
	}
}

// Protocols of OTLP, as OTEL_EXPORTER_OTLP_PROTOCOL names them.
const (
	protocolHTTP = "http/protobuf"
	protocolJSON = "http/json"
	protocolGRPC = "grpc"
)

// plan is what the environment asks for.
type plan struct {
	on       bool
	protocol string
	endpoint string // as it was given, without what may be secret in it; "" = the protocol's default
	queue    int    // spans that may wait
}

// planOf reads the environment. Traces are asked for by an endpoint, or by
// OTEL_TRACES_EXPORTER=otlp.
func planOf(getenv func(string) string) (plan, error) {
	p := plan{protocol: protocolHTTP, queue: sdk.DefaultMaxQueueSize}
	first := func(names ...string) (name, value string) {
		for _, name = range names {
			if value = strings.TrimSpace(getenv(name)); value != "" {
				return name, value
			}
		}
		return "", ""
	}
	if _, v := first("OTEL_SDK_DISABLED"); strings.EqualFold(v, "true") {
		return plan{}, nil
	}
	name, endpoint := first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	switch _, v := first("OTEL_TRACES_EXPORTER"); {
	case v == "none", v == "" && endpoint == "":
		return plan{}, nil
	case v != "" && v != "otlp":
		return plan{}, fmt.Errorf("read OTEL_TRACES_EXPORTER: %.100q is not supported: otlp or none", v)
	}
	p.on = true
	if endpoint != "" {
		u, err := url.Parse(endpoint)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return plan{}, fmt.Errorf("read %s: not a URL such as http://collector:4318", name)
		}
		p.endpoint = u.Scheme + "://" + u.Host + u.Path
	}
	if name, v := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); v != "" {
		if p.protocol = v; !slices.Contains([]string{protocolHTTP, protocolJSON, protocolGRPC}, v) {
			return plan{}, fmt.Errorf("read %s: %.100q is not supported: %s, %s or %s", name, v, protocolHTTP, protocolJSON, protocolGRPC)
		}
	}
	if name, v := first("OTEL_BSP_MAX_QUEUE_SIZE"); v != "" {
		var err error
		if p.queue, err = queueSize(v); err != nil {
			return plan{}, fmt.Errorf("read %s: %w", name, err)
		}
	}
	return p, nil
}
