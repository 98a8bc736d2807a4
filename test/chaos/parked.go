package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/kconsume/kconsume/test/chaos/task"
)

// What a daemon may take while records wait.
const (
	parkedGrowth = 16 << 20
	parkedMost   = 96 << 20
	warmUp       = 100_000 // records handled before memory is measured first
	warmRate     = 20_000
	parkRate     = 8000 // records a second
)

// runParked is the mode parked: the daemon's memory before and after a million
// records have failed into a tier in which they wait for ten minutes.
func runParked(ctx context.Context, s settings, out *os.File) (err error) {
	r, err := newRig(ctx, s, 1, s.partitions, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close(false)) }()
	m, err := r.join("--retry", s.delay)
	if err != nil {
		return err
	}
	// The first records are handled, all after them fail.
	first := int64(min(warmUp, s.records) / s.partitions)
	do := func(_ int32, number int64) task.Action {
		if number < first {
			return task.OK
		}
		return task.Once
	}
	warm := newProducer(r, s.partitions, do, warmRate)
	warm.limit = first
	warm.start(ctx)
	err = until(ctx, drainTimeout, "the first records are written", func(context.Context) (bool, error) {
		return warm.total() == first*int64(s.partitions), nil
	})
	if err := errors.Join(err, warm.finished(ctx)); err != nil {
		return err
	}
	before, err := r.settle(ctx, m, []string{topicMain})
	if err != nil {
		return err
	}
	began := time.Now()
	p := newProducer(r, s.partitions, do, parkRate)
	p.first = first
	p.limit = first + int64((s.records+s.partitions-1)/s.partitions)
	p.start(ctx)
	want := (p.limit - p.first) * int64(s.partitions)
	err = until(ctx, time.Hour, "all are in the tier", func(ctx context.Context) (bool, error) {
		ends, err := r.admin.ends(ctx, []string{tierTopic(s.delay)}, s.partitions)
		return err == nil && total(ends) >= want, err
	})
	if err := errors.Join(err, p.finished(ctx)); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := r.settle(ctx, m, []string{topicMain})
	if err != nil {
		return err
	}
	peak, err := memory(m.proc.pid(), "VmHWM")
	if err != nil {
		return err
	}
	ends, err := r.admin.ends(ctx, []string{tierTopic(s.delay)}, s.partitions)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d records of %d bytes in the tier of %s, %d of them twice, parked in %v, measured %v after the first\n",
		want, valueSize, s.delay, total(ends)-want, took.Round(time.Second), time.Since(began).Round(time.Second))
	metrics, err := m.metrics(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "held in buffers %s, Go's heap in use %s, kept from the system %s\n", mib(int64(sum(metrics, "kconsume_buffer_bytes"))),
		mib(int64(sum(metrics, "go_memstats_heap_inuse_bytes"))), mib(int64(sum(metrics, "go_memstats_heap_idle_bytes")-sum(metrics, "go_memstats_heap_released_bytes"))))
	fmt.Fprintf(out, "resident memory: before %s, after %s, at most %s on the way\n", mib(before), mib(after), mib(peak))
	if err := m.stop(); err != nil {
		return err
	}
	if after-before > parkedGrowth || before-after > parkedGrowth || max(before, after) > parkedMost {
		fmt.Fprintf(out, "allowed: %s apart, under %s\n", mib(parkedGrowth), mib(parkedMost))
		return errBroken
	}
	return nil
}

// settle waits until the topics' records are committed, lets the member rest
// and returns its resident memory.
func (r *rig) settle(ctx context.Context, m *member, topics []string) (int64, error) {
	err := until(ctx, drainTimeout, "no lag", func(ctx context.Context) (bool, error) {
		lag, err := r.admin.lag(ctx, topics, r.partitions)
		return err == nil && lag == 0, err
	})
	if err != nil {
		return 0, fmt.Errorf("%w\n%s", err, m.words())
	}
	select {
	case <-time.After(r.rest):
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	return memory(m.proc.pid(), "VmRSS")
}

func total(offsets map[place]int64) int64 {
	var n int64
	for _, at := range offsets {
		n += at
	}
	return n
}
