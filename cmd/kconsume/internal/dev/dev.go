// Package dev runs everything in one place for a person to watch: an embedded
// broker, sample orders, a payment gateway that sometimes fails, a handler
// process and the engine, and tells line by line what becomes of each record.
package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/engine/topology"
	"github.com/kconsume/kconsume/plugin/host"
)

// Config says what differs from plain dev. The zero value of a field stands
// for the default named.
type Config struct {
	// Engine is what run's flags say. Brokers, Deliverer and Observer are set
	// by Run.
	Engine engine.Config // Group "dev", Topics orders.confirmed, Retry 2s and 5s
	// Host is the handler. Without a Path it is the sample handler: this
	// executable, started again with HandlerCommand.
	Host host.Config // SocketDir a temporary one
	// Deliver stands between the engine and the handler, until end is called.
	// nil = nothing does.
	Deliver func(h *host.Host) (d engine.Deliverer, end func())
	// Beside starts what looks at the engine from outside, before the header is
	// shown. nil = nothing.
	Beside func(e *engine.Engine, h *host.Host, broker string) (Around, error)
	// Interval is the time between two samples.
	Interval time.Duration // 400ms
	Out      io.Writer     // os.Stdout
	Getenv   func(string) string
}

const (
	// DefaultTopic is the topic that samples are sent to.
	DefaultTopic    = "orders.confirmed"
	defaultInterval = 400 * time.Millisecond
	// closeTimeout bounds the end of each part after the engine has drained.
	closeTimeout = 10 * time.Second
)

func (c Config) withDefaults() (Config, error) {
	c.Engine.Group = or(c.Engine.Group, "dev")
	if len(c.Engine.Topics) == 0 {
		c.Engine.Topics = []string{DefaultTopic}
	}
	if c.Engine.Retry == nil {
		c.Engine.Retry = []time.Duration{2 * time.Second, 5 * time.Second}
	}
	c.Interval = or(c.Interval, defaultInterval)
	if c.Out == nil {
		c.Out = os.Stdout
	}
	if c.Getenv == nil {
		c.Getenv = os.Getenv
	}
	if c.Host.Path == "" {
		self, err := os.Executable()
		if err != nil {
			return c, fmt.Errorf("find this executable to start it as a handler: %w", err)
		}
		c.Host.Path, c.Host.Args, c.Host.Name = self, []string{HandlerCommand}, "dev-orders"
		c.Host.Trust = host.TrustByPath
	}
	return c, nil
}

func or[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}

// Run runs until ctx ends, which is its normal end, or a part fails. By then
// everything it started has ended.
func Run(ctx context.Context, config Config) error {
	own := config.Host.Path != ""
	c, err := config.withDefaults()
	if err != nil {
		return err
	}
	topo, err := c.Engine.Topology()
	if err != nil {
		return err
	}
	d := &dev{config: c, topo: topo, narrator: newNarrator(), ownHandler: own}
	err = d.start(ctx)
	if err == nil {
		err = d.consume(ctx)
	}
	return errors.Join(err, d.close())
}

// Around is what runs beside the engine.
type Around struct {
	Metrics string // URL, "" = off
	Console string // URL, "" = off
	End     func() // ends it, while the broker still runs
}

// dev is one run. Its fields are set by start and not changed after it.
type dev struct {
	config     Config
	topo       *topology.Topology
	ownHandler bool // the author's, not the sample handler
	narrator   *narrator

	broker  *broker
	gateway *gateway
	feeder  *feeder // nil: the author's topic, where they send records themselves
	host    *host.Host
	engine  *engine.Engine
	around  Around
	closers []func(context.Context) error // in the order of the starts
}

// start starts every part but the engine, whose config needs them all.
func (d *dev) start(ctx context.Context) error {
	for _, step := range []func(context.Context) error{d.startBroker, d.startSamples, d.startHandler, d.makeEngine} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *dev) startBroker(context.Context) (err error) {
	if d.broker, err = startBroker(d.config.Engine.Topics); err != nil {
		return err
	}
	d.onClose(func(context.Context) error { d.broker.close(); return nil })
	return nil
}

func (d *dev) startSamples(context.Context) (err error) {
	if d.gateway, err = startGateway(); err != nil {
		return err
	}
	d.onClose(d.gateway.close)
	if d.config.Engine.Topics[0] != DefaultTopic {
		return nil
	}
	if d.feeder, err = newFeeder(d.broker.address, DefaultTopic); err != nil {
		return err
	}
	d.onClose(func(context.Context) error { d.feeder.close(); return nil })
	return nil
}

