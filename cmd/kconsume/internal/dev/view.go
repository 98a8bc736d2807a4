package dev

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/printable"
)

// tone is how a phrase is meant; on a terminal it is a colour.
type tone uint8

const (
	plain  tone = iota
	good        // done
	warn        // failed, not for the last time
	back        // came back from a tier
	bad         // dead letter
	subtle      // about the view itself
)

// phrase is a part of what a line says, shown on a line of its own where all
// of them together do not fit.
type phrase struct {
	text string // printable
	tone tone
}

// line is one step of one record, told to a person; not yet laid out.
type line struct {
	at      time.Time
	record  string // partition/offset on the main topic; empty in a summary
	what    string // what a person calls the record
	stage   string
	attempt int
	said    []phrase
}

// view turns the engine's events into lines. It knows the time only from them
// and from tick, and has no effects.
type view struct {
	label func(place) string

	begun   map[string]*begun   // deliveries without a result, by record id
	waiting map[string]struct{} // ids of records in a tier
	told    tally
}

// begun is a delivery that has no result yet.
type begun struct {
	event engine.Event
	told  bool // a line says that it was received
}

// tally is what has been told so far.
type tally struct {
	handled, afterRetry, dropped, failed, dead int
	unseen                                     uint64 // steps that were lost before they could be told
}

const (
	// patience is how long a delivery may take before its beginning is told by
	// itself rather than together with its result.
	patience = 250 * time.Millisecond
	// maxFollowed bounds both of the view's maps, in records. Beyond it a
	// record's duration is unknown, or it is missing in the number of those
	// that wait.
	maxFollowed = 10_000
	// maxSaid bounds a text that comes from a handler, in cells.
	maxSaid = 300
)

func newView(label func(place) string) *view {
	return &view{label: label, begun: make(map[string]*begun), waiting: make(map[string]struct{})}
}

// event tells one step. A delivery that has just begun on the main stage has
// no line yet: it has one with its result, or by tick.
func (v *view) event(e engine.Event) []line {
	switch e.Kind {
	case engine.EventDelivered:
		return v.delivered(e)
	case engine.EventAcked:
		v.told.handled++
		if e.Attempt > 1 {
			v.told.afterRetry++
		}
		return v.result(e, phrase{v.doneText(e), doneTone(e)})
	case engine.EventDropped:
		v.told.dropped++
		return v.result(e, phrase{"dropped on purpose" + because(e.Message), plain})
	case engine.EventRetried:
		v.told.failed++
		return v.result(e, phrase{failure(e), warn},
			phrase{fmt.Sprintf("→ waits in %s until %s", shortTopic(e), clock(e.Due, e.At)), warn})
	case engine.EventDead:
		v.told.dead++
		return v.result(e, phrase{failure(e), bad}, phrase{"→ DLQ: " + whyDead(e), bad})
	default:
		return []line{v.line(e, phrase{"passed over: it belongs to another group", subtle})}
	}
}

func (v *view) delivered(e engine.Event) []line {
	delete(v.waiting, e.ID)
	before, again := v.begun[e.ID]
	again = again && before.event.Attempt == e.Attempt
	if len(v.begun) < maxFollowed {
		v.begun[e.ID] = &begun{event: e, told: again || e.Stage != "main"}
	}
	switch {
	case again:
		return []line{v.line(e, phrase{"delivered once more: the handler gave no answer", warn})}
	case e.Stage == "replay":
		return []line{v.line(e, phrase{"replayed from the DLQ", back})}
	case e.Stage != "main":
		return []line{v.line(e, phrase{"came back " + punctuality(e), back})}
	}
	return nil
}

// result ends what delivered began. The broker's answer to a forward may come
// after the record is back from its tier: then the next delivery goes on.
func (v *view) result(e engine.Event, said ...phrase) []line {
	if b, ok := v.begun[e.ID]; ok && b.event.Attempt > e.Attempt {
		return []line{v.line(e, said...)}
	}
	delete(v.begun, e.ID)
	delete(v.waiting, e.ID)
	if e.Kind == engine.EventRetried && len(v.waiting) < maxFollowed {
		v.waiting[e.ID] = struct{}{}
	}
	return []line{v.line(e, said...)}
}

// tick tells of deliveries that take long.
func (v *view) tick(now time.Time) []line {
	var lines []line
	for _, b := range v.begun {
		if !b.told && now.Sub(b.event.At) >= patience {
			b.told = true
			lines = append(lines, v.line(b.event, phrase{"received, no result yet", plain}))
		}
	}
	slices.SortFunc(lines, func(a, b line) int {
		return cmp.Or(a.at.Compare(b.at), strings.Compare(a.record, b.record))
	})
	return lines
}

