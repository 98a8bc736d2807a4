// Handler charges orders, or says that it cannot, and makes a span of its own
// that continues the delivery's, as an author would with OpenTelemetry. It has
// its own way to the trace collector.
package main

import (
	"context"
	"errors"
	"log"
	"os"

	"github.com/kconsume/kconsume/plugin"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

func main() {
	exporter, err := otlptracehttp.New(context.Background())
	if err != nil {
		log.Fatalf("set up traces: %v", err)
	}
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
	tracer := provider.Tracer("charge")
	broken := os.Getenv("CARD_GATEWAY") // while this file is there the gateway is down
	plugin.Serve(plugin.Config{Name: "charge", Version: "7", Close: func() { _ = provider.Shutdown(context.Background()) }},
		plugin.HandlerFunc(func(ctx context.Context, _ *plugin.Message) error {
			_, span := tracer.Start(ctx, "charge card")
			defer span.End()
			if _, err := os.Stat(broken); err == nil {
				span.SetStatus(codes.Error, "gateway is down")
				return plugin.Transient(errors.New("the gateway is down"))
			}
			return nil
		}))
}
