package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/kconsume/kconsume/test/chaos/task"
)

const (
	halvedBatch      = 100
	halvedPartitions = 10
	halvedRounds     = 5 // of the second kind
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
	h := &halves{rig: r, member: m, dead: map[string]int{}}
	ok, err := h.clean(ctx, out)
	for i := 0; err == nil && i < halvedRounds; i++ {
		var good bool
		good, err = h.thick(ctx, out, time.Duration(i)*3*time.Millisecond)
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
	dead   map[string]int // records of the DLQ by id, of the rounds before
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

// known is how many records the daemon knows to be in the DLQ, and how many
// writes it saw fail.
func (h *halves) known(ctx context.Context) (acked, failed int, err error) {
	b, err := h.member.metrics(ctx)
	if err != nil {
		return 0, 0, err
	}
	return int(sum(b, "kafka_dlq_messages_total")), int(sum(b, "kconsume_forward_failures_total")), nil
}

// arrived are the new records of the DLQ by id.
func (h *halves) arrived(ctx context.Context) (map[string]int, error) {
	now := map[string]int{}
	all, err := readForwarded(ctx, h.kafka.Bootstrap(), topicDLQ)
	if err != nil {
		return nil, err
	}
	for i := range all {
		now[all[i].id]++
	}
	fresh := maps.Clone(now)
	maps.DeleteFunc(fresh, func(id string, _ int) bool { return h.dead[id] > 0 })
	h.dead = now
	return fresh, nil
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
		_, failed, err := h.known(ctx)
		return failed >= halvedBatch/2, err
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
	ids, copies := count(got)
	fmt.Fprintf(out, "halved: of %d records %d had arrived when the broker was stopped, %d were sent again, all committed %v after it was back; in the DLQ %d, %d of them twice\n",
		halvedBatch, halvedBatch/2, ids-halvedBatch/2, took.Round(time.Millisecond), ids, copies-ids)
	return ids == halvedBatch && copies == ids, nil
}

// thick kills the broker some time after all hundred were let go.
func (h *halves) thick(ctx context.Context, out *os.File, after time.Duration) (bool, error) {
	if err := h.fill(ctx); err != nil {
		return false, err
	}
	acked0, failed0, err := h.known(ctx)
	if err != nil {
		return false, err
	}
	for parity := range 2 {
		if err := h.open(parity); err != nil {
			return false, err
		}
	}
	time.Sleep(after)
	if err := h.kafka.Kill(0); err != nil {
		return false, err
	}
	acked, _, err := h.known(ctx)
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
	_, failed, err := h.known(ctx)
	if err != nil {
		return false, err
	}
	got, err := h.arrived(ctx)
	if err != nil {
		return false, err
	}
	ids, copies := count(got)
	unknown := halvedBatch - (acked - acked0)
	fmt.Fprintf(out, "killed after %v: of %d records %d were acknowledged, %d sent again (%d failed writes); in the DLQ %d, %d of them twice\n",
		after, halvedBatch, acked-acked0, unknown, failed-failed0, ids, copies-ids)
	return ids == halvedBatch && copies-ids <= unknown, nil
}

// count is how many ids there are, and how many records.
func count(byID map[string]int) (ids, copies int) {
	for _, n := range byID {
		copies += n
	}
	return len(byID), copies
}
