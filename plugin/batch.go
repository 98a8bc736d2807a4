package plugin

import (
	"cmp"
	"context"
	"runtime/debug"
	"sync"
)

// BatchHandler handles many records at once, as a bulk insert does; it is called
// from many goroutines at once. See Batches.
//
// The returned error is for all records that were not failed singly with
// Batch.Fail; nil means that they are done. What an error means is told by its
// type, for the batch's as for a single one's: see Classify.
type BatchHandler interface {
	HandleBatch(context.Context, *Batch) error
}

// BatchHandlerFunc is a function as a BatchHandler.
type BatchHandlerFunc func(context.Context, *Batch) error

// HandleBatch calls f.
func (f BatchHandlerFunc) HandleBatch(ctx context.Context, b *Batch) error { return f(ctx, b) }

// Batch is at least one record, of any of the handler's topics. With --order
// key no two of them have the same key, with --order partition the same
// partition: kconsume never has two such records with a handler at once.
type Batch struct {
	// Messages may be sorted or cut as the handler likes. What is cut away
	// counts as handled like the rest.
	Messages []*Message

	mu     sync.Mutex
	failed map[*Message]error // guarded by mu
	over   bool               // guarded by mu; HandleBatch has returned
}

// Fail says that Messages[i] failed with err, whatever HandleBatch returns. The
// last error counts; nil changes nothing. It may be called from many goroutines,
// until HandleBatch returns.
func (b *Batch) Fail(i int, err error) {
	m := b.Messages[i]
	if err == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	if b.failed == nil {
		b.failed = make(map[*Message]error)
	}
	b.failed[m] = err
}

// end returns the errors of single records. No more are taken.
func (b *Batch) end() map[*Message]error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	return b.failed
}

const defaultBatch = 100

// BatchConfig says how batches are made.
type BatchConfig struct {
	// Max is the most records of a batch; default 100.
	Max int
	// Concurrency bounds the batches handled at once, where that is to be less
	// than --concurrency: fewer at once are larger ones. 1 = one after the other.
	Concurrency int
}

// Batches makes a Handler of a BatchHandler, for Serve and for the engine's
// Config. A batch is what waits when a call is free, up to Max: nothing lingers
// for a batch to fill, so they grow with the load. Wrapped in another Handler
// it is called with batches of one.
//
// One record's failure is not to be the others':
//
//   - A batch that panics, or whose returned error is permanent by its type
//     rather than by Permanent, is handled once more at once, each record alone,
//     as the same attempt. So only the guilty record is a dead letter. Records
//     failed singly before a returned error keep their verdict.
//   - The last of several attempts is made alone.
//   - The batch's deadline is the earliest of its records', and counts once: what
//     is handled again alone has what is left of it. Past it all of them are
//     answered as timed out, and all their keys stay occupied until it returns.
//   - When kconsume cancels a record, it has no verdict unless the batch
//     acknowledges it. The batch's context ends when all are cancelled.
func Batches(h BatchHandler, c BatchConfig) Handler {
	c.Max = max(cmp.Or(c.Max, defaultBatch), 1)
	c.Concurrency = max(c.Concurrency, 0)
	return &batches{handler: h, config: c}
}

// batches is what Pool knows a BatchHandler by.
type batches struct {
	handler BatchHandler
	config  BatchConfig
}

// Handle is for whoever wraps it: a batch of one.
func (b *batches) Handle(ctx context.Context, m *Message) error {
	batch := &Batch{Messages: []*Message{m}}
	err := b.handler.HandleBatch(ctx, batch)
	if single, ok := batch.end()[m]; ok {
		return single
	}
	return err
}

// lonely tells whether c is to be handled alone: the company that a record was
// in must not be what makes it a dead letter.
func (p *Pool) lonely(c *call) bool {
	m := &c.delivery.Message
	return m.Attempt > 1 && m.Attempt >= m.MaxAttempts
}

// callBatch runs the BatchHandler on w's calls and leaves their outcomes.
func (p *Pool) callBatch(w *worker) {
	b := &Batch{Messages: make([]*Message, len(w.calls))}
	for i, c := range w.calls {
		b.Messages[i] = &c.delivery.Message
	}
	returned := false
	defer func() {
		if !returned {
			p.panicked(w, recover(), debug.Stack())
		}
		w.ctx.cancel()
	}()
	p.judgeBatch(w, b, p.batches.HandleBatch(w.ctx, b))
	returned = true
}

func (p *Pool) judgeBatch(w *worker, b *Batch, rest error) {
	failed := b.end()
	var shared *Verdict // on rest, which is judged once
	for i, c := range w.calls {
		if err, single := failed[&c.delivery.Message]; single {
			w.outcomes[i].verdict = p.judge(w, c, err)
			continue
		}
		v := shared
		if own := rest == nil || c.cancelled(); own || v == nil {
			v = p.judge(w, c, rest)
			if !own {
				shared = v
			}
		}
		w.outcomes[i] = outcome{verdict: v, again: len(w.calls) > 1 && doubtful(v)}
	}
}

// doubtful: dead letters all, by what one of them may have caused.
func doubtful(v *Verdict) bool {
	return v != nil && v.Class == ClassPermanent && v.Rule != ruleExplicit
}

// panicked has each record of a batch handled alone, unless the batch is of one
// or its time is over.
func (p *Pool) panicked(w *worker, recovered any, stack []byte) {
	for i, c := range w.calls {
		at := p.circumstances(w, c)
		if len(w.calls) > 1 && !at.Late {
			w.outcomes[i] = outcome{again: true}
			continue
		}
		v := panicVerdict(recovered, stack, at)
		w.outcomes[i] = outcome{verdict: &v}
	}
}
