// Package history is a record's history in headers: what kconsume writes on
// each record that it forwards, and reads again on its own topics.
package history

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kconsume/kconsume/plugin"
	"github.com/segmentio/kafka-go"
)

// Names of the headers that we put on forwarded records. Numbers are decimal
// text, times unix milliseconds.
const (
	HeaderAttempts      = "X-Retry-Attempts" // failed deliveries so far
	HeaderDue           = "X-Retry-Due"
	HeaderGroup         = "X-Retry-Group" // the group that it belongs to
	HeaderOrigTopic     = "X-Original-Topic"
	HeaderOrigPartition = "X-Original-Partition"
	HeaderOrigOffset    = "X-Original-Offset"
	HeaderOrigTimestamp = "X-Original-Timestamp"
	HeaderFirstFailure  = "X-First-Failure-Time"
	HeaderErrorClass    = "X-Error-Class"
	HeaderErrorCode     = "X-Error-Code"
	HeaderErrorMessage  = "X-Error-Message"
	HeaderErrorTime     = "X-Error-Time"
	HeaderHandler       = "X-Handler"
	HeaderRecordID      = "X-Record-Id"
	HeaderReplayID      = "X-Replay-Id"
	HeaderReplayCount   = "X-Replay-Count"
	HeaderTraceparent   = "X-Retry-Traceparent" // W3C traceparent of the last delivery's span
)

// Bounds of what our headers may hold, in bytes, and of numbers we believe.
const (
	maxHeaderMessage    = 1024 // X-Error-Message
	maxHeaderWord       = 128  // X-Error-Class, X-Error-Code, X-Handler
	maxHeaderIdentifier = 512  // X-Record-Id, X-Replay-Id
	maxHeaderAttempts   = 1 << 20
	sizeTraceparent     = 55 // of the version that we write
)

// Origin is where a record first was.
type Origin struct {
	Topic     string
	Partition int32
	Offset    int64
	Timestamp int64 // unix ms
}

// Meta is what our headers say of a record. Its zero value is a record that has
// not failed yet.
type Meta struct {
	Group        string
	Failed       int
	Due          int64 // unix ms, 0 = none
	Origin       Origin
	FirstFailure int64 // unix ms, 0 = none
	Class        string
	Code         string
	Message      string
	ErrorTime    int64
	Handler      string
	RecordID     string
	ReplayID     string
	ReplayCount  int
	Trace        string // traceparent of the span of the last delivery, "" = it had none
}

// Ours reports whether a header name is one of those above.
func Ours(name string) bool {
	if !strings.HasPrefix(name, "X-") {
		return false
	}
	switch name {
	case HeaderAttempts, HeaderDue, HeaderGroup, HeaderOrigTopic, HeaderOrigPartition, HeaderOrigOffset,
		HeaderOrigTimestamp, HeaderFirstFailure, HeaderErrorClass, HeaderErrorCode, HeaderErrorMessage,
		HeaderErrorTime, HeaderHandler, HeaderRecordID, HeaderReplayID, HeaderReplayCount, HeaderTraceparent:
		return true
	}
	return false
}

// Own are the record's own headers, in order, ours removed, and what stands
// behind ours in other dialects. It is the same slice where there is nothing to
// remove.
func Own(hs []plugin.Header) []plugin.Header {
	for i := range hs {
		if !Ours(hs[i].Key) {
			continue
		}
		own := append([]plugin.Header(nil), hs[:i]...)
		for _, h := range hs[i+1:] {
			if !Ours(h.Key) && !foreign(h.Key) {
				own = append(own, h)
			}
		}
		return own
	}
	return hs
}

// Read reads our headers; of repeated ones the last counts, as we write
// each only once. at is where the record lies: what is missing or malformed
// falls back to it. maxAttempts bounds the counter, so that a forged one
// neither ends a record early without a delivery nor makes it endless.
func Read(hs []plugin.Header, at Origin, maxAttempts int) Meta {
	m := Meta{Origin: at}
	for i := range hs {
		if Ours(hs[i].Key) {
			m.read(hs[i].Key, string(hs[i].Value))
		}
	}
	m.Failed = max(0, min(m.Failed, maxAttempts-1))
	return m
}

