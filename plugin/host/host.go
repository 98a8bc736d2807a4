// Package host finds, checks, launches and supervises handler processes, and
// carries deliveries to them and their answers back.
//
// A Host keeps one handler running: one process at a time, a new one after a
// crash. Each delivery given to it is answered exactly once, whatever happens
// to the processes in between: what a dead process had not answered goes to the
// next one in the order of before, as the same attempt.
package host

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/internal/wire"
)

// State is what a host is doing.
type State string

const (
	StateRunning State = "running"
	StateDown    State = "down" // waits to start a process again, or starts it
	StateStopped State = "stopped"
)

// Status is a snapshot of a host.
type Status struct {
	State              State
	Name, Version, SDK string    // of the last Hello
	PID                int       // 0 while there is no process
	Restarts           int       // processes that ended without being asked to
	Since              time.Time // when the state began
	LastExit           string    // why the last process ended or did not start; "" = never
	InFlight           int       // deliveries that the process has not answered
	Waiting            int       // deliveries that wait to be sent
	Late               int       // calls that run on past their deadline
	BadAnswers         int       // answers to nothing that was asked, or to something twice
}

// Host runs one handler. Its methods may be called from any goroutine.
type Host struct {
	cfg     *Config
	answers chan plugin.Answers
	stop    context.Context // ends when Stop is called
	quit    context.CancelFunc
	drained chan struct{} // closed by Stop's deadline: no more waiting for answers
	unread  chan struct{} // closed a grace after the end: nobody reads answers
	done    chan struct{} // closed when everything has ended
	failed  error         // of the stop; set before done is closed

	mu      sync.Mutex
	ledger  *ledger          // guarded by mu
	process *process         // guarded by mu; nil while there is none
	hello   Hello            // guarded by mu; the last one
	status  Status           // guarded by mu; what is not counted elsewhere
	out     []plugin.Answers // guarded by mu; to be read by the engine
	over    bool             // guarded by mu; nothing is added to out any more
	ready   chan struct{}    // holds one: out has something, or over is set
}

// Start launches the handler and returns once it has said its Hello. ctx
// bounds only that; the host runs until Stop. The error is one line.
func Start(ctx context.Context, config Config) (*Host, error) {
	cfg, err := config.complete()
	if err != nil {
		return nil, err
	}
	p, err := launch(ctx, cfg)
	if err != nil {
		return nil, err
	}
	h := &Host{
		cfg: cfg, answers: make(chan plugin.Answers),
		drained: make(chan struct{}), unread: make(chan struct{}), done: make(chan struct{}), ready: make(chan struct{}, 1),
		ledger: newLedger(),
	}
	h.stop, h.quit = context.WithCancel(context.Background())
	h.adopt(p)
	go h.supervise(p)
	return h, nil
}

// Inspect starts the handler, reads what it says of itself and stops it.
func Inspect(ctx context.Context, config Config) (Hello, error) {
	cfg, err := config.complete()
	if err != nil {
		return Hello{}, err
	}
	p, err := launch(ctx, cfg)
	if err != nil {
		return Hello{}, err
	}
	p.leave()
	p.close()
	return p.hello, nil
}

// Hello is what the present handler, or the last one, said of itself.
func (h *Host) Hello() Hello {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hello
}

// Answers is the channel of all answers; it is closed by Stop. Whoever does not
// read it holds up nothing but itself.
func (h *Host) Answers() <-chan plugin.Answers { return h.answers }

// Deliver hands deliveries over; it never blocks. While there is no process
// they wait. After Stop they are ignored. The slice may be used again at once,
// the messages' bytes only when they have been answered.
func (h *Host) Deliver(deliveries []plugin.Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range deliveries {
		d := &deliveries[i]
		if size := sizeOf(d); size > recordLimit {
			h.post(plugin.Answers{Verdicts: []plugin.Answer{{Handle: d.Handle, Verdict: oversize(size)}}})
		} else {
			h.ledger.add(d, size)
		}
	}
	h.nudge()
}

func oversize(size int) plugin.Verdict {
	return plugin.Verdict{
		Class: plugin.ClassPermanent, Reason: plugin.ReasonOversize, Code: string(plugin.ReasonOversize), Rule: "host",
		Message: fmt.Sprintf("the record takes %d bytes, more than the %d that can be handed to a handler", size, recordLimit),
	}
}

// Cancel tells the handler to give up calls. Each delivery is answered all the
// same: one that was not sent yet, or whose process is lost, by the host, with
// no class and the rule "cancelled".
func (h *Host) Cancel(handles []uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	unsent, numbers := h.ledger.cancel(handles)
	h.postCancelled(unsent)
	if h.process != nil {
		h.process.cancels = append(h.process.cancels, numbers...)
	}
	h.nudge()
}

