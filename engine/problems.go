package engine

import (
	"log/slog"
	"maps"
	"slices"
)

// problems logs what goes wrong when it changes, not each time.
type problems struct {
	log  *slog.Logger
	last map[string]string
}

// set notes the state of one thing that can fail; "" = it works.
func (p *problems) set(what, text string) {
	before := p.last[what]
	switch {
	case text == before:
		return
	case text == "":
		delete(p.last, what)
		p.log.Info("recovered", "what", what)
		return
	}
	p.last[what] = text
	p.log.Warn(text, "what", what)
}

// forget drops the problem of a thing that is there no more.
func (p *problems) forget(what string) { delete(p.last, what) }

// any is one of the problems, "" if there is none.
func (p *problems) any() string {
	for _, what := range slices.Sorted(maps.Keys(p.last)) {
		return what + ": " + p.last[what]
	}
	return ""
}
