package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kconsume/kconsume/test/chaos/task"
)

// producer writes tasks at a steady rate, each partition by a goroutine of its
// own that sends a batch again and again until all replicas have it, and only
// then the next: the order of a partition's tasks is that of their numbers,
// whatever happens, though a batch may be there twice.
type producer struct {
	ledger *ledger // told of acknowledgements; may be nil
	client *kafkago.Client
	do     func(partition int32, number int64) task.Action
	rate   float64 // tasks a second and partition
	first  int64   // number of a partition's first task
	limit  int64   // number behind its last, 0 = no limit

	acked  []atomic.Int64 // by partition: this many are acknowledged
	again  atomic.Int64   // batches sent again
	stop   context.CancelFunc
	wait   sync.WaitGroup
	finish context.Context // ended: nothing new is written
}

const (
	produceEvery = 20 * time.Millisecond
	produceMost  = 400 // tasks of a batch
	// produceTimeout outlasts the time a leader takes to move.
	produceTimeout = 10 * time.Second
)

func newProducer(r *rig, partitions int, do func(int32, int64) task.Action, rate float64) *producer {
	t := &kafkago.Transport{MetadataTTL: 500 * time.Millisecond, MetadataTopics: []string{topicMain}, DialTimeout: 2 * time.Second}
	p := &producer{
		client: &kafkago.Client{Addr: kafkago.TCP(strings.Split(r.kafka.Bootstrap(), ",")...), Transport: t},
		do:     do, rate: rate / float64(partitions), acked: make([]atomic.Int64, partitions),
	}
	return p
}

// start begins to write, until finished is called or the limit is reached.
func (p *producer) start(ctx context.Context) {
	p.finish, p.stop = context.WithCancel(ctx)
	for partition := range p.acked {
		p.wait.Go(func() { p.run(partition) })
	}
}

// finished stops writing and returns when each begun batch is acknowledged.
func (p *producer) finished(ctx context.Context) error {
	p.stop()
	done := make(chan struct{})
	go func() { p.wait.Wait(); close(done) }()
	select {
	case <-done:
		p.client.Transport.(*kafkago.Transport).CloseIdleConnections()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("finish writing: %w", context.Cause(ctx))
	}
}

// total is how many tasks are acknowledged.
func (p *producer) total() int64 {
	var n int64
	for i := range p.acked {
		n += p.acked[i].Load()
	}
	return n
}

func (p *producer) run(partition int) {
	began := time.Now()
	tick := time.NewTicker(produceEvery)
	defer tick.Stop()
	for next := p.first; p.limit == 0 || next < p.limit; {
		select {
		case <-p.finish.Done():
			return
		case <-tick.C:
		}
		due := p.first + int64(time.Since(began).Seconds()*p.rate)
		if p.limit > 0 {
			due = min(due, p.limit)
		}
		for next < due && p.finish.Err() == nil {
			n := min(produceMost, due-next)
			written, ok := p.batch(partition, next, n)
			if !ok {
				return
			}
			next += n
			p.acked[partition].Store(next)
			if p.ledger != nil {
				p.ledger.acknowledged(partition, written)
			}
		}
	}
}

// giveUp bounds how long a batch is sent again after the end was asked for.
const giveUp = time.Minute

// batch writes some tasks and returns once they are acknowledged. Without an
// acknowledgement until long after the end it gives up: their outcome is unknown.
func (p *producer) batch(partition int, first, n int64) (written int64, ok bool) {
	written = time.Now().UnixNano()
	var last context.Context
	for try := 0; ; try++ {
		if try > 0 {
			p.again.Add(1)
			time.Sleep(100 * time.Millisecond) // not a busy loop while there is no leader
		}
		if p.finish.Err() != nil && last == nil {
			var cancel context.CancelFunc
			last, cancel = context.WithTimeout(context.WithoutCancel(p.finish), giveUp)
			defer cancel()
		}
		if last != nil && last.Err() != nil {
			return 0, false
		}
		if p.produce(partition, first, n, written) == nil {
			return written, true
		}
	}
}

func (p *producer) produce(partition int, first, n, written int64) error {
	records := make([]kafkago.Record, n)
	for i := range records {
		number := first + int64(i)
		t := task.Task{Partition: int32(partition), Number: number, Written: written, Do: p.do(int32(partition), number)}
		records[i] = kafkago.Record{
			Key:   kafkago.NewBytes(task.Key(t.Partition, number, keysPerPartition)),
			Value: kafkago.NewBytes(t.Append(nil, valueSize)),
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.finish), produceTimeout)
	defer cancel()
	res, err := p.client.Produce(ctx, &kafkago.ProduceRequest{
		Topic: topicMain, Partition: partition, RequiredAcks: kafkago.RequireAll, Records: kafkago.NewRecordReader(records...),
	})
	if err != nil {
		return err
	}
	return res.Error
}
