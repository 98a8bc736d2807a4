package host

import (
	"fmt"
	"slices"
	"time"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/printable"
)

// ruleHost marks the verdicts that are the host's own.
const ruleHost = "host"

// clear tells suspects of an answer that came in time. It is called with mu held.
func (h *Host) clear(p *process, handle uint64) {
	s := &h.suspects
	if p.version != h.version {
		s.gone(handle)
		return
	}
	if s.quiet() {
		s.answers++
		return
	}
	for _, c := range s.answered(handle) {
		h.blame(c)
	}
	h.note()
}

// blame answers a delivery that kills the handler's process. It is called with
// mu held.
func (h *Host) blame(c culprit) {
	if len(h.ledger.withdraw(map[uint64]struct{}{c.handle: {}})) == 0 {
		return
	}
	h.status.Blamed++
	v := crashVerdict(c, h.hello.Version)
	h.cfg.Logger.Error("a record kills the handler's process: it is not sent again", "why", v.Message)
	h.post(&h.hello, plugin.Answers{Verdicts: []plugin.Answer{{Handle: c.handle, Verdict: v}}})
}

func crashVerdict(c culprit, version string) plugin.Verdict {
	return plugin.Verdict{
		Class: plugin.ClassPermanent, Reason: plugin.ReasonHandlerCrash, Code: string(plugin.ReasonHandlerCrash), Rule: ruleHost,
		Message: fmt.Sprintf("%d processes of the handler died with this record in hand, two of them with nothing else, while version %s handled others; the last one: %s",
			c.crashes, printable.Line(version), c.why),
	}
}

// lose takes back what a process had that has ended. crashed: it was not asked
// to, and that may be the fault of what it had; step tells that the search for
// it has come a step further.
func (h *Host) lose(p *process, end ending, crashed bool) (was lost, step bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was = h.ledger.lose(p.hand)
	h.postCancelled(was.cancelled)
	if len(was.ended) > 0 {
		h.post(&p.hello, plugin.Answers{Ended: was.ended})
	}
	if p.version == h.version {
		if crashed {
			alone := len(was.cancelled)+len(was.ended) == 0
			step = h.suspects.died(death{
				who: p.number, had: was.again, alone: alone, first: alone && p.hand.taken == len(was.again), why: end.why.Error(),
			})
		} else {
			h.suspects.recalled(p.number)
		}
	}
	for _, t := range h.seats {
		if t.process == p {
			t.process, t.since = nil, time.Now()
		}
	}
	h.replaced = slices.DeleteFunc(h.replaced, func(r *process) bool { return r == p })
	close(p.over)
	h.nudge()
	return was, step
}
