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
