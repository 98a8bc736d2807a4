package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kconsume/kconsume/plugin/printable"
)

var errStopping = errors.New("the host is stopping")

// ReloadConfig is what an upgrade changes besides the file.
type ReloadConfig struct {
	// SHA256 is the new pin, in hex; empty = the one of before.
	SHA256 string
}

// Reloaded is what an upgrade did.
type Reloaded struct {
	Before, After Hello
}

// Reload starts the handler's file anew, as many processes as there are, and
// sends all that is new to them once each has said its Hello. The old ones go
// on until then; after that they answer what they have, and end. No delivery
// fails by it and none is handled twice, unless an old process dies or hangs
// before it has answered.
//
// Upgrades go one at a time, and the next one waits until the processes that
// the one before replaced have ended: that takes no longer than a delivery's
// timeout and Config.Grace. ctx bounds that and the start.
//
// The error is one line. It tells why the old processes, and the old pin,
// remain.
func (h *Host) Reload(ctx context.Context, c ReloadConfig) (Reloaded, error) {
	r, err := h.reload(ctx, c)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.status.FailedUpgrades++
		reason := strings.ReplaceAll(err.Error(), "\n", "; ")
		return Reloaded{}, fmt.Errorf("upgrade handler %s: the old version goes on: %s", h.cfg.Name, reason)
	}
	h.status.Upgrades++
	h.cfg.Logger.Info("handler upgraded", "from", printable.Line(r.Before.Version), "to", printable.Line(r.After.Version))
	return r, nil
}

func (h *Host) reload(parent context.Context, c ReloadConfig) (r Reloaded, err error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	defer context.AfterFunc(h.stop, func() { cancel(errStopping) })()
	select {
	case h.reloading <- struct{}{}:
		defer func() { <-h.reloading }()
	case <-ctx.Done():
		return r, context.Cause(ctx)
	}
	if err := h.buried(ctx); err != nil {
		return r, err
	}
	file := stat(h.cfg.Path)
	h.mu.Lock()
	h.file = file
	r.Before = h.hello
	cfg := *h.cfg
	cfg.SHA256 = h.pin
	h.mu.Unlock()
	if c.SHA256 != "" {
		cfg.SHA256 = c.SHA256
	}
	processes, err := launchAll(ctx, &cfg, r.Before.Name)
	if err != nil {
		return r, err
	}
	err = probe(ctx, processes, cfg.probation)
	if err == nil {
		err = h.replace(processes, cfg.SHA256)
	}
	if err != nil {
		dismissAll(processes)
		return r, err
	}
	h.warn(processes[0])
	r.After = processes[0].hello
	return r, nil
}

// buried waits for the end of the processes that the last upgrade replaced.
func (h *Host) buried(ctx context.Context) error {
	h.mu.Lock()
	old := append([]*process(nil), h.replaced...)
	h.mu.Unlock()
	for _, p := range old {
		select {
		case <-p.over:
		case <-ctx.Done():
			return fmt.Errorf("wait for the version before it, which still answers: %w", context.Cause(ctx))
		}
	}
	return nil
}

// probe makes sure that the processes do not exit at once.
func probe(ctx context.Context, processes []*process, probation time.Duration) error {
	t := time.NewTimer(probation)
	defer t.Stop()
	first := make(chan *process, len(processes))
	over, cancel := context.WithCancel(ctx)
	defer cancel()
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	for _, p := range processes {
		waiting.Go(func() {
			select {
			case <-p.child.exited:
				first <- p
			case <-over.Done():
			}
		})
	}
	select {
	case p := <-first:
		p.close() // its last words are in
		return fmt.Errorf("it exited right after its Hello: %s", p.child.exit())
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// replace puts the processes in the places of the old ones.
func (h *Host) replace(processes []*process, pin string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.seats {
		if s.left || h.stop.Err() != nil {
			return errStopping
		}
	}
	h.pin, h.runs = pin, fileState{} // what an old one did tells nothing of a new one
	for i, s := range h.seats {
		old := s.process
		if old != nil {
			old.draining.Store(true)
			h.replaced = append(h.replaced, old)
		}
		h.adopt(s, processes[i])
		if old != nil {
			old.nudge()
		}
		if s.starting != nil {
			s.starting()
		}
		s.handover <- processes[i]
	}
	return nil
}

// launchAll starts as many processes as there are to be, all or none; see launch.
func launchAll(ctx context.Context, cfg *Config, name string) ([]*process, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	processes := make([]*process, cfg.Procs)
	var first error // the others are given up because of it
	var once sync.Once
	var starting sync.WaitGroup
	for i := range processes {
		starting.Go(func() {
			p, err := launch(ctx, cfg, name)
			if err != nil {
				once.Do(func() { first = err })
				cancel()
			}
			processes[i] = p
		})
	}
	starting.Wait()
	if first != nil {
		dismissAll(processes)
		return nil, first
	}
	return processes, nil
}

func dismissAll(processes []*process) {
	var ending sync.WaitGroup
	for _, p := range processes {
		if p != nil {
			ending.Go(p.dismiss)
		}
	}
	ending.Wait()
}
