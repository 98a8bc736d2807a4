package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kconsume/kconsume/admin"
	"github.com/kconsume/kconsume/admin/console"
	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/metrics"
	"github.com/kconsume/kconsume/metrics/collect"
	"github.com/kconsume/kconsume/plugin/host"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// handlerGrace is what the handler's process gets to end in once its
	// deliveries are answered.
	handlerGrace = 5 * time.Second
	// maxScrapes bounds the connections to the metrics endpoint.
	maxScrapes = 64
	// memoryBase is what the process takes besides the records it holds; these
	// are counted twice, for they are decompressed and forwarded.
	memoryBase = 256 << 20
)

// errAbandoned ends a run that was told to stop twice.
var errAbandoned = errors.New("stopped at once: a second signal came while draining: what was in flight is delivered again")

func runRequired() []string { return []string{"brokers", "group", "topic", "handler"} }

func runCommand() command {
	return command{name: "run", usage: "consume topics",
		description: "Runs until SIGTERM or SIGINT, then drains: what was begun is finished and committed, within --drain-timeout,\n" +
			"and it exits with 0. A second signal ends it at once, with 1.",
		use: option.Run, required: runRequired(), action: run}
}

func run(ctx context.Context, in *invocation) error {
	if err := validSettings(in); err != nil {
		return err
	}
	logger, level := newLeveledLogger(in.opts, in.stderr)
	limitMemory(in)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)

	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	ends, err := listen(in)
	if err != nil {
		return err
	}
	defer ends.close(logger)
	socketDir, err := ends.handlerDir(admin.RuntimeDir(in.getenv))
	if err != nil {
		return err
	}
	defer os.RemoveAll(socketDir)
	hc, err := handlerConfig(in, socketDir, logger)
	if err != nil {
		return err
	}
	hc.Watch = true
	h, err := startHandler(ctx, hc, signals)
	if h == nil {
		return err
	}
	c := engineConfig(in.opts)
	for _, w := range c.Security.Warnings() {
		logger.Warn(w)
	}
	registry := newRegistry()
	timed := collect.NewTimed(h, registry, c.Topics)
	defer timed.Close()
	c.Deliverer, c.Logger, c.Registerer = timed, logger, registry
	traces := startTracing(ctx, in, registry, logger)
	defer traces.Close()
	c.TracerProvider = traces.Provider()
	if c.StateFile, err = stateFile(in, c.Group, logger); err != nil {
		return errors.Join(err, stopHandler(h))
	}
	e, err := engine.New(c)
	if err != nil {
		return errors.Join(err, stopHandler(h))
	}
	d := &daemon{instance: admin.Instance(in.getenv), version: readBuild().Version, started: time.Now(), engine: e, host: h, settings: settingsShown(in)}
	o, err := operate(c, d.instance, d.handlerVersion, logger)
	if err != nil {
		return errors.Join(err, stopHandler(h))
	}
	defer o.close()
	seen, err := observe(d, o, c, in.opts.List("critical"), registry)
	if err != nil {
		return errors.Join(err, stopHandler(h))
	}
	defer seen.close()
	if err := ends.serve(d, o, registry, logger); err != nil {
		return errors.Join(err, stopHandler(h))
	}
	logger.Info("started", "version", d.version, "group", c.Group, "topics", c.Topics, "handler", hc.Path,
		"handler_version", h.Status().Version, "admin", "unix:"+ends.admin.Path(), "metrics", ends.metricsAddress())
	manager := notify(d, in.getenv, logger)
	defer manager.close()
	r := &reloader{in: in, host: h, ends: ends, level: level, manager: manager, logger: logger}
	defer r.on(hangups)()
	err = supervise(ctx, e, signals, logger)
	if errors.Is(err, errAbandoned) {
		return err // the handler ends with us
	}
	return errors.Join(err, stopHandler(h))
}

// startHandler starts the handler. It returns nil where a signal came first.
func startHandler(ctx context.Context, c host.Config, signals <-chan os.Signal) (*host.Host, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var h *host.Host
	started := make(chan error, 1)
	go func() {
		var err error
		h, err = host.Start(ctx, c)
		started <- err
	}()
	select {
	case err := <-started:
		return h, err
	case <-signals:
		cancel()
	}
	if err := <-started; err != nil {
		return nil, nil // it was told not to
	}
	return nil, stopHandler(h)
}

func stopHandler(h *host.Host) error {
	ctx, cancel := context.WithTimeout(context.Background(), handlerGrace)
	defer cancel()
	return h.Stop(ctx)
}

// supervise runs the engine. The first signal lets it drain, the second one
// gives up on that.
func supervise(ctx context.Context, e *engine.Engine, signals <-chan os.Signal, logger *slog.Logger) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	select {
	case err := <-ended:
		return err
	case s := <-signals:
		logger.Info("draining: a second signal stops at once", "signal", s.String())
		stop()
	}
	select {
	case err := <-ended:
		logger.Info("drained")
		return err
	case <-signals:
		return errAbandoned
	}
}

func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector())
	return r
}

