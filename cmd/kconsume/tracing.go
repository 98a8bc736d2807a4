package main

import (
	"context"
	"log/slog"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/tracing"
	"github.com/prometheus/client_golang/prometheus"
)

// startTracing sends spans where the environment says so; nil = it does not.
func startTracing(ctx context.Context, in *invocation, r prometheus.Registerer, logger *slog.Logger) *tracing.Tracing {
	return tracing.Start(ctx, tracing.Config{Getenv: in.getenv, Version: readBuild().Version, Registerer: r, Logger: logger})
}
