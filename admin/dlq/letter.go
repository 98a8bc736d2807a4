package dlq

import (
	"bytes"
	"strings"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
	"github.com/kconsume/kconsume/admin/export"
	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/engine/record"
	"github.com/kconsume/kconsume/engine/topics"
	"github.com/kconsume/kconsume/plugin"
)

// maxFailed is the most attempts that a dead letter is believed to have had.
const maxFailed = 1 << 20

// glance is what a scan looks at first: views of the record's own bytes.
type glance struct {
	group, class, message, handler []byte
	known                          bool // it says of what group it is
	ours                           bool // by our headers, not another tool's
}

func (g *glance) look(r *record.Record) {
	*g = glance{}
	for i := range r.Headers {
		h := &r.Headers[i]
		switch h.Key {
		case history.HeaderGroup:
			g.group, g.known, g.ours = h.Value, true, true
		case history.HeaderErrorClass:
			g.class = h.Value
		case history.HeaderErrorMessage:
			g.message = h.Value
		case history.HeaderHandler:
			g.handler = h.Value
		}
	}
	if !g.ours {
		m := history.ReadForeign(r.Headers, history.Origin{})
		*g = glance{group: []byte(m.Group), class: []byte(m.Class), message: []byte(m.Message), known: m.Group != ""}
	}
}

// printed is a fingerprint and what it was made of.
type printed struct{ print, class, normal string }

// printer makes fingerprints, and remembers those of the latest texts. One
// goroutine uses it.
type printer struct {
	known map[string]printed
	key   []byte
}

// maxPrinted bounds how many texts a printer remembers.
const maxPrinted = 4096

func (p *printer) of(class, message []byte) printed {
	p.key = append(append(append(p.key[:0], class...), 0), message...)
	if got, ok := p.known[string(p.key)]; ok {
		return got
	}
	if p.known == nil || len(p.known) >= maxPrinted {
		p.known = map[string]printed{}
	}
	c := strings.ToValidUTF8(string(class), "\uFFFD")
	normal := Normalise(string(message))
	got := printed{Fingerprint(c, normal), c, normal}
	p.known[string(p.key)] = got
	return got
}

// letter is a dead letter that was read. rec, if set, is a copy of its own.
type letter struct {
	id    state.ID
	came  int64 // unix ms
	meta  history.Meta
	print string
	size  int
	rec   *record.Record
	trace string
	ours  bool // our headers are on it, not another tool's
}

func (p *printer) letter(life topics.ID, topic string, partition int32, r *record.Record) letter {
	var g glance
	g.look(r)
	at := history.Origin{Topic: topic, Partition: partition, Offset: r.Offset, Timestamp: r.Timestamp}
	l := letter{came: r.Timestamp, ours: g.ours, print: p.of(g.class, g.message).print}
	if l.ours {
		l.meta = history.Read(r.Headers, at, maxFailed)
	} else {
		l.meta = history.ReadForeign(r.Headers, at)
	}
	l.meta.RecordID = l.meta.ID()
	l.id = state.ID{Partition: partition, Offset: r.Offset, Identity: state.Identity(life, l.meta.RecordID, l.meta.ErrorTime)}
	l.size = len(r.Key) + len(r.Value)
	for i := range r.Headers {
		h := &r.Headers[i]
		l.size += len(h.Key) + len(h.Value)
		if h.Key == "traceparent" {
			l.trace = strings.ToValidUTF8(string(h.Value), "\uFFFD")
		}
	}
	return l
}

// own are the headers that a copy takes along.
func (l *letter) own() []plugin.Header {
	if l.ours {
		return history.Own(l.rec.Headers)
	}
	return history.WithoutForeign(l.rec.Headers)
}

func (l *letter) position() Position { return Position{l.id.Partition, l.id.Offset} }

// keep makes a copy of the record, whose bytes are the scan's.
func (l *letter) keep(r *record.Record) {
	own := &record.Record{Offset: r.Offset, Timestamp: r.Timestamp, Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value)}
	for _, h := range r.Headers {
		own.Headers = append(own.Headers, plugin.Header{Key: strings.Clone(h.Key), Value: bytes.Clone(h.Value)})
	}
	l.rec = own
}

// message is the letter as it is shown.
func (l *letter) message(topic string, r state.Record, known bool, out state.Out, payload bool) Message {
	m := Message{
		Position: l.position(), Identity: l.id.Identity, Topic: topic, Time: msTime(l.came), ID: text(l.meta.RecordID), Group: text(l.meta.Group),
		Origin:   Origin{text(l.meta.Origin.Topic), l.meta.Origin.Partition, l.meta.Origin.Offset, msTime(l.meta.Origin.Timestamp)},
		Attempts: l.meta.Failed, Class: l.meta.Class, Code: l.meta.Code, Error: l.meta.Message, Handler: l.meta.Handler,
		FirstFailed: msTime(l.meta.FirstFailure), LastFailed: msTime(l.meta.ErrorTime), Fingerprint: l.print,
		Replays: l.meta.ReplayCount, Size: l.size, Traceparent: l.trace, State: State{Status: StatusNew},
	}
	if known {
		m.State = stateOf(l.id, r, out)
	}
	if payload && l.rec != nil {
		m.Payload = &export.Record{Topic: topic, Partition: l.id.Partition, Offset: l.id.Offset, Timestamp: l.came, Key: l.rec.Key, Value: l.rec.Value, Headers: l.rec.Headers}
	}
	return m
}

// stateOf is what became of a record as it is shown.
func stateOf(id state.ID, r state.Record, out state.Out) State {
	s := State{Status: r.Status, At: msTime(r.At), By: r.By, Reason: r.Reason, Job: r.Job, ReplayID: r.Replay}
	if r.Rec.Status == state.Replayed {
		s.Sent = &Place{r.Target, Position{id.Partition, r.Rec.Offset}}
	}
	if out.Status != "" && Status(out.Status) == r.Status {
		s.At, s.Handler = msTime(out.At), text(out.Handler)
		if out.Again != nil {
			s.Again = &Position{out.Again.Partition, out.Again.Offset}
		}
	}
	return s
}

// msTime is a time of unix milliseconds; none, and what no calendar has, is zero.
func msTime(ms int64) time.Time {
	const year9999 = 253402300799999
	if ms <= 0 || ms > year9999 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// text makes bytes from the wire fit to be shown.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
