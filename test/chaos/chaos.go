package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/kconsume/kconsume/test/chaos/task"
)

const (
	chaosNodes   = 3
	drainTimeout = 5 * time.Minute
)

func chaosTiers() ([]string, []time.Duration) {
	return []string{"2s", "5s"}, []time.Duration{2 * time.Second, 5 * time.Second}
}

// runChaos is the mode chaos.
func runChaos(ctx context.Context, s settings, out *os.File) (err error) {
	if s.seed == 0 {
		s.seed = rand.Uint64()
	}
	fmt.Fprintf(out, "chaos for %v with seed %d: %d members, %d partitions, %d brokers\n", s.duration, s.seed, s.members, s.partitions, chaosNodes)
	r, err := newRig(ctx, s, chaosNodes, s.partitions, chaosNodes)
	if err != nil {
		return err
	}
	keep := s.keep
	defer func() {
		if keep = keep || err != nil; keep {
			fmt.Fprintln(out, "logs and journals are left in", r.dir)
		}
		err = errors.Join(err, r.close(keep))
	}()
	c, e := newRun(r)
	began := time.Now()
	if err := c.work(ctx, func(ctx context.Context) error { return c.faults(ctx, out, began) }); err != nil {
		return err
	}
	if err := c.collect(ctx, e); err != nil {
		return err
	}
	f := check(e)
	c.report(out, f, time.Since(began))
	if f.bad() || len(c.troubles) > 0 || c.short(out, f) {
		return errBroken
	}
	return nil
}

// newRun makes a run and the evidence that it is to fill.
func newRun(r *rig) (*run, *evidence) {
	delays, waits := chaosTiers()
	c := &run{rig: r, rng: rand.New(rand.NewPCG(r.seed, 0)), counts: map[kind]int{}, snapshots: &snapshots{}, topics: []string{topicMain}}
	stages := []string{stageOf(topicMain)}
	for _, d := range delays {
		c.tiers = append(c.tiers, tierTopic(d))
		stages = append(stages, stageOf(tierTopic(d)))
	}
	c.topics = append(c.topics, c.tiers...)
	c.ledger = newLedger(r.journals, stages)
	return c, &evidence{
		strict: r.strict, keys: keysPerPartition, maxAttempts: len(delays) + 1, stages: c.topics, delays: append([]time.Duration{0}, waits...),
	}
}

// work runs members and producer, strikes as told, and lets everything finish.
func (c *run) work(ctx context.Context, strike func(context.Context) error) (err error) {
	beside, stop := context.WithCancelCause(ctx)
	var wait sync.WaitGroup
	defer func() {
		stop(nil)
		wait.Wait()
		if cause := context.Cause(beside); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
			err = cause
		}
	}()
	wait.Go(func() {
		if err := c.ledger.follow(beside); err != nil {
			stop(err)
		}
	})
	delays, _ := chaosTiers()
	for range c.settings.members {
		if _, err := c.join("--retry", strings.Join(delays, ",")); err != nil {
			return err
		}
	}
	c.producer = newProducer(c.rig, c.partitions, task.Mixed, c.rate)
	c.producer.ledger = c.ledger
	w := c.ledger.watch(c.partitions, false)
	c.producer.start(beside)
	if _, err := c.ledger.progress(beside, w, "start"); err != nil {
		return fmt.Errorf("%w\n%s", err, c.members[0].words())
	}
	wait.Go(func() { c.snapshots.take(beside, c.admin, c.topics, c.partitions) })
	if err := strike(beside); err != nil {
		return err
	}
	return c.finish(beside)
}

// faults strikes until the schedule and the time are over.
func (c *run) faults(ctx context.Context, out *os.File, began time.Time) error {
	plan := schedule(c.duration, c.rng)
	for n := 0; n < len(plan) || time.Since(began) < c.duration; n++ {
		k := plan[n%len(plan)] // while there is time, from the beginning again
		if terminal(out) {
			fmt.Fprintf(out, "\r\x1b[K%v  fault %d of %d: %s  %d records acknowledged, %d deliveries",
				time.Since(began).Round(time.Second), n+1, len(plan), k, c.producer.total(), c.ledger.count())
		}
		if err := c.strike(ctx, k); err != nil {
			return err
		}
	}
	if terminal(out) {
		fmt.Fprint(out, "\r\x1b[K")
	}
	return nil
}

// finish stops the producer, waits until all is handled, and stops the members.
func (c *run) finish(ctx context.Context) error {
	if err := c.producer.finished(ctx); err != nil {
		return err
	}
	err := until(ctx, drainTimeout, "no lag in any stage", func(ctx context.Context) (bool, error) {
		lag, err := c.admin.lag(ctx, c.topics, c.partitions)
		return err == nil && lag == 0, errors.Join(err, c.alive())
	})
	if err != nil {
		c.troubles = append(c.troubles, err.Error()) // what is lost, the table says
	}
	for _, m := range c.members {
		if err := m.stop(); err != nil {
			c.troubles = append(c.troubles, err.Error())
		}
	}
	return nil
}

// collect reads what there is to know once everything has ended.
func (c *run) collect(ctx context.Context, e *evidence) (err error) {
	e.acked = make([]int64, c.partitions)
	for p := range e.acked {
		e.acked[p] = c.producer.acked[p].Load()
	}
	e.deliveries, e.procs = c.ledger.deliveries, c.ledger.procs
	c.troubles = append(c.troubles, c.ledger.dirty...) // evidence that cannot be read
	e.events, e.snapshots = c.events, c.snapshots.all
	if e.sources, err = readSources(ctx, c.kafka.Bootstrap(), topicMain, c.partitions); err != nil {
		return err
	}
	for _, t := range append([]string{topicDLQ}, c.tiers...) {
		f, err := readForwarded(ctx, c.kafka.Bootstrap(), t)
		if err != nil {
			return err
		}
		e.forwarded = append(e.forwarded, f...)
	}
	if e.committed, err = c.admin.committed(ctx, c.topics, c.partitions); err != nil {
		return err
	}
	e.ends, err = c.admin.ends(ctx, c.topics, c.partitions)
	return err
}