// limitMemory tells the garbage collector what --max-buffer leads to, unless
// the user told it.
func limitMemory(in *invocation) {
	if in.getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryBase + 2*int64(in.opts.Int("max-buffer")))
	}
}

// endpoints are what the process listens on.
type endpoints struct {
	admin   *admin.Listener
	access  *admin.Access
	tcp     admin.TCP
	remote  net.Listener // the admin API over TCP, nil = off
	metrics net.Listener // nil = off
	serving sync.WaitGroup
	stop    context.CancelFunc // nil until they are served
}

// listen binds every address before anything is started, so that a name that
// is taken ends the start at once.
func listen(in *invocation) (*endpoints, error) {
	e := &endpoints{}
	if err := e.listenRemote(in); err != nil {
		return nil, err
	}
	if address := in.opts.Text("metrics"); address != "" {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return nil, fail(exitConfig, "listen for metrics: %s: %s: give another address with --metrics, or none for off", address, cause(err))
		}
		e.metrics = admin.Limit(l, maxScrapes)
	}
	path, socket := strings.CutPrefix(in.opts.Text("admin"), "unix:")
	if !socket {
		path = option.DefaultSocket(in.opts.Text("group"))
	}
	l, err := admin.Listen(path)
	if err != nil {
		for _, other := range []net.Listener{e.metrics, e.remote} {
			if other != nil {
				err = errors.Join(err, other.Close())
			}
		}
		return nil, configLines(err)
	}
	e.admin = l
	return e, nil
}

// listenRemote reads who is let in, and opens the admin API's TCP address, if
// there is one.
func (e *endpoints) listenRemote(in *invocation) (err error) {
	e.access = &admin.Access{OperatorGroup: admin.DefaultOperatorGroup}
	if path := in.opts.Text("admin-users"); path != "" {
		if e.access.Users, err = admin.ReadUsers(path); err != nil {
			return fail(exitConfig, "%w", err)
		}
	}
	if path := in.opts.Text("admin-tokens"); path != "" {
		if e.access.Tokens, err = admin.ReadTokens(path); err != nil {
			return fail(exitConfig, "%w", err)
		}
	}
	address, ok := strings.CutPrefix(in.opts.Text("admin"), "tcp:")
	if !ok {
		return nil
	}
	e.tcp = admin.TCP{
		Address: address, CertFile: in.opts.Text("admin-tls-cert"), KeyFile: in.opts.Text("admin-tls-key"), ClientCA: in.opts.Text("admin-client-ca"),
	}
	if e.remote, err = admin.ListenTCP(e.tcp, e.access); err != nil {
		return fail(exitConfig, "%w", err)
	}
	return nil
}

// handlerDir is where the handler's socket goes: a short name that follows from
// the admin socket's, which is ours alone. What a daemon that was killed left
// there is removed.
func (e *endpoints) handlerDir(runtime string) (string, error) {
	digest := sha256.Sum256([]byte(e.admin.Path()))
	dir := filepath.Join(runtime, "h"+hex.EncodeToString(digest[:4]))
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("clear the handler's socket directory: %w", err)
	}
	return dir, nil
}

// metricsAddress is where metrics are served, with the port that the system
// chose for 0; "" = nowhere.
func (e *endpoints) metricsAddress() string {
	if e.metrics == nil {
		return ""
	}
	return e.metrics.Addr().String()
}

// cause is the innermost reason of a network error.
func cause(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return err.Error()
}

func (e *endpoints) serve(d *daemon, o *operations, registry *prometheus.Registry, logger *slog.Logger) error {
	pages, err := console.New(console.Config{
		DLQ: o.service, Status: d.status, Settings: func() []console.Setting { return d.settings },
		ActorOf: admin.ActorOf, Logger: logger,
	})
	if err != nil {
		return err
	}
	api := admin.New(admin.Config{
		Status: d.status, DLQ: o.service, Access: e.access, TCP: e.tcp, Console: pages, Metrics: metrics.NewAdmin(registry), Logger: logger,
	})
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	serve := func(l net.Listener, h http.Handler) {
		e.serving.Go(func() {
			if err := admin.Serve(ctx, l, h, logger); err != nil {
				logger.Error("an endpoint ended", "error", err)
			}
		})
	}
	serve(e.admin, api)
	if e.remote != nil {
		serve(e.remote, api)
	}
	if e.metrics == nil {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry, MaxRequestsInFlight: 8, Timeout: aliveTimeout}))
	mux.Handle("GET /livez", health(d.alive))
	mux.Handle("GET /readyz", health(d.ready))
	serve(e.metrics, mux)
	return nil
}

// close stops serving, waits for it, and gives the addresses back.
func (e *endpoints) close(logger *slog.Logger) {
	if e.stop != nil {
		e.stop()
		e.serving.Wait()
	}
	if err := e.admin.Close(); err != nil {
		logger.Warn("the admin socket is left", "error", err)
	}
	for _, l := range []net.Listener{e.metrics, e.remote} {
		if l != nil {
			_ = l.Close() // the server has closed it already
		}
	}
}
