package engine

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"
)

// sayEvery is the least time between two lines about one thing that fails, but
// for the line that it has recovered.
const sayEvery = 10 * time.Second

// problems logs what goes wrong when it changes, not each time. A line tells how
// often it went wrong since the last one; what comes and goes, or says something
// else each time, is told every sayEvery at most.
type problems struct {
	log *slog.Logger
	of  map[string]*problem
}

// problem is one thing that can fail.
type problem struct {
	text   string // what is wrong now, "" = it works
	level  slog.Level
	passes bool // it is an event: over unless it happens again
	since  time.Time
	times  int // it went wrong since it was told last

	told   string // the last line's text, "" = that it works
	toldAt time.Time
}

func newProblems(log *slog.Logger) problems { return problems{log: log, of: map[string]*problem{}} }

// set notes the state of one thing that can fail; "" = it works.
func (p *problems) set(what, text string) { p.note(what, problem{text: text, level: slog.LevelWarn}) }

// fault is set for what loses or stops records: an error in the log.
func (p *problems) fault(what, text string) {
	p.note(what, problem{text: text, level: slog.LevelError})
}

// once notes what happens and is over, as often as it may happen.
func (p *problems) once(what, text string) {
	p.note(what, problem{text: text, level: slog.LevelWarn, passes: true})
}

func (p *problems) note(what string, now problem) {
	at := time.Now()
	one := p.of[what]
	switch {
	case one == nil && now.text == "":
		return
	case one == nil:
		one = &problem{}
		p.of[what] = one
	}
	if one.text == "" {
		one.since = at
	}
	one.text, one.level, one.passes = now.text, now.level, now.passes
	if now.text != "" {
		one.times++
		p.say(what, one, at)
		return
	}
	if one.told != "" {
		p.log.Info("recovered", "what", what, "times", one.times, "lasted", at.Sub(one.since).Round(time.Millisecond))
		one.told, one.toldAt = "", at
	}
	one.times = 0
}

// say logs what is wrong if that is new and it is time.
func (p *problems) say(what string, one *problem, at time.Time) {
	fresh := one.text != one.told || one.passes && one.times > 0
	if !fresh || !one.toldAt.IsZero() && at.Sub(one.toldAt) < sayEvery {
		return
	}
	args := []any{"what", what}
	if one.times > 1 {
		args = append(args, "times", one.times)
	}
	p.log.Log(context.Background(), one.level, one.text, args...)
	one.told, one.toldAt = one.text, at
	if one.passes {
		one.times = 0
	}
}

// tick tells what was held back, and forgets what has been well for long.
func (p *problems) tick(at time.Time) {
	for what, one := range p.of {
		if one.text != "" {
			p.say(what, one, at)
		}
		if one.text == "" || one.passes {
			if one.times == 0 && at.Sub(one.toldAt) >= sayEvery {
				delete(p.of, what)
			}
		}
	}
}

// forget drops the problem of a thing that is there no more.
func (p *problems) forget(what string) { delete(p.of, what) }

// any is one of the problems, "" if there is none.
func (p *problems) any() string {
	for _, what := range slices.Sorted(maps.Keys(p.of)) {
		if text := p.of[what].text; text != "" {
			return what + ": " + text
		}
	}
	return ""
}
