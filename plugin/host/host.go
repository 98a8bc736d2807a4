// Package host finds, checks, launches and supervises handler processes, and
// carries deliveries to them and their answers back.
//
// A Host keeps a number of processes of one handler running: new ones after a
// crash, or in the place of the old ones at an upgrade. Each delivery given to
// it is answered exactly once, whatever happens to the processes in between:
// what a dead process had not answered goes to the next one in the order of
// before, as the same attempt. Only a delivery that is proven to kill its
// process is answered by the host; see suspects.
package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kconsume/kconsume/plugin"
)

// Host runs one handler. Its methods may be called from any goroutine.
type Host struct {
	cfg       *Config
	answers   chan plugin.Answers
	stop      context.Context // ends when Stop is called
	quit      context.CancelFunc
	reloading chan struct{} // holds one while there is an upgrade under way, and after the end
	drained   chan struct{} // closed by Stop's deadline: no more waiting for answers
	unread    chan struct{} // closed a grace after the end: nobody reads answers
	done      chan struct{} // closed when everything has ended
	failed    error         // of the stop; set before done is closed
	seats     []*seat
	retiring  sync.WaitGroup // replaced processes that are being ended

	mu       sync.Mutex
	ledger   *ledger          // guarded by mu
	suspects suspects         // guarded by mu
	version  int              // guarded by mu; counts what may be another version of the handler, whatever it calls itself
	runs     fileState        // guarded by mu; the file of the last process
	launched int              // guarded by mu; processes so far: they are numbered from 1
	replaced []*process       // guarded by mu; they answer what they have
	hello    Hello            // guarded by mu; the last one
	pin      string           // guarded by mu; the SHA-256 of the next process, "" = any
	file     fileState        // guarded by mu; the handler's file when it was last looked at for a start
	status   Status           // guarded by mu; what is not counted elsewhere
	out      []plugin.Answers // guarded by mu; to be read by the engine
	round    int              // guarded by mu; of nudges
	over     bool             // guarded by mu; nothing is added to out any more
	ready    chan struct{}    // holds one: out has something, or over is set
}

// Start launches the handler's processes and returns once each has said its
// Hello. ctx bounds only that; the host runs until Stop. The error is one line.
func Start(ctx context.Context, config Config) (*Host, error) {
	cfg, err := config.complete()
	if err != nil {
		return nil, err
	}
	file := stat(cfg.Path)
	processes, err := launchAll(ctx, cfg, "")
	if err != nil {
		return nil, err
	}
	h := &Host{
		cfg: cfg, pin: cfg.SHA256, file: file, answers: make(chan plugin.Answers),
		reloading: make(chan struct{}, 1), drained: make(chan struct{}), unread: make(chan struct{}),
		done: make(chan struct{}), ready: make(chan struct{}, 1),
		ledger: newLedger(), status: Status{Ends: map[Cause]int{}},
	}
	h.stop, h.quit = context.WithCancel(context.Background())
	h.warn(processes[0])
	for range processes {
		h.seats = append(h.seats, &seat{host: h, handover: make(chan *process, 1)})
	}
	h.mu.Lock()
	for i, p := range processes {
		h.adopt(h.seats[i], p)
	}
	h.mu.Unlock()
	go h.run(processes)
	return h, nil
}

func (h *Host) warn(p *process) {
	for _, w := range p.warnings {
		h.cfg.Logger.Warn("handler's file is not safe from others: " + w)
	}
}

// run keeps a process in every seat until Stop, and ends the answers then.
func (h *Host) run(processes []*process) {
	defer close(h.done)
	var emitting, keeping sync.WaitGroup
	emitting.Go(h.emit)
	failed := make([]error, len(processes))
	for i, p := range processes {
		keeping.Go(func() { failed[i] = h.seats[i].keep(p) })
	}
	if h.cfg.Watch {
		keeping.Go(h.watchFile)
	}
	keeping.Wait()
	h.reloading <- struct{}{}
	h.retiring.Wait()
	h.failed = errors.Join(failed...)
	h.finish()
	giveUp := time.AfterFunc(h.cfg.Grace, func() { close(h.unread) })
	emitting.Wait()
	giveUp.Stop()
	close(h.answers)
}

// finish ends the answers.
func (h *Host) finish() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	h.note()
	h.signal()
}

// Inspect starts the handler, reads what it says of itself and stops it.
func Inspect(ctx context.Context, config Config) (Hello, error) {
	cfg, err := config.complete()
	if err != nil {
		return Hello{}, err
	}
	p, err := launch(ctx, cfg, "")
	if err != nil {
		return Hello{}, err
	}
	p.dismiss()
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
			h.post(&h.hello, plugin.Answers{Verdicts: []plugin.Answer{{Handle: d.Handle, Verdict: oversize(size)}}})
		} else {
			h.ledger.add(d, size)
		}
	}
	h.nudge()
}

func oversize(size int) plugin.Verdict {
	return plugin.Verdict{
		Class: plugin.ClassPermanent, Reason: plugin.ReasonOversize, Code: string(plugin.ReasonOversize), Rule: ruleHost,
		Message: fmt.Sprintf("the record takes %d bytes, more than the %d that can be handed to a handler", size, recordLimit),
	}
}

// Cancel tells the handler to give up calls. Each delivery is answered all the
// same: one that was not sent yet, or whose process is lost, by the host, with
// no class and the rule "cancelled".
func (h *Host) Cancel(handles []uint64) {
	wanted := make(map[uint64]struct{}, len(handles))
	for _, handle := range handles {
		wanted[handle] = struct{}{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.postCancelled(h.ledger.withdraw(wanted))
	for p := range h.processes() {
		h.ledger.cancel(p.hand, wanted)
		if len(p.hand.cancels) > 0 {
			p.nudge()
		}
	}
	h.nudge() // what was searched may be gone
}

// Stop sends no more deliveries, lets the handler finish those that it has
// until ctx ends, stops its processes, and closes Answers. What waited or was
// not answered stays unanswered. The error tells that a process had to be
// killed or left deliveries unanswered, a line for each.
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
