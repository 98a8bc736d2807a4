package plugin

import (
	"cmp"
	"runtime"
	"sync"
	"time"

	"github.com/kconsume/kconsume/plugin/internal/wire"
)

const (
	defaultConcurrency = 64
	defaultCloseWait   = 5 * time.Second
	// lateAfter is how long after its deadline a call counts as late. A handler
	// that heeds its context has its own say within it.
	lateAfter = 10 * time.Millisecond
)

// PoolConfig says how a Pool runs its handler.
type PoolConfig struct {
	// Handler is name@version, as it stands in Answers.
	Handler string
	// Concurrency bounds the calls that run at once, late ones aside; default 64.
	Concurrency int
	// MaxLate bounds the late calls that run besides; default Concurrency. See
	// Pool.Late.
	MaxLate int
	// CloseWait is how long Close waits for calls to end; default 5 s.
	CloseWait time.Duration
	// Classifiers are asked before the built-in rules; see Classify.
	Classifiers []Classifier
}

// Pool calls a handler: at most Concurrency calls at once, each under its
// deadline, a panic contained. It is the one place where a handler's code is
// called, in the handler's process and, for a service that embeds the engine,
// in the engine's.
//
// A call that is not back shortly after its deadline is answered at once, as a
// transient timeout and Late; its handle comes once more in Answers.Ended when
// it is. Late calls do not count in Concurrency as long as there are no more
// than MaxLate, so that they starve nobody. A cancelled delivery that is not
// acknowledged all the same is answered with ClassUnspecified and
// RuleCancelled: it has no verdict.
//
// For a handler made by Batches a call is a batch: see there.
//
// The state is guarded by one mutex. For a record it is taken once, to settle
// one call and take the next.
type Pool struct {
	handler Handler
	batches BatchHandler // of a handler made by Batches, else nil
	most    int          // deliveries in one call
	config  PoolConfig

	answers   chan Answers
	ready     chan struct{} // something to collect; one is enough
	abandoned chan struct{} // closed when Close has waited long enough
	abandon   sync.Once
	over      chan struct{} // closed when the collector has ended
	drains    chan struct{} // closed when the host asks for the end

	mu       sync.Mutex
	idlers   sync.Cond  // workers without a call; on mu
	queue    []*arrival // from head on
	head     int
	again    []*call // to be handled once more, each alone
	queued   int     // deliveries in queue and again, settled ones included
	open     int     // deliveries not answered yet
	workers  map[*worker]struct{}
	idle     int
	late     int  // late calls; a batch is one
	waking   bool // a worker has been woken or started and not come yet
	alarm    *time.Timer
	alarmAt  time.Time // zero = not set
	pending  Answers   // not collected yet
	draining bool
	closed   bool
	gone     bool // nobody collects any more
}

// arrival is what one Deliver brought.
type arrival struct {
	calls []call
	next  int
}

// worker is one goroutine. It owns outcomes while the handler runs; all else is
// on Pool.mu.
type worker struct {
	calls    []*call // under way: one, or a batch
	ctx      *callContext
	outcomes []outcome // of the calls, in their order
	late     bool      // the calls are answered and run on
	waked    bool
}

// outcome is what became of one call.
type outcome struct {
	verdict *Verdict // nil = acknowledged
	again   bool     // none yet: the handler is to be called for it alone
}

// NewPool starts a pool. Close it.
func NewPool(h Handler, config PoolConfig) *Pool {
	config.Concurrency = max(cmp.Or(config.Concurrency, defaultConcurrency), 1)
	config.MaxLate = max(cmp.Or(config.MaxLate, config.Concurrency), 0)
	config.CloseWait = cmp.Or(config.CloseWait, defaultCloseWait)
	p := &Pool{
		handler:   h,
		config:    config,
		answers:   make(chan Answers),
		ready:     make(chan struct{}, 1),
		abandoned: make(chan struct{}),
		over:      make(chan struct{}),
		drains:    make(chan struct{}),
		most:      1,
		workers:   make(map[*worker]struct{}),
		pending:   Answers{Handler: config.Handler},
	}
	if b, ok := h.(*batches); ok {
		p.batches, p.most = b.handler, b.config.Max
		p.config.Concurrency = min(config.Concurrency, cmp.Or(b.config.Concurrency, config.Concurrency))
	}
	p.idlers.L = &p.mu
	go p.collect()
	return p
}

