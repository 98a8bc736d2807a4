package host

import (
	"math"
	"time"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/internal/wire"
)

// recordLimit is the largest delivery handed to a handler, in bytes on the
// wire: what every language's gRPC library is set to receive.
const recordLimit = 64 << 20

// What is kept of a handler's texts, in bytes; the rest is cut off.
const (
	nameLimit    = 256
	codeLimit    = 256
	messageLimit = 4 << 10
	causeLimit   = 1 << 10
	stackLimit   = 16 << 10
	causesLimit  = 16 // in number
	listLimit    = 64 // topics and capabilities of a Hello, in number
)

// codeBadAnswer is the code of a delivery whose answer is none.
const codeBadAnswer = "bad_answer"

// sizeOf is the number of bytes that a delivery takes on the wire, rounded up.
func sizeOf(d *plugin.Delivery) int {
	const fixed, perHeader = 192, 24 // an id that is made on the way included
	m := &d.Message
	n := fixed + len(m.ID) + 2*len(m.Topic) + len(m.Stage) + len(m.Key) + len(m.Value) + len(m.Trace.Parent) + len(m.Trace.State)
	for i := range m.Headers {
		n += perHeader + len(m.Headers[i].Key) + len(m.Headers[i].Value)
	}
	return n
}

// fill writes a delivery into a record that has room for its headers.
func fill(r *wire.Record, d *plugin.Delivery, number uint64) {
	m := &d.Message
	r.Handle, r.ID, r.Topic, r.Partition, r.Offset = number, m.ID, m.Topic, m.Partition, m.Offset
	r.TimeMS = unixMS(m.Time)
	r.Key, r.Value = m.Key, m.Value
	for i := range m.Headers {
		r.Headers[i] = wire.Header(m.Headers[i])
	}
	r.Attempt, r.MaxAttempts, r.Stage = count(m.Attempt), count(m.MaxAttempts), m.Stage
	r.Trace, r.TraceState = m.Trace.Parent, m.Trace.State
	r.TimeoutMS = timeoutMS(d.Timeout)
}

// unixMS turns the zero time into Kafka's -1, "no timestamp".
func unixMS(t time.Time) int64 {
	if t.IsZero() {
		return -1
	}
	return t.UnixMilli()
}

func count(n int) uint32 { return uint32(max(0, min(n, math.MaxUint32))) }

// timeoutMS rounds up: the shortest timeout must not become none.
func timeoutMS(d time.Duration) uint32 {
	if d <= 0 {
		return 0
	}
	return uint32(min((d-1)/time.Millisecond+1, wire.MaxTimeoutMS))
}

// verdictOf reads a handler's answer. One without a class that we know is no
// acknowledgement: it costs an attempt, unless it says that we cancelled it.
func verdictOf(w *wire.Verdict) plugin.Verdict {
	v := plugin.Verdict{
		Code:       clip(w.Code, codeLimit),
		Message:    clip(w.Message, messageLimit),
		RetryAfter: time.Duration(min(w.RetryAfterMS, uint64(math.MaxInt64/time.Millisecond))) * time.Millisecond,
		Causes:     clipAll(w.Causes, causesLimit, causeLimit),
		Stack:      clip(w.Stack, stackLimit),
		Rule:       clip(w.Rule, codeLimit),
	}
	switch w.Class {
	case wire.ClassAck:
		v.Class, v.Emitted = plugin.ClassAck, emitted(w.Emitted)
	case wire.ClassDrop:
		v.Class = plugin.ClassDrop
	case wire.ClassTransient:
		v.Class, v.Reason = plugin.ClassTransient, reasonOf(w.Reason, plugin.ReasonTransient)
	case wire.ClassPermanent:
		v.Class, v.Reason = plugin.ClassPermanent, reasonOf(w.Reason, plugin.ReasonPermanent)
	default:
		if w.Class == wire.ClassUnspecified && w.Rule == plugin.RuleCancelled {
			return plugin.Verdict{Rule: plugin.RuleCancelled, Message: v.Message}
		}
		return badAnswer("the handler's answer has no class that kconsume knows")
	}
	return v
}

func badAnswer(message string) plugin.Verdict {
	return plugin.Verdict{
		Class: plugin.ClassTransient, Reason: plugin.ReasonTransient,
		Code: codeBadAnswer, Message: message, Rule: codeBadAnswer,
	}
}

// reasonOf admits the reasons that a handler can know of; handler_crash and
// oversize are the host's own.
func reasonOf(word string, own plugin.Reason) plugin.Reason {
	switch r := plugin.Reason(word); r {
	case plugin.ReasonTransient, plugin.ReasonPermanent, plugin.ReasonPoison, plugin.ReasonPanic, plugin.ReasonTimeout:
		return r
	}
	return own
}

func emitted(list []wire.Emit) []plugin.Record {
	if len(list) == 0 {
		return nil
	}
	records := make([]plugin.Record, len(list))
	for i := range list {
		e := &list[i]
		records[i] = plugin.Record{Topic: e.Topic, Key: e.Key, Value: e.Value}
		for _, h := range e.Headers {
			records[i].Headers = append(records[i].Headers, plugin.Header(h))
		}
	}
	return records
}

func clipAll(texts []string, number, bytes int) []string {
	texts = texts[:min(number, len(texts))]
	for i := range texts {
		texts[i] = clip(texts[i], bytes)
	}
	return texts
}

// Hello is what a handler says of itself. Its texts are any bytes, cut to
// bounds.
type Hello struct {
	SDK, Name, Version string
	Topics             []string
	MaxRecords         int // in flight, 0 = no limit of its own
	MaxBytes           int // in flight, 0 = no limit of its own
	// BeatsMayWait: it has one thread, and its beats wait while it works.
	BeatsMayWait bool
	Capabilities []string
	Concurrency  int // calls that it runs at once at most, 0 = as many as it is told
}

func helloOf(w *wire.Hello) Hello {
	return Hello{
		SDK: clip(w.SDK, nameLimit), Name: clip(w.Name, nameLimit), Version: clip(w.Version, nameLimit),
		Topics:       clipAll(w.Topics, listLimit, nameLimit),
		MaxRecords:   int(w.MaxRecords),
		MaxBytes:     int(min(w.MaxBytes, math.MaxInt)),
		BeatsMayWait: w.BeatsMayWait,
		Capabilities: clipAll(w.Capabilities, listLimit, nameLimit),
		Concurrency:  int(min(w.Concurrency, math.MaxInt32)),
	}
}

// calls is how many of most calls the handler runs at once.
func (h *Hello) calls(most int) int {
	if h.Concurrency > 0 && h.Concurrency < most {
		return h.Concurrency
	}
	return most
}

// identity is how a handler is named in X-Handler.
func (h *Hello) identity() string { return h.Name + "@" + h.Version }
