package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/dev"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == dev.HandlerCommand {
		dev.ServeHandler("dev", os.Getenv)
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := dev.Run(ctx, dev.Config{}); err != nil {
		fmt.Println("ERR", err)
		os.Exit(1)
	}
}
