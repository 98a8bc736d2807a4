package host

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kconsume/kconsume/plugin"
)

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
		return fmt.Errorf("stop handler %s: of its deliveries %d left unanswered: %w", h.cfg.Name, unanswered, why)
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
