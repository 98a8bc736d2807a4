package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/kconsume/kconsume/plugin/host"
)

// upgradeOn starts the handler anew at each signal, until end is called. Besides
// the file it takes the pin (--handler-sha256) as the environment and the
// configuration file have it then; every other setting needs a restart.
func upgradeOn(signals <-chan os.Signal, h *host.Host, in *invocation, logger *slog.Logger) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for {
			select {
			case <-signals:
			case <-ctx.Done():
				return
			}
			if err := upgrade(ctx, h, in); err != nil && ctx.Err() == nil {
				logger.Error("cannot upgrade", "error", err)
			}
		}
	})
	return func() {
		cancel()
		waiting.Wait()
	}
}

func upgrade(ctx context.Context, h *host.Host, in *invocation) error {
	now, problems := in.reread()
	if len(problems) > 0 {
		return fmt.Errorf("read the settings again: %w", problems[0])
	}
	_, err := h.Reload(ctx, host.ReloadConfig{SHA256: now.Text("handler-sha256")})
	return err
}