func (d *dev) startHandler(ctx context.Context) (err error) {
	h := d.config.Host
	h.Env = append([]string{gatewayEnv + "=" + d.gateway.url()}, h.Env...) // the author's own comes later and counts
	if h.SocketDir == "" {
		dir, err := os.MkdirTemp("", "kconsume-dev-")
		if err != nil {
			return fmt.Errorf("make the handler's socket directory: %w", err)
		}
		d.onClose(func(context.Context) error { return os.RemoveAll(dir) })
		h.SocketDir = filepath.Join(dir, "s")
	}
	if d.host, err = host.Start(ctx, h); err != nil {
		return err
	}
	d.onClose(d.host.Stop)
	return nil
}

func (d *dev) makeEngine(context.Context) (err error) {
	e := d.config.Engine
	e.Brokers, e.Deliverer, e.Observer = []string{d.broker.address}, d.host, d.narrator.observe
	if d.config.Deliver != nil {
		var end func()
		e.Deliverer, end = d.config.Deliver(d.host)
		d.onClose(func(context.Context) error { end(); return nil })
	}
	if d.engine, err = engine.New(e); err != nil {
		return err
	}
	if d.config.Beside != nil {
		if d.around, err = d.config.Beside(d.engine, d.host, d.broker.address); err != nil {
			return err
		}
		d.onClose(func(context.Context) error { d.around.End(); return nil })
	}
	return nil
}

func (d *dev) onClose(f func(context.Context) error) { d.closers = append(d.closers, f) }

// close ends what start started, the last first.
func (d *dev) close() error {
	var errs []error
	for i := len(d.closers) - 1; i >= 0; i-- {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		errs = append(errs, d.closers[i](ctx))
		cancel()
	}
	return errors.Join(errs...)
}

// consume feeds, consumes and tells until ctx ends or one of them fails. The
// samples stop first, the story goes on until the engine has drained.
func (d *dev) consume(parent context.Context) error {
	width, color := terminal(d.config.Out, d.config.Getenv)
	lay := func() layout { return layout{width: width(), color: color, stage: d.stageWidth()} }
	if err := greet(d.config.Out, d.intro(), lay()); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(parent)
	defer fail(nil)
	var working, telling sync.WaitGroup
	drained := make(chan struct{})
	telling.Go(func() {
		if err := d.narrator.run(drained, newView(d.label), d.config.Out, lay); err != nil {
			fail(err)
		}
	})
	working.Go(func() { d.broker.keepTrimming(ctx, d.recordTopics()) })
	working.Go(func() {
		if err := d.feed(ctx); err != nil {
			fail(err)
		}
	})
	err := d.engine.Run(ctx)
	fail(err)
	working.Wait()
	close(drained)
	telling.Wait()
	if err != nil || parent.Err() != nil {
		return err
	}
	return context.Cause(ctx)
}

// feed sends samples as soon as somebody takes them, so that they come one by
// one from the first on.
func (d *dev) feed(ctx context.Context) error {
	if d.feeder == nil {
		return nil
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for d.engine.Ready(ctx) != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	return d.feeder.run(ctx, d.config.Interval)
}

func (d *dev) label(p place) string {
	if d.feeder == nil {
		return ""
	}
	return d.feeder.label(p)
}

func (d *dev) intro() intro {
	i := intro{broker: d.broker.address, topics: d.config.Engine.Topics, metrics: d.around.Metrics, console: d.around.Console, samples: d.feeder != nil}
	if d.ownHandler {
		i.handler = or(d.config.Host.Name, filepath.Base(d.config.Host.Path))
	}
	for _, l := range d.topo.Lines {
		i.dlqs = append(i.dlqs, l.DLQ)
	}
	for _, s := range d.topo.Lines[0].Tiers() {
		i.tiers = append(i.tiers, s.Name)
	}
	return i
}

// stageWidth is the width of the longest stage's name.
func (d *dev) stageWidth() int {
	n := 0
	for _, s := range d.topo.Lines[0].Stages {
		n = max(n, len(s.Name))
	}
	return n
}

// recordTopics are the topics whose records are bounded: those of the state of
// dead letters hold no records.
func (d *dev) recordTopics() (names []string) {
	for i := range d.topo.Lines {
		names = append(append(names, d.topo.Lines[i].StageTopics()...), d.topo.Lines[i].DLQ)
	}
	return names
}
