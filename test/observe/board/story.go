package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kconsume/kconsume/test/kafka"
)

const (
	topic = "orders"
	group = "shop"

	partitions = 4
	// warmUp comes before the story, so that rates do not start at nothing.
	warmUp = 25 * time.Second
	// between is the time from one daemon's new file to the next one's.
	between = 10 * time.Second
)

// versions of the handler: the one that works and the one that does not.
var versions = [2]string{"1.4.2", "2.0.0"}

// daemon is one member of the group.
type daemon struct {
	name    string
	metrics string // address
	handler string // file
}

// play runs the story and returns the Prometheus that saw it.
func play(ctx context.Context, all *processes, s settings, dir string) (*prometheus, error) {
	if err := build(ctx, dir); err != nil {
		return nil, err
	}
	cluster, err := kafka.Open(ctx, kafka.Options{})
	if err != nil {
		return nil, err
	}
	defer cluster.Close()
	if err := cluster.CreateTopic(ctx, kafkago.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}); err != nil {
		return nil, err
	}
	members := &processes{logs: dir}
	defer members.stop() // before the cluster
	daemons := []daemon{{name: "kconsume-1"}, {name: "kconsume-2"}}
	for i := range daemons {
		if err := daemons[i].start(members, dir, cluster.Bootstrap()); err != nil {
			return nil, err
		}
	}
	p, err := begin(ctx, all, s, daemons)
	if err != nil {
		return nil, err
	}
	feeding, end := context.WithCancelCause(ctx)
	var feeder sync.WaitGroup
	feeder.Go(func() { end(feed(feeding, cluster.Bootstrap(), s.rate)) })
	err = tell(feeding, p, daemons, s, dir)
	end(nil)
	feeder.Wait()
	return p, err
}

// tell is the story itself.
func tell(ctx context.Context, p *prometheus, daemons []daemon, s settings, dir string) error {
	if err := until(ctx, "both daemons handle records", func() bool {
		return p.count(ctx, `sum by (instance) (kconsume_messages_total{outcome="ack"}) > 0`) == len(daemons)
	}); err != nil {
		return err
	}
	if err := sleep(ctx, warmUp); err != nil {
		return err
	}
	p.from, p.to = time.Now(), time.Now().Add(s.window)
	fmt.Printf("%s  all is well, for %v\n", clock(), s.window/3)
	for _, act := range []struct {
		version string
		at      time.Duration
	}{{versions[1], s.window / 3}, {versions[0], 2 * s.window / 3}} {
		if err := sleep(ctx, time.Until(p.from.Add(act.at))); err != nil {
			return err
		}
		for _, d := range daemons {
			fmt.Printf("%s  %s gets %s\n", clock(), d.name, act.version)
			if err := errors.Join(d.give(dir, act.version), sleep(ctx, between)); err != nil {
				return err
			}
		}
	}
	if err := sleep(ctx, time.Until(p.to)); err != nil {
		return err
	}
	fmt.Printf("%s  the end\n", clock())
	return p.keep(s)
}

func clock() string { return time.Now().Format(time.TimeOnly) }

// build builds kconsume and the handler's versions into dir.
func build(ctx context.Context, dir string) error {
	const module = "github.com/kconsume/kconsume/"
	for _, b := range [][]string{
		{"-o", filepath.Join(dir, "kconsume"), module + "cmd/kconsume"},
		{"-ldflags", "-X main.version=" + versions[0], "-o", filepath.Join(dir, versions[0]), module + "test/observe/board/handler"},
		{"-ldflags", "-X main.version=" + versions[1], "-o", filepath.Join(dir, versions[1]), module + "test/observe/board/handler"},
	} {
		if out, err := exec.CommandContext(ctx, "go", append([]string{"build"}, b...)...).CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", b[len(b)-1], err, out)
		}
	}
	return nil
}

// start starts it with the version that works. Its concurrency is low enough
// for calls that wait until their deadline to be felt.
func (d *daemon) start(all *processes, dir, bootstrap string) error {
	home := filepath.Join(dir, d.name)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return fmt.Errorf("make a folder for %s: %w", d.name, err)
	}
	d.metrics, d.handler = loopback(9464), filepath.Join(home, "kconsume-handler-orders")
	if err := d.give(dir, versions[0]); err != nil {
		return err
	}
	env := append(os.Environ(), "XDG_RUNTIME_DIR="+home, "STATE_DIRECTORY="+home)
	return all.start(d.name, env, filepath.Join(dir, "kconsume"), "run", "--brokers", bootstrap, "--group", group, "--topic", topic,
		"--handler", d.handler, "--handler-timeout", "2s", "--concurrency", "16", "--metrics", d.metrics)
}

// give puts a version of the handler in the place of the one that is there.
func (d *daemon) give(dir, version string) error {
	b, err := os.ReadFile(filepath.Join(dir, version))
	if err == nil {
		err = os.WriteFile(d.handler+".new", b, 0o755)
	}
	if err == nil {
		err = os.Rename(d.handler+".new", d.handler)
	}
	if err != nil {
		return fmt.Errorf("give %s version %s: %w", d.name, version, err)
	}
	return nil
}

// feed writes rate records a second until ctx ends.
func feed(ctx context.Context, bootstrap string, rate int) error {
	transport := &kafkago.Transport{}
	defer transport.CloseIdleConnections()
	w := &kafkago.Writer{Addr: kafkago.TCP(bootstrap), Topic: topic, RequiredAcks: kafkago.RequireAll, Transport: transport, BatchTimeout: time.Millisecond, Balancer: &kafkago.Hash{}}
	defer w.Close()
	const tick = 100 * time.Millisecond
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	began := time.Now()
	for sent := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
		// By the clock: a machine that is busy for a moment is made up for.
		var batch []kafkago.Message
		for due := int(time.Since(began).Seconds() * float64(rate)); sent < due; sent++ {
			batch = append(batch, kafkago.Message{Key: fmt.Appendf(nil, "customer-%d", sent%5003), Value: fmt.Appendf(nil, `{"number":%d}`, sent)})
		}
		if err := w.WriteMessages(context.WithoutCancel(ctx), batch...); err != nil {
			return fmt.Errorf("feed: %w", err)
		}
	}
}
