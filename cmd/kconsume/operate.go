package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/engine/secure"
	"github.com/segmentio/kafka-go"
)

// operations is what a daemon does about its group's dead letters, beside the
// engine and with connections of its own.
type operations struct {
	service   *dlq.Service
	transport *secure.Transport
	running   sync.WaitGroup
	stop      context.CancelFunc
}

// operate starts it. version is the name@version of the handler that runs now.
func operate(c engine.Config, instance string, version func() string, logger *slog.Logger) (*operations, error) {
	topo, err := c.Topology()
	if err != nil {
		return nil, err
	}
	o := &operations{transport: c.Dialer().Transport(topo.Names())}
	o.service = dlq.New(dlq.Config{
		Group: c.Group, Daemon: daemonName(instance), Client: &kafka.Client{Addr: kafka.TCP(c.Brokers...), Transport: o.transport},
		Lines: topo.Lines, HandlerVersion: version, Logger: logger,
	})
	ctx, stop := context.WithCancel(context.Background())
	o.stop = stop
	o.running.Go(func() {
		if err := o.service.Run(ctx); err != nil {
			logger.Error("dead letters are not operated any more", "error", err)
		}
	})
	return o, nil
}

// close lets a job that runs here go on elsewhere, or after a restart.
func (o *operations) close() {
	o.stop()
	o.running.Wait()
	o.transport.CloseIdleConnections()
}

// daemonName names this process for people who look at jobs and the audit.
func daemonName(instance string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	if instance != "" {
		host += "/" + instance
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}