func (m *Meta) read(name, value string) {
	switch name {
	case HeaderAttempts:
		m.Failed = int(number(value, 0, maxHeaderAttempts))
	case HeaderDue:
		m.Due = number(value, 0, 1<<62)
	case HeaderGroup:
		m.Group = value
	case HeaderOrigTopic:
		if value != "" && len(value) <= 249 {
			m.Origin.Topic = value
		}
	case HeaderOrigPartition:
		m.Origin.Partition = int32(number(value, int64(m.Origin.Partition), 1<<31-1))
	case HeaderOrigOffset:
		m.Origin.Offset = number(value, m.Origin.Offset, 1<<62)
	case HeaderOrigTimestamp:
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			m.Origin.Timestamp = n
		}
	case HeaderFirstFailure:
		m.FirstFailure = number(value, 0, 1<<62)
	case HeaderRecordID:
		if len(value) <= maxHeaderIdentifier {
			m.RecordID = value
		}
	case HeaderReplayID:
		if len(value) <= maxHeaderIdentifier {
			m.ReplayID = value
		}
	case HeaderReplayCount:
		m.ReplayCount = int(number(value, 0, 1<<30))
	case HeaderErrorClass:
		m.Class = cut(value, maxHeaderWord)
	case HeaderErrorCode:
		m.Code = cut(value, maxHeaderWord)
	case HeaderErrorMessage:
		m.Message = cut(value, maxHeaderMessage)
	case HeaderErrorTime:
		m.ErrorTime = number(value, 0, 1<<62)
	case HeaderHandler:
		m.Handler = cut(value, maxHeaderWord)
	case HeaderTraceparent:
		if len(value) == sizeTraceparent && (plugin.Trace{Parent: value}).SpanContext().IsValid() {
			m.Trace = value
		}
	}
}

// number parses a decimal of 0..most, else it is the fallback.
func number(s string, fallback, most int64) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > most {
		return fallback
	}
	return n
}

// Replayed is what a copy of a dead letter says that is sent to be handled anew
// under a replay's id: who it is and since when it fails, and no attempt yet.
func (m Meta) Replayed(id string) Meta {
	m.RecordID, m.ReplayID, m.ReplayCount = m.ID(), id, m.ReplayCount+1
	m.Failed, m.Due, m.ErrorTime = 0, 0, 0
	m.Class, m.Code, m.Message, m.Handler = "", "", "", ""
	return m
}

// ID is the record's stable id.
func (m *Meta) ID() string {
	if m.RecordID != "" {
		return m.RecordID
	}
	return m.Origin.ID()
}

func (o *Origin) ID() string {
	return string(plugin.AppendID(nil, o.Topic, o.Partition, o.Offset, o.Timestamp))
}

// headers are a forwarded record's headers: its own, then ours, each
// once. Ours have a bounded size whatever a handler said. bare leaves the
// diagnostics out: for a record that is too large with them.
func (m *Meta) Headers(own []plugin.Header, bare bool) []kafka.Header {
	out := make([]kafka.Header, 0, len(own)+17)
	for _, h := range own {
		out = append(out, kafka.Header{Key: h.Key, Value: h.Value})
	}
	text := func(name, value string) {
		if value != "" {
			out = append(out, kafka.Header{Key: name, Value: []byte(value)})
		}
	}
	num := func(name string, n int64) { text(name, strconv.FormatInt(n, 10)) }
	num(HeaderAttempts, int64(m.Failed))
	if m.Due > 0 {
		num(HeaderDue, m.Due)
	}
	text(HeaderGroup, m.Group)
	text(HeaderOrigTopic, m.Origin.Topic)
	num(HeaderOrigPartition, int64(m.Origin.Partition))
	num(HeaderOrigOffset, m.Origin.Offset)
	num(HeaderOrigTimestamp, m.Origin.Timestamp)
	if m.FirstFailure > 0 {
		num(HeaderFirstFailure, m.FirstFailure)
	}
	text(HeaderErrorClass, m.Class)
	if !bare {
		text(HeaderErrorCode, cut(m.Code, maxHeaderWord))
		text(HeaderErrorMessage, cut(m.Message, maxHeaderMessage))
		text(HeaderTraceparent, m.Trace)
	}
	if m.ErrorTime > 0 {
		num(HeaderErrorTime, m.ErrorTime)
	}
	text(HeaderHandler, cut(m.Handler, maxHeaderWord))
	text(HeaderRecordID, m.ID())
	text(HeaderReplayID, m.ReplayID)
	if m.ReplayCount > 0 {
		num(HeaderReplayCount, int64(m.ReplayCount))
	}
	return out
}

// cut makes valid UTF-8 of at most n bytes, ended on a rune's boundary.
func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