// Status tells how the host is.
func (h *Host) Status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.status
	s.Name, s.Version, s.SDK = h.hello.Name, h.hello.Version, h.hello.SDK
	s.InFlight, s.Waiting, s.Late = h.ledger.sent.n, h.ledger.waiting.n, len(h.ledger.late)
	if h.process != nil {
		s.PID = h.process.child.pid()
	}
	return s
}

// Stop sends no more deliveries, lets the handler finish those that it has
// until ctx ends, stops its process, and closes Answers. What waited or was not
// answered stays unanswered. The error tells that the process had to be killed
// or left deliveries unanswered.
func (h *Host) Stop(ctx context.Context) error {
	h.quit()
	select {
	case <-h.done:
	case <-ctx.Done():
		h.mu.Lock()
		select {
		case <-h.drained:
		default:
			close(h.drained)
		}
		h.mu.Unlock()
		<-h.done
	}
	return h.failed
}

// supervise owns the process: it waits for its end and starts the next one,
// until Stop.
func (h *Host) supervise(p *process) {
	defer close(h.done)
	var emitting sync.WaitGroup
	emitting.Go(h.emit)
	pause := backoff{min: h.cfg.BackoffMin, max: h.cfg.BackoffMax}
	for p != nil {
		tired := false
		select {
		case <-p.child.exited:
		case <-p.broken.Done():
		case <-p.weary:
			tired = true
			h.recall(p, h.stop.Done())
		case <-h.stop.Done():
			h.failed = h.retire(p)
			p = nil
			continue
		}
		lived := time.Since(p.began)
		why, _ := p.end()
		if tired {
			why = fmt.Errorf("%d calls ran on past their deadline, it was told to end: %w", h.cfg.Concurrency, why)
		}
		h.lose(p, why)
		p = h.restart(&pause, lived)
	}
	h.finish()
	giveUp := time.AfterFunc(h.cfg.Grace, func() { close(h.unread) })
	emitting.Wait()
	giveUp.Stop()
	close(h.answers)
}

// adopt makes p the process that deliveries go to.
func (h *Host) adopt(p *process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.process, h.hello = p, p.hello
	h.status.State, h.status.Since = StateRunning, time.Now()
	p.run(h)
}

// lose takes back what a dead process had.
func (h *Host) lose(p *process, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	unanswered := h.ledger.sent.n
	cancelled, ended := h.ledger.lose()
	h.postCancelled(cancelled)
	if len(ended) > 0 {
		h.post(plugin.Answers{Ended: ended})
	}
	h.process = nil
	h.status.Restarts++
	h.down(why)
	h.cfg.Logger.Error("handler process ended: starting it again", "why", why.Error(),
		"lived", time.Since(p.began).Round(time.Millisecond), "redelivered", unanswered-len(cancelled))
}

// down is called with mu held.
func (h *Host) down(why error) {
	h.status.LastExit = why.Error()
	if h.status.State != StateDown {
		h.status.State, h.status.Since = StateDown, time.Now()
	}
}

// restart starts the next process, however often it takes. It returns nil when
// the host is to stop.
func (h *Host) restart(pause *backoff, lived time.Duration) *process {
	told := ""
	for {
		wait := pause.delay(lived, rand.Float64())
		if !sleep(h.stop, wait) {
			return nil
		}
		p, err := launch(h.stop, h.cfg)
		if err == nil {
			h.cfg.Logger.Info("handler process started", "version", valid(p.hello.Version), "pid", p.child.pid())
			h.adopt(p)
			return p
		}
		if h.stop.Err() != nil {
			return nil
		}
		if err.Error() != told { // a repeated failure is told once
			told = err.Error()
			h.cfg.Logger.Error("handler does not start: trying again", "why", told)
		}
		h.mu.Lock()
		h.down(err)
		h.mu.Unlock()
		lived = 0
	}
}

// sleep reports whether d passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// recall sends the process nothing more and lets it answer what it has, until
// enough is closed.
func (h *Host) recall(p *process, enough <-chan struct{}) {
	p.draining.Store(true)
	p.nudge()
	select {
	case <-p.received:
	case <-p.child.exited:
	case <-p.broken.Done():
	case <-enough:
	}
}

// retire ends the last process.
func (h *Host) retire(p *process) error {
	h.recall(p, h.drained)
	why, killed := p.end()
	h.mu.Lock()
	unanswered := h.ledger.sent.n
	_, ended := h.ledger.lose()
	if len(ended) > 0 {
		h.post(plugin.Answers{Ended: ended})
	}
	h.process = nil
	h.mu.Unlock()
	switch {
	case killed:
		return fmt.Errorf("stop handler %s: it did not end by itself: %w", h.cfg.Name, why)
	case unanswered > 0:
		return fmt.Errorf("stop handler %s: %d deliveries left unanswered: %w", h.cfg.Name, unanswered, why)
	}
	return nil
}

// finish ends the answers.
func (h *Host) finish() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status.State, h.status.Since = StateStopped, time.Now()
	h.over = true
	h.signal()
}

