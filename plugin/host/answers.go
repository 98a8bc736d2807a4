package host

import (
	"slices"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/internal/wire"
)

// answered settles what a frame of p answers. It uses the frame's lists.
func (h *Host) answered(p *process, f *wire.PluginFrame) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := plugin.Answers{Acked: f.Acked[:0]}
	for _, number := range f.Acked {
		if i := h.ledger.find(p.hand, number); i != 0 {
			handle := h.ledger.settle(i)
			a.Acked = append(a.Acked, handle)
			h.clear(p, handle)
		} else {
			h.stray(number)
		}
	}
	for i := range f.Verdicts {
		h.judge(p, f, &f.Verdicts[i], &a)
	}
	for _, number := range f.Ended {
		if handle, ok := p.hand.runsNoMore(number); ok {
			a.Ended = append(a.Ended, handle)
		}
	}
	if len(a.Acked)+len(a.Verdicts)+len(a.Ended) > 0 {
		h.post(&p.hello, a)
	}
	if h.ledger.waiting.n > 0 {
		h.nudge() // limits may have held it back
	}
}

func (h *Host) judge(p *process, f *wire.PluginFrame, w *wire.Verdict, a *plugin.Answers) {
	i := h.ledger.find(p.hand, w.Handle)
	if i == 0 {
		h.stray(w.Handle)
		return
	}
	v := verdictOf(w)
	if v.Class == plugin.ClassUnspecified && !h.ledger.slots[i].cancelled {
		if p.draining.Load() && !w.Late {
			h.ledger.giveBack(i) // it has no time for it any more: the next process has
			return
		}
		v = badAnswer("the handler calls a delivery cancelled that nobody has cancelled")
	}
	handle := h.ledger.settle(i)
	if w.Late {
		call := w.Handle
		if p.batches {
			call = f.Verdicts[0].Handle // a batch that is late is answered in one frame
		}
		if p.hand.runsOn(w.Handle, lateDelivery{handle, call}) >= p.pace.concurrency {
			p.tire()
		}
		h.suspects.gone(handle)
	} else {
		h.clear(p, handle)
	}
	a.Verdicts = append(a.Verdicts, plugin.Answer{Handle: handle, Verdict: v, Late: w.Late})
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

// postCancelled is called with mu held.
func (h *Host) postCancelled(handles []uint64) {
	if len(handles) == 0 {
		return
	}
	a := plugin.Answers{Verdicts: make([]plugin.Answer, len(handles))}
	for i, handle := range handles {
		h.suspects.gone(handle)
		a.Verdicts[i] = plugin.Answer{Handle: handle, Verdict: plugin.Verdict{Rule: plugin.RuleCancelled}}
	}
	h.post(&h.hello, a)
}

// post queues answers of a handler for the engine, joined with those that wait
// already. It is called with mu held. The queue is bounded by what is unanswered.
func (h *Host) post(by *Hello, a plugin.Answers) {
	if h.over {
		return
	}
	a.Handler = by.identity()
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
