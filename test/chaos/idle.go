package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

const idlePartitions = 100

// runIdle is the mode idle: what a daemon takes that owns a hundred partitions
// of each of three stages (and of the replay topic), and has nothing to do.
func runIdle(ctx context.Context, s settings, out *os.File) (err error) {
	s.partitions = idlePartitions
	r, err := newRig(ctx, s, 1, idlePartitions, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close(false)) }()
	m, err := r.join("--retry", "5s,30s")
	if err != nil {
		return err
	}
	topics := []string{topicMain, tierTopic("5s"), tierTopic("30s")}
	err = until(ctx, drainTimeout, "every partition has an offset", func(ctx context.Context) (bool, error) {
		committed, err := r.admin.committed(ctx, topics, idlePartitions)
		return len(committed) == len(topics)*idlePartitions, err
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, m.words())
	}
	handler := m.handlerPID()
	if handler == 0 {
		return fmt.Errorf("the member has no handler\n%s", m.words())
	}
	pids := map[string]int{"daemon": m.proc.pid(), "handler": handler}
	time.Sleep(5 * time.Second) // what starting left to do is no part of being idle
	before := map[string]time.Duration{}
	for name, pid := range pids {
		if before[name], err = cpuTime(pid); err != nil {
			return err
		}
	}
	began := time.Now()
	select {
	case <-time.After(s.rest):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	took := time.Since(began)
	fmt.Fprintf(out, "idle: %d partitions of %d stages and the replay topic, over %v\n", idlePartitions, len(topics), took.Round(time.Second))
	for _, name := range []string{"daemon", "handler"} {
		now, err := cpuTime(pids[name])
		if err != nil {
			return err
		}
		rss, err := memory(pids[name], "VmRSS")
		if err != nil {
			return err
		}
		used := now - before[name]
		fmt.Fprintf(out, "%s: %v of CPU (%.2f %% of one), %s resident\n", name, used, 100*used.Seconds()/took.Seconds(), mib(rss))
	}
	n, err := connections(m.proc.pid())
	if err != nil {
		return err
	}
	metrics, err := m.metrics(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "daemon: %d TCP connections, %.0f goroutines\n", n, sum(metrics, "go_goroutines"))
	return m.stop()
}
