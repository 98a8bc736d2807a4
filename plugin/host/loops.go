package host

import (
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kconsume/kconsume/plugin/internal/wire"
)

// run starts the loops that carry records for h until the process is ended.
func (p *process) run(h *Host) {
	p.loops.Go(func() { p.send(h) })
	p.loops.Go(func() { p.receive(h) })
	p.loops.Go(func() { p.watch(h) })
	p.loops.Go(p.listen)
}

// send writes all there is to send, frame by frame: while one is written the
// next one gathers, so frames grow with the load and nothing lingers.
func (p *process) send(h *Host) {
	var f wire.HostFrame
	for {
		f.Reset()
		if !h.next(p, &f) {
			select {
			case <-p.wake:
				continue
			case <-p.calls.Done():
				return
			}
		}
		if err := p.deliver.SendMsg(&f); err != nil {
			if err != io.EOF { // else receiving tells why
				p.fail(fmt.Errorf("send records: %w", err))
			}
			return
		}
		if f.Drain {
			p.deliver.CloseSend()
			return
		}
	}
}

func (p *process) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// tire is called with Host.mu held.
func (p *process) tire() {
	select {
	case <-p.weary:
	default:
		close(p.weary)
	}
}

func (p *process) receive(h *Host) {
	defer close(p.received)
	var f wire.PluginFrame
	for {
		err := p.deliver.RecvMsg(&f)
		if err == io.EOF && p.draining.Load() {
			return
		}
		if err == io.EOF {
			err = errNoWord
		}
		if err != nil {
			p.fail(fmt.Errorf("receive answers: %w", badFrame(err)))
			return
		}
		h.answered(p, &f)
	}
}

// badFrame says what is wrong where it is the handler's frame.
func badFrame(err error) error {
	switch s, _ := status.FromError(err); {
	case s.Code() == codes.ResourceExhausted:
		return fmt.Errorf("it sent more than %d MiB at once, emit less for one record: %w", wire.MaxFrameBytes>>20, err)
	case s.Code() == codes.Internal && strings.Contains(s.Message(), "unmarshal"):
		return fmt.Errorf("it sent what is no frame, use a kconsume SDK: %w", err)
	}
	return err
}

// watch sends a beat each second and looks for answers that are overdue.
func (p *process) watch(h *Host) {
	tick := time.NewTicker(p.cfg.beat)
	defer tick.Stop()
	last := time.Now()
	for seq := uint64(1); ; seq++ {
		select {
		case <-p.calls.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		late := h.overdue(p, now, now.Sub(last))
		last = now
		switch missed := seq - 1 - p.echoed.Load(); {
		case late != "":
			p.fail(fmt.Errorf("%w: no answer for %s past every deadline", errHung, late))
		case missed >= missedBeats && !p.hello.BeatsMayWait && !p.silent.Load():
			p.fail(fmt.Errorf("%w: %d heartbeats without an echo", errHung, missed))
		}
		p.beaten.Store(seq)
		p.control.SendMsg(&wire.Beat{Seq: seq}) // listen gets the error
	}
}

// listen takes the echoes of beats.
func (p *process) listen() {
	var b wire.Beat
	for {
		if err := p.control.RecvMsg(&b); err != nil && p.draining.Load() {
			p.silent.Store(true)
			return
		} else if err != nil {
			p.fail(fmt.Errorf("receive heartbeats: %w", err))
			return
		}
		if b.Seq > p.echoed.Load() && b.Seq <= p.beaten.Load() {
			p.echoed.Store(b.Seq)
		}
	}
}
