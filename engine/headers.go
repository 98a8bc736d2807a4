package engine

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kconsume/kconsume/engine/backlog"
	"github.com/kconsume/kconsume/plugin"
	"github.com/segmentio/kafka-go"
)

// Names of the headers that we put on forwarded records. Numbers are decimal
// text, times unix milliseconds.
const (
	headerAttempts      = "X-Retry-Attempts" // failed deliveries so far
	headerDue           = backlog.HeaderDue
	headerGroup         = backlog.HeaderGroup
	headerOrigTopic     = "X-Original-Topic"
	headerOrigPartition = "X-Original-Partition"
	headerOrigOffset    = "X-Original-Offset"
	headerOrigTimestamp = "X-Original-Timestamp"
	headerFirstFailure  = "X-First-Failure-Time"
	headerErrorClass    = "X-Error-Class"
	headerErrorCode     = "X-Error-Code"
	headerErrorMessage  = "X-Error-Message"
	headerErrorTime     = "X-Error-Time"
	headerHandler       = "X-Handler"
	headerRecordID      = "X-Record-Id"
	headerReplayID      = "X-Replay-Id"
	headerReplayCount   = "X-Replay-Count"
)

// Bounds of what our headers may hold, in bytes, and of numbers we believe.
const (
	maxHeaderMessage    = 1024 // X-Error-Message
	maxHeaderWord       = 128  // X-Error-Class, X-Error-Code, X-Handler
	maxHeaderIdentifier = 512  // X-Record-Id, X-Replay-Id
	maxHeaderAttempts   = 1 << 20
)

// origin is where a record first was.
type origin struct {
	topic     string
	partition int32
	offset    int64
	timestamp int64 // unix ms
}

// meta is what our headers say of a record. Its zero value is a record that has
// not failed yet.
type meta struct {
	group        string
	failed       int
	due          int64 // unix ms, 0 = none
	origin       origin
	firstFailure int64 // unix ms, 0 = none
	class        string
	code         string
	message      string
	errorTime    int64
	handler      string
	recordID     string
	replayID     string
	replayCount  int
}

// ours reports whether a header name is one of those above.
func ours(name string) bool {
	if !strings.HasPrefix(name, "X-") {
		return false
	}
	switch name {
	case headerAttempts, headerDue, headerGroup, headerOrigTopic, headerOrigPartition, headerOrigOffset,
		headerOrigTimestamp, headerFirstFailure, headerErrorClass, headerErrorCode, headerErrorMessage,
		headerErrorTime, headerHandler, headerRecordID, headerReplayID, headerReplayCount:
		return true
	}
	return false
}

// ownHeaders are the record's own headers, in order, ours removed. It is the
// same slice where there is nothing to remove.
func ownHeaders(hs []plugin.Header) []plugin.Header {
	for i := range hs {
		if !ours(hs[i].Key) {
			continue
		}
		own := append([]plugin.Header(nil), hs[:i]...)
		for _, h := range hs[i+1:] {
			if !ours(h.Key) {
				own = append(own, h)
			}
		}
		return own
	}
	return hs
}

// readMeta reads our headers; of repeated ones the last counts, as we write
// each only once. at is where the record lies: what is missing or malformed
// falls back to it. maxAttempts bounds the counter, so that a forged one
// neither ends a record early without a delivery nor makes it endless.
func readMeta(hs []plugin.Header, at origin, maxAttempts int) meta {
	m := meta{origin: at}
	for i := range hs {
		if ours(hs[i].Key) {
			m.read(hs[i].Key, string(hs[i].Value))
		}
	}
	m.failed = max(0, min(m.failed, maxAttempts-1))
	return m
}

func (m *meta) read(name, value string) {
	switch name {
	case headerAttempts:
		m.failed = int(number(value, 0, maxHeaderAttempts))
	case headerDue:
		m.due = number(value, 0, 1<<62)
	case headerGroup:
		m.group = value
	case headerOrigTopic:
		if value != "" && len(value) <= 249 {
			m.origin.topic = value
		}
	case headerOrigPartition:
		m.origin.partition = int32(number(value, int64(m.origin.partition), 1<<31-1))
	case headerOrigOffset:
		m.origin.offset = number(value, m.origin.offset, 1<<62)
	case headerOrigTimestamp:
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			m.origin.timestamp = n
		}
	case headerFirstFailure:
		m.firstFailure = number(value, 0, 1<<62)
	case headerRecordID:
		if len(value) <= maxHeaderIdentifier {
			m.recordID = value
		}
	case headerReplayID:
		if len(value) <= maxHeaderIdentifier {
			m.replayID = value
		}
	case headerReplayCount:
		m.replayCount = int(number(value, 0, 1<<30))
	case headerErrorClass:
		m.class = cut(value, maxHeaderWord)
	case headerErrorCode:
		m.code = cut(value, maxHeaderWord)
	case headerErrorMessage:
		m.message = cut(value, maxHeaderMessage)
	case headerErrorTime:
		m.errorTime = number(value, 0, 1<<62)
	case headerHandler:
		m.handler = cut(value, maxHeaderWord)
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

// afterFailure is what a forward of the record says once delivery has failed.
func (m meta) afterFailure(group string, d decision, v *plugin.Verdict, handler string, now time.Time) meta {
	m.group, m.failed = group, d.failed
	m.due = 0
	if d.route == routeRetry {
		m.due = d.due.UnixMilli()
	}
	if m.firstFailure == 0 {
		m.firstFailure = now.UnixMilli()
	}
	m.class, m.code, m.message = string(d.reason), v.Code, v.Message
	m.errorTime, m.handler = now.UnixMilli(), handler
	return m
}

// id is the record's stable id.
func (m *meta) id() string {
	if m.recordID != "" {
		return m.recordID
	}
	return m.origin.id()
}

func (o *origin) id() string {
	return string(plugin.AppendID(nil, o.topic, o.partition, o.offset, o.timestamp))
}

// forwardHeaders are a forwarded record's headers: its own, then ours, each
// once. Ours have a bounded size whatever a handler said. bare leaves the
// diagnostics out: for a record that is too large with them.
func forwardHeaders(own []plugin.Header, m *meta, bare bool) []kafka.Header {
	out := make([]kafka.Header, 0, len(own)+16)
	for _, h := range own {
		out = append(out, kafka.Header{Key: h.Key, Value: h.Value})
	}
	text := func(name, value string) {
		if value != "" {
			out = append(out, kafka.Header{Key: name, Value: []byte(value)})
		}
	}
	num := func(name string, n int64) { text(name, strconv.FormatInt(n, 10)) }
	num(headerAttempts, int64(m.failed))
	if m.due > 0 {
		num(headerDue, m.due)
	}
	text(headerGroup, m.group)
	text(headerOrigTopic, m.origin.topic)
	num(headerOrigPartition, int64(m.origin.partition))
	num(headerOrigOffset, m.origin.offset)
	num(headerOrigTimestamp, m.origin.timestamp)
	if m.firstFailure > 0 {
		num(headerFirstFailure, m.firstFailure)
	}
	text(headerErrorClass, m.class)
	if !bare {
		text(headerErrorCode, cut(m.code, maxHeaderWord))
		text(headerErrorMessage, cut(m.message, maxHeaderMessage))
	}
	if m.errorTime > 0 {
		num(headerErrorTime, m.errorTime)
	}
	text(headerHandler, cut(m.handler, maxHeaderWord))
	text(headerRecordID, m.id())
	text(headerReplayID, m.replayID)
	if m.replayCount > 0 {
		num(headerReplayCount, int64(m.replayCount))
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
