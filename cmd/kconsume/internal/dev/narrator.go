package dev

import (
	"bytes"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/kconsume/kconsume/engine"
)

// narrator carries the engine's events to the view, and its lines to the output.
type narrator struct {
	events chan engine.Event
	lost   atomic.Uint64 // events that found the channel full
}

const (
	// maxUntold bounds the events that wait to be told.
	maxUntold    = 4096
	tickEvery    = 100 * time.Millisecond
	summaryEvery = 10 * time.Second
	maxKeptOfKey = 64 // bytes; nobody reads more of a key in a column
)

func newNarrator() *narrator {
	return &narrator{events: make(chan engine.Event, maxUntold)}
}

// observe is the engine's Observer: it never waits.
func (n *narrator) observe(e engine.Event) {
	// The key is a view of a fetch buffer that this must not hold on to.
	e.Key = bytes.Clone(e.Key[:min(len(e.Key), maxKeptOfKey)])
	select {
	case n.events <- e:
	default:
		n.lost.Add(1)
	}
}

// run tells what happens until done is closed, then what is left, and a last
// summary. It ends early only if out fails.
func (n *narrator) run(done <-chan struct{}, v *view, out io.Writer, lay func() layout) error {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	summary := time.NewTicker(summaryEvery)
	defer summary.Stop()
	summed := v.told
	for {
		var lines []line
		ending := false
		select {
		case e := <-n.events:
			lines = n.take(v, e)
		case now := <-tick.C:
			lines = v.tick(now)
		case now := <-summary.C:
			if v.told.unseen = n.lost.Load(); v.told != summed {
				summed = v.told
				lines = append(lines, v.summary("so far", now))
			}
		case <-done:
			ending = true
			lines = n.rest(v)
			v.told.unseen = n.lost.Load()
			lines = append(lines, v.summary("in all", time.Now()))
		}
		l := lay()
		if ending && l.width > 0 {
			l.before = "\r" // over the ^C that the terminal shows
		}
		if err := write(out, l, lines); err != nil || ending {
			return err
		}
	}
}

// take tells e and whatever has come with it, so that a burst is written at once.
func (n *narrator) take(v *view, e engine.Event) []line {
	return append(v.event(e), n.rest(v)...)
}

// rest tells the events that are there already.
func (n *narrator) rest(v *view) []line {
	var lines []line
	for range maxUntold {
		select {
		case e := <-n.events:
			lines = append(lines, v.event(e)...)
		default:
			return lines
		}
	}
	return lines
}

func write(out io.Writer, l layout, lines []line) error {
	if len(lines) == 0 {
		return nil
	}
	var b bytes.Buffer
	b.WriteString(l.before)
	for _, n := range lines {
		b.WriteString(l.format(n))
	}
	if _, err := out.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write to the terminal: %w", err)
	}
	return nil
}
