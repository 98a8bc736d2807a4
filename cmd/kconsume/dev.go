package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/kconsume/kconsume/admin"
	"github.com/kconsume/kconsume/cmd/kconsume/internal/dev"
	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/engine/secure"
	"github.com/kconsume/kconsume/metrics/collect"
	"github.com/kconsume/kconsume/plugin/host"
)

func devCommand() command {
	return command{name: "dev", usage: "try it out: broker, sample records, handler and engine in one place",
		description: "Starts an embedded broker, sends sample orders to it and tells line by line what becomes of each.\n" +
			"--handler takes a handler of yours in place of the sample one. With --topic no samples are sent:\n" +
			"the broker's address is shown, send your own. It runs until Ctrl-C, drains and exits with 0; a second\n" +
			"Ctrl-C ends it at once. The broker and all that is in it ends with it.",
		use: option.Run, action: runDev, defaults: map[string]string{
			"group": "dev", "topic": dev.DefaultTopic, "retry": "2s,5s",
			"metrics":   "127.0.0.1:0", // the header shows which port it became
			"log-level": "warn",        // the story is told on the terminal
		}}
}

// devHandlerCommand is how dev starts its sample handler.
func devHandlerCommand() command {
	return command{name: dev.HandlerCommand, hidden: true, usage: "the handler of kconsume dev",
		action: func(_ context.Context, in *invocation) error {
			dev.ServeHandler(readBuild().Version, in.getenv)
			return nil
		}}
}

func runDev(ctx context.Context, in *invocation) error {
	if in.opts.Origin("brokers").Source == option.FromFlag {
		return fail(exitUsage, "flag --brokers has no function here: kconsume dev: it brings its own broker: remove it, or use kconsume run")
	}
	for _, name := range []string{"tls", "tls-ca", "tls-cert", "tls-key", "tls-server-name", "sasl-mechanism"} {
		if in.opts.Origin(name).Source == option.FromFlag {
			return fail(exitUsage, "flag --%s has no function here: kconsume dev: its own broker takes plain connections: remove it, or use kconsume run", name)
		}
	}
	ec := engineConfig(in.opts)
	ec.Security = secure.Settings{}
	ec.Brokers = []string{"127.0.0.1:0"} // stands for the embedded one, whose port is not known yet
	if err := validConfig(ec); err != nil {
		return err
	}
	logger := newLogger(in.opts, in.stderr)
	limitMemory(in)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // the next signal has its default effect
	// A reader that went away, as head does, ends dev as Ctrl-C would: without
	// this the system would end it at once, sockets left behind.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)

	ends, err := listen(in)
	if err != nil {
		return err
	}
	defer ends.close(logger)
	hc := host.Config{Env: handlerEnv(in, logger), Concurrency: in.opts.Int("concurrency"), Logger: logger}
	if in.opts.Text("handler") != "" {
		if hc, err = handlerConfig(in, "", logger); err != nil {
			return err
		}
	}
	hc.Watch = true
	hc.SocketDir = filepath.Join(admin.RuntimeDir(in.getenv), "h"+strconv.Itoa(os.Getpid()))
	defer os.RemoveAll(hc.SocketDir)
	registry := newRegistry()
	ec.Logger, ec.Registerer = logger, registry
	err = dev.Run(ctx, dev.Config{
		Engine: ec, Host: hc, Out: in.stdout, Getenv: in.getenv,
		Deliver: func(h *host.Host) (engine.Deliverer, func()) {
			timed := collect.NewTimed(h, registry, ec.Topics)
			return timed, timed.Close
		},
		Beside: func(e *engine.Engine, h *host.Host, broker string) (dev.Around, error) {
			d := &daemon{version: readBuild().Version, started: time.Now(), engine: e, host: h, settings: settingsShown(in)}
			c := ec
			c.Brokers = []string{broker}
			o, err := operate(c, "", d.handlerVersion, logger)
			if err != nil {
				return dev.Around{}, err
			}
			seen, err := observe(d, o, c, in.opts.List("critical"), registry)
			if err != nil {
				o.close()
				return dev.Around{}, err
			}
			end := func() { seen.close(); o.close() }
			if err := ends.serve(d, o, registry, logger); err != nil {
				end()
				return dev.Around{}, err
			}
			g, err := openGateway(ends.admin.Path(), "127.0.0.1:0")
			if err != nil {
				end()
				return dev.Around{}, err
			}
			around := dev.Around{Console: g.link(), End: func() { g.close(); end() }}
			if address := ends.metricsAddress(); address != "" {
				around.Metrics = "http://" + address + "/metrics"
			}
			return around, nil
		},
	})
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}
