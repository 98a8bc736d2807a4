package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/kconsume/kconsume/test/chaos/task"
)

const (
	halvedBatch      = 100
	halvedPartitions = 10
	halvedRounds     = 4 // of the second kind
)

// runHalved is the mode halved: a hundred records fail at once and go to the
// DLQ, and the broker ends halfway.
//
// First cleanly halved: fifty are acknowledged in the DLQ, the broker ends, the
// other fifty fail and cannot be written, the broker comes back. Then in the
// thick of it: the broker is killed while the hundred are being written, so
// that the outcome of some is unknown; only those may be there twice.
func runHalved(ctx context.Context, s settings, out *os.File) (err error) {
	s.partitions = halvedPartitions
	r, err := newRig(ctx, s, 1, halvedPartitions, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close(s.keep)) }()
	// All hundred are with the handler at once.
	m, err := r.join("--retry", "", "--concurrency", "256")
	if err != nil {
		return err
	}
	h := &halves{rig: r, member: m, seen: map[record]bool{}}
	ok, err := h.clean(ctx, out)
	for i := 0; err == nil && i < halvedRounds; i++ {
		var good bool
		good, err = h.thick(ctx, out, time.Duration(i)*10*time.Millisecond)
		ok = ok && good
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, m.words())
	}
	if err := m.stop(); err != nil {
		return err
	}
	if !ok {
		return errBroken
	}
	return nil
}

// halves is that mode at work.
type halves struct {
	*rig
	member *member
	rounds int64
	seen   map[record]bool // in the DLQ, in the rounds before
}

// fill writes the next hundred records and waits until the handler has them all.
func (h *halves) fill(ctx context.Context) error {
	if err := h.shut(); err != nil {
		return err
	}
	p := newProducer(h.rig, halvedPartitions, task.Always(task.Gated), 1e6)
	p.first = h.rounds * halvedBatch / halvedPartitions
	h.rounds++
	p.limit = h.rounds * halvedBatch / halvedPartitions
	p.start(ctx)
	err := until(ctx, progressPatience, "all records are with the handler", func(ctx context.Context) (bool, error) {
		n, err := h.metric(ctx, "kconsume_in_flight")
		return n == halvedBatch, err
	})
	return errors.Join(err, p.finished(ctx))
}

func (h *halves) metric(ctx context.Context, name string, labels ...string) (float64, error) {
	b, err := h.member.metrics(ctx)
	if err != nil {
		return 0, err
	}
	return sum(b, name, labels...), nil
}

// told is what the daemon's metrics say of its writes so far.
type told struct {
	acked  int // records that it knows to be in the DLQ
	failed int // records whose write it saw fail
	tries  int // tries of writes that failed, those included that the client tried again
}

func (h *halves) known(ctx context.Context) (told, error) {
	b, err := h.member.metrics(ctx)
	if err != nil {
		return told{}, err
	}
	count := func(name string) int { return int(sum(b, name)) }
	return told{count("kafka_dlq_messages_total"), count("kconsume_forward_failures_total"), count("kconsume_writer_errors_total")}, nil
}

// arrivals are new records of the DLQ.
type arrivals struct {
	ids, twice int
	known      int // of those twice, records with an even number
}

// arrived counts the records that came to the DLQ since it was last asked. Each
// task is in the main topic once, so that its offset there is its number.
func (h *halves) arrived(ctx context.Context) (arrivals, error) {
	all, err := readForwarded(ctx, h.kafka.Bootstrap(), topicDLQ)
	if err != nil {
		return arrivals{}, err
	}
	fresh := map[record]int{}
	for i := range all {
		if !h.seen[all[i].origin] {
			fresh[all[i].origin]++
		}
	}
	var a arrivals
	for r, n := range fresh {
		h.seen[r] = true
		a.ids++
		if n > 1 {
			a.twice++
			if r.offset%2 == 0 {
				a.known++
			}
		}
	}
	return a, nil
}

func (h *halves) committed(ctx context.Context) error {
	return until(ctx, drainTimeout, "no lag", func(ctx context.Context) (bool, error) {
		lag, err := h.admin.lag(ctx, []string{topicMain}, halvedPartitions)
		return err == nil && lag == 0, err
	})
}

func (h *halves) clean(ctx context.Context, out *os.File) (bool, error) {
	if err := h.fill(ctx); err != nil {
		return false, err
	}
	if err := h.open(0); err != nil {
		return false, err
	}
	err := until(ctx, progressPatience, "half are in the DLQ", func(ctx context.Context) (bool, error) {
		n, err := h.metric(ctx, "kafka_dlq_messages_total")
		return n == halvedBatch/2, err
	})
	if err != nil {
		return false, err
	}
	if err := h.kafka.Stop(0); err != nil {
		return false, err
	}
	if err := h.open(1); err != nil {
		return false, err
	}
	err = until(ctx, progressPatience, "a write that failed in each partition", func(ctx context.Context) (bool, error) {
		now, err := h.known(ctx)
		return now.failed >= halvedPartitions, err
	})
	if err != nil {
		return false, err
	}
	if err := h.kafka.Start(0); err != nil {
		return false, err
	}
	back := time.Now()
	if err := h.committed(ctx); err != nil {
		return false, err
	}
	took := time.Since(back)
	got, err := h.arrived(ctx)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(out, "halved: of %d records %d had arrived when the broker was stopped and %d were sent again, all committed %v after it was back; in the DLQ %d, twice %d of those known to be there and %d of the others\n",
		halvedBatch, halvedBatch/2, got.ids-halvedBatch/2, took.Round(time.Millisecond), got.ids, got.known, got.twice-got.known)
	return got.ids == halvedBatch && got.known == 0, nil
}

// thick kills the broker some time after all hundred were let go.
func (h *halves) thick(ctx context.Context, out *os.File, wait time.Duration) (bool, error) {
	if err := h.fill(ctx); err != nil {
		return false, err
	}
	before, err := h.known(ctx)
	if err != nil {
		return false, err
	}
	for parity := range 2 {
		if err := h.open(parity); err != nil {
			return false, err
		}
	}
	time.Sleep(wait)
	if err := h.kafka.Kill(0); err != nil {
		return false, err
	}
	killed, err := h.known(ctx)
	if err != nil {
		return false, err
	}
	time.Sleep(time.Second) // the daemon tries, and fails, to write
	if err := h.kafka.Start(0); err != nil {
		return false, err
	}
	if err := h.committed(ctx); err != nil {
		return false, err
	}
	after, err := h.known(ctx)
	if err != nil {
		return false, err
	}
	got, err := h.arrived(ctx)
	if err != nil {
		return false, err
	}
	acked := killed.acked - before.acked
	fmt.Fprintf(out, "killed after %v: of %d records %d were acknowledged, the others sent again (%d tries failed in %d partitions); in the DLQ %d, %d of them twice\n",
		wait, halvedBatch, acked, after.tries-before.tries, halvedPartitions, got.ids, got.twice)
	return got.ids == halvedBatch && got.twice <= halvedBatch-acked, nil
}