// next puts into f what p is to be sent now, and reports whether that is
// anything.
func (h *Host) next(p *process, f *wire.HostFrame) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.draining.Load() {
		f.Drain = true
	} else {
		h.ledger.take(&p.pace, time.Now().Add(-p.stalled), f)
	}
	f.Cancel = append(f.Cancel, p.cancels...)
	p.cancels = p.cancels[:0]
	return f.Drain || len(f.Records) > 0 || len(f.Cancel) > 0
}

// nudge is called with mu held.
func (h *Host) nudge() {
	if h.process != nil {
		h.process.nudge()
	}
}

// answered settles what a frame of p answers. It uses the frame's lists.
func (h *Host) answered(p *process, f *wire.PluginFrame) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := plugin.Answers{Acked: f.Acked[:0]}
	for _, number := range f.Acked {
		if i := h.ledger.find(number); i != 0 {
			a.Acked = append(a.Acked, h.ledger.settle(i))
		} else {
			h.stray(number)
		}
	}
	for i := range f.Verdicts {
		h.judge(p, &f.Verdicts[i], &a)
	}
	for _, number := range f.Ended {
		if handle, ok := h.ledger.late[number]; ok {
			delete(h.ledger.late, number)
			a.Ended = append(a.Ended, handle)
		}
	}
	if len(a.Acked)+len(a.Verdicts)+len(a.Ended) > 0 {
		h.post(a)
	}
	if h.ledger.waiting.n > 0 {
		p.nudge() // the handler's own limits may have held it back
	}
}

func (h *Host) judge(p *process, w *wire.Verdict, a *plugin.Answers) {
	i := h.ledger.find(w.Handle)
	if i == 0 {
		h.stray(w.Handle)
		return
	}
	handle := h.ledger.settle(i)
	if w.Late {
		h.ledger.late[w.Handle] = handle
		if len(h.ledger.late) == h.cfg.Concurrency {
			p.tire()
		}
	}
	a.Verdicts = append(a.Verdicts, plugin.Answer{Handle: handle, Verdict: verdictOf(w), Late: w.Late})
}

// stray counts an answer to nothing that was asked; only the first ones are
// logged, a broken handler could give millions.
func (h *Host) stray(number uint64) {
	const told = 10
	h.status.BadAnswers++
	if h.status.BadAnswers <= told {
		h.cfg.Logger.Warn("handler answers what was not asked, or twice: ignored", "number", number, "so_far", h.status.BadAnswers)
	}
}

// overdue names the first delivery that p should have answered by now. A time
// in which we stood still ourselves, frozen or starved, does not count: the
// answers wait to be read.
func (h *Host) overdue(p *process, now time.Time, sinceLast time.Duration) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if sinceLast > 2*h.cfg.beat {
		p.stalled += sinceLast - h.cfg.beat
	}
	d := h.ledger.overdue(now.Add(-p.stalled))
	if d == nil {
		return ""
	}
	return fmt.Sprintf("%s/%d@%d", valid(d.Message.Topic), d.Message.Partition, d.Message.Offset)
}

// postCancelled is called with mu held.
func (h *Host) postCancelled(handles []uint64) {
	if len(handles) == 0 {
		return
	}
	a := plugin.Answers{Verdicts: make([]plugin.Answer, len(handles))}
	for i, handle := range handles {
		a.Verdicts[i] = plugin.Answer{Handle: handle, Verdict: plugin.Verdict{Rule: plugin.RuleCancelled}}
	}
	h.post(a)
}

// post queues answers for the engine, joined with those that wait already. It
// is called with mu held. The queue is bounded by what is unanswered.
func (h *Host) post(a plugin.Answers) {
	if h.over {
		return
	}
	a.Handler = h.hello.identity()
	if n := len(h.out); n > 0 && h.out[n-1].Handler == a.Handler {
		last := &h.out[n-1]
		last.Acked = append(last.Acked, a.Acked...)
		last.Verdicts = append(last.Verdicts, a.Verdicts...)
		last.Ended = append(last.Ended, a.Ended...)
	} else {
		h.out = append(h.out, a)
	}
	h.signal()
}

func (h *Host) signal() {
	select {
	case h.ready <- struct{}{}:
	default:
	}
}

// emit hands queued answers to the engine, one batch at a time; meanwhile the
// next one gathers.
func (h *Host) emit() {
	for {
		a, some, over := h.pop()
		switch {
		case !some && over:
			return
		case !some:
			<-h.ready
			continue
		}
		select {
		case h.answers <- a:
		case <-h.unread:
			return
		}
	}
}

func (h *Host) pop() (a plugin.Answers, some, over bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.out) == 0 {
		return a, false, h.over
	}
	a = h.out[0]
	h.out = slices.Delete(h.out, 0, 1)
	return a, true, h.over
}