// Deliver takes the deliveries over, and the slice with them: messages point
// into it. It never blocks; how much waits in the pool is bounded by who
// delivers. After Close it does nothing.
func (p *Pool) Deliver(deliveries []Delivery) {
	if len(deliveries) == 0 {
		return
	}
	fillIDs(deliveries)
	b := &arrival{calls: make([]call, len(deliveries))}
	for i := range deliveries {
		c := &b.calls[i]
		c.delivery, c.draining, c.message = &deliveries[i], p.drains, &deliveries[i].Message
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.queue = append(p.queue, b)
	p.queued += len(b.calls)
	p.open += len(b.calls)
	p.wake()
}

// Cancel cancels the calls of these handles. Those that have not begun are
// answered now, the others when they end. Unknown handles are passed over. The
// slice is only read.
func (p *Pool) Cancel(handles []uint64) {
	wanted := make(map[uint64]bool, len(handles))
	for _, h := range handles {
		wanted[h] = true
	}
	p.mu.Lock()
	ended := p.cancelLocked(func(h uint64) bool { return wanted[h] })
	p.mu.Unlock()
	for _, c := range ended {
		c.cancel()
	}
}

// Answers is what has been answered, in batches that grow while nobody reads.
// It is closed by Close.
func (p *Pool) Answers() <-chan Answers { return p.answers }

// Late tells how many late calls run, and how many may before they take the
// places of others. At the bound the handler does not come back as it should:
// drain its process and start a new one.
func (p *Pool) Late() (running, bound int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late, p.config.MaxLate
}

// Close cancels everything, waits for the calls that end within
// PoolConfig.CloseWait and closes Answers. Answers are handed out until then,
// if somebody reads them; what is not answered by then has no verdict. A call
// that does not end keeps its goroutine.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	ended := p.cancelLocked(func(uint64) bool { return true })
	if p.alarm != nil {
		p.alarm.Stop()
	}
	p.idlers.Broadcast()
	p.signal()
	p.mu.Unlock()
	for _, c := range ended {
		c.cancel()
	}
	bound := time.NewTimer(p.config.CloseWait)
	defer bound.Stop()
	select {
	case <-p.over:
	case <-bound.C:
		p.abandon.Do(func() { close(p.abandoned) })
		<-p.over
	}
}

// drain closes Answers when everything delivered is answered. Late calls are
// not waited for.
func (p *Pool) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.draining {
		p.draining = true
		close(p.drains)
	}
	p.signal()
}

// cancelLocked settles the deliveries of these handles that wait, marks those
// that run, and returns the contexts of the calls of which none is left.
func (p *Pool) cancelLocked(wanted func(uint64) bool) []*callContext {
	settle := func(c *call) {
		if !c.settled && wanted(c.delivery.Handle) {
			c.settled = true
			p.answer(Answer{Handle: c.delivery.Handle, Verdict: cancelledVerdict()})
		}
	}
	for _, c := range p.again {
		settle(c)
	}
	for _, b := range p.queue[p.head:] {
		for i := b.next; i < len(b.calls); i++ {
			settle(&b.calls[i])
		}
	}
	var ended []*callContext
	for w := range p.workers {
		if w.cancel(wanted) {
			ended = append(ended, w.ctx)
		}
	}
	return ended
}

// cancel marks the calls of these handles, and reports whether all are marked.
func (w *worker) cancel(wanted func(uint64) bool) bool {
	all := len(w.calls) > 0
	for _, c := range w.calls {
		if wanted(c.delivery.Handle) {
			c.byHost.Store(true)
		}
		all = all && c.cancelled()
	}
	return all
}

func (p *Pool) answer(a Answer) {
	if p.gone {
		return
	}
	p.pending.Verdicts = append(p.pending.Verdicts, a)
	p.open--
	p.signal()
}

func (p *Pool) signal() {
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

// collect hands out what is pending. It lets whoever can run go first: while
// records are handled faster than answers are read, batches grow.
func (p *Pool) collect() {
	defer close(p.over)
	defer close(p.answers)
	for {
		select {
		case <-p.ready:
		case <-p.abandoned:
		}
		runtime.Gosched()
		a, last := p.take()
		if len(a.Acked)+len(a.Verdicts)+len(a.Ended) > 0 {
			select {
			case p.answers <- a:
			case <-p.abandoned:
				last = p.leaveBehind()
			}
		}
		if last {
			return
		}
	}
}

// take takes what is pending, and tells whether it is the last.
func (p *Pool) take() (Answers, bool) {
	select {
	case <-p.abandoned:
		p.leaveBehind()
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.pending
	p.pending = Answers{Handler: p.config.Handler}
	if n := len(a.Acked); n > 0 {
		p.pending.Acked = make([]uint64, 0, n)
	}
	if p.closed && len(p.workers) == 0 || p.draining && p.open == 0 {
		p.gone = true
	}
	return a, p.gone
}

func (p *Pool) leaveBehind() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	return true
}

// fillIDs gives messages the ids they lack, as parts of one string.
func fillIDs(deliveries []Delivery) {
	size := 0
	for i := range deliveries {
		if m := &deliveries[i].Message; m.ID == "" {
			size += wire.SizeID(m.Topic, m.Partition, m.Offset, m.Time.UnixMilli())
		}
	}
	if size == 0 {
		return
	}
	b := make([]byte, 0, size)
	for i := range deliveries {
		if m := &deliveries[i].Message; m.ID == "" {
			b = AppendID(b, m.Topic, m.Partition, m.Offset, m.Time.UnixMilli())
		}
	}
	all := string(b)
	for i := range deliveries {
		if m := &deliveries[i].Message; m.ID == "" {
			n := wire.SizeID(m.Topic, m.Partition, m.Offset, m.Time.UnixMilli())
			m.ID, all = all[:n], all[n:]
		}
	}
}