// summary sums up what has been told; lead is how it begins.
func (v *view) summary(lead string, now time.Time) line {
	t := v.told
	text := fmt.Sprintf("%s: %d handled", lead, t.handled)
	if t.afterRetry > 0 {
		text += fmt.Sprintf(" (%d of them after a retry)", t.afterRetry)
	}
	if t.dropped > 0 {
		text += fmt.Sprintf(", %d dropped", t.dropped)
	}
	text += fmt.Sprintf(", %d sent to a retry, %d waiting there, %d in the DLQ", t.failed, len(v.waiting), t.dead)
	if t.unseen > 0 {
		text += fmt.Sprintf("; too fast to be told or counted: %s", count(int(t.unseen), "step", "steps"))
	}
	return line{at: now, said: []phrase{{text, subtle}}}
}

func (v *view) line(e engine.Event, said ...phrase) line {
	return line{
		at:      e.At,
		record:  fmt.Sprintf("%d/%d", e.Partition, e.Offset),
		what:    v.name(e),
		stage:   e.Stage,
		attempt: e.Attempt,
		said:    said,
	}
}

// name is the record's label, else its key.
func (v *view) name(e engine.Event) string {
	if l := v.label(place{e.Topic, e.Partition, e.Offset}); l != "" {
		return printable.Line(l)
	}
	if e.Key == nil {
		return "no key"
	}
	return "key " + printable.Line(string(e.Key))
}

func (v *view) doneText(e engine.Event) string {
	b, ok := v.begun[e.ID]
	if !ok || b.event.Attempt != e.Attempt {
		return "done"
	}
	text := "done in " + inWords(e.At.Sub(b.event.At))
	if !b.told {
		return "received, " + text
	}
	return text
}

// doneTone leaves the ordinary uncoloured, so that the rest stands out.
func doneTone(e engine.Event) tone {
	if e.Attempt > 1 {
		return good
	}
	return plain
}

// failure says in words what the handler's answer was.
func failure(e engine.Event) string {
	said := shorten(printable.Line(e.Message), maxSaid)
	switch plugin.Reason(e.Class) {
	case plugin.ReasonTransient, plugin.ReasonPermanent:
		return "failed: " + cmp.Or(said, printable.Line(e.Code), "no reason given")
	case plugin.ReasonPoison:
		return "cannot be read" + because(e.Message)
	case plugin.ReasonPanic:
		return "the handler panicked" + because(e.Message)
	case plugin.ReasonTimeout:
		return "took too long" + because(e.Message)
	case plugin.ReasonHandlerCrash:
		return "ends the handler's process" + because(e.Message)
	case plugin.ReasonOversize:
		return "too large" + because(e.Message)
	}
	return "failed (" + printable.Line(e.Class) + ")" + because(e.Message)
}

func because(message string) string {
	if message == "" {
		return ""
	}
	return ": " + shorten(printable.Line(message), maxSaid)
}

// whyDead says why there is no further retry.
func whyDead(e engine.Event) string {
	switch plugin.Reason(e.Class) {
	case plugin.ReasonTransient, plugin.ReasonTimeout:
		return fmt.Sprintf("the %s delivery was the last", ordinal(e.Attempt))
	case plugin.ReasonPoison:
		return "a poison pill, no retry"
	case plugin.ReasonPermanent:
		return "permanent, no retry"
	}
	return "no retry for this (" + printable.Line(e.Class) + ")"
}

// punctuality compares a delivery with when it was due.
func punctuality(e engine.Event) string {
	late := e.At.Sub(e.Due)
	switch {
	case e.Due.IsZero():
		return "at once"
	case late < 0:
		return inWords(-late) + " before it was due"
	case late < time.Millisecond:
		return "when it was due"
	}
	return inWords(late) + " after it was due"
}

// shortTopic leaves out what all topics of a line begin with.
func shortTopic(e engine.Event) string {
	return printable.Line(strings.TrimPrefix(e.To, e.Topic+"."))
}

// clock is a time of day, with the date where it is another day than now's.
func clock(t, now time.Time) string {
	if y, m, d := now.Date(); !t.Before(time.Date(y, m, d+1, 0, 0, 0, 0, now.Location())) {
		return t.In(now.Location()).Format("2 Jan 15:04")
	}
	return t.In(now.Location()).Format(clockLayout)
}

// clockLayout is a time of day, to a tenth of a second.
const clockLayout = "15:04:05.0"
