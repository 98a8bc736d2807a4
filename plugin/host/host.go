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
	for _, w := range p.warnings {
		cfg.Logger.Warn("handler's file is not safe from others: " + w)
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
// read it holds up nothing but itself. Within one batch the verdicts come
// before Ended, which may name a delivery that they call late.
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
