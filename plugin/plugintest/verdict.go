package plugintest

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kconsume/kconsume/plugin"
)

// Verdict is the answer to one delivery. Its Want methods fail the test where it
// is another one, and tell all that it says; they return it, so that several can
// stand in a line:
//
//	h.Deliver(m).WantTransient().WantRule("sqlstate").WantCode("40001")
type Verdict struct {
	plugin.Verdict
	// Late: the deadline passed and the call runs on.
	Late bool

	record string
	t      TB
}

// String tells the verdict in a line.
func (v Verdict) String() string {
	if v.cancelled() {
		return "cancelled"
	}
	text := v.Class.String()
	if v.Reason != "" && string(v.Reason) != text {
		text += " (" + string(v.Reason) + ")"
	}
	if v.Rule != "" {
		text += " by rule " + strconv.Quote(v.Rule)
	}
	if v.RetryAfter > 0 {
		text += ", retry after " + v.RetryAfter.String()
	}
	if v.Late {
		text += ", late"
	}
	return text
}

func (v Verdict) cancelled() bool {
	return v.Class == plugin.ClassUnspecified && v.Rule == plugin.RuleCancelled
}

// WantAck: done, whether or not records were emitted.
func (v Verdict) WantAck() Verdict {
	v.t.Helper()
	return v.want(v.Class == plugin.ClassAck, "ack")
}

// WantTransient: to be tried again, a timeout included.
func (v Verdict) WantTransient() Verdict {
	v.t.Helper()
	return v.want(v.Class == plugin.ClassTransient, "transient")
}

// WantPermanent: a dead letter, a poison pill and a panic included.
func (v Verdict) WantPermanent() Verdict {
	v.t.Helper()
	return v.want(v.Class == plugin.ClassPermanent, "permanent")
}

// WantDrop: nothing to do, for this reason.
func (v Verdict) WantDrop(reason string) Verdict {
	v.t.Helper()
	return v.want(v.Class == plugin.ClassDrop && v.Message == reason, "drop, "+strconv.Quote(reason))
}

// WantPoison: the value cannot be decoded.
func (v Verdict) WantPoison() Verdict {
	v.t.Helper()
	return v.want(v.Class == plugin.ClassPermanent && v.Reason == plugin.ReasonPoison, "permanent (poison)")
}

// WantPanic: the handler panicked.
func (v Verdict) WantPanic() Verdict {
	v.t.Helper()
	return v.want(v.Class == plugin.ClassPermanent && v.Reason == plugin.ReasonPanic, "permanent (panic)")
}

// WantTimeout: the deadline passed.
func (v Verdict) WantTimeout() Verdict {
	v.t.Helper()
	return v.want(v.Class == plugin.ClassTransient && v.Reason == plugin.ReasonTimeout, "transient (timeout)")
}

// WantCancelled: no verdict, because the delivery was cancelled or handed back.
func (v Verdict) WantCancelled() Verdict {
	v.t.Helper()
	return v.want(v.cancelled(), "cancelled")
}

// WantRetryAfter: the handler asks for this wait.
func (v Verdict) WantRetryAfter(d time.Duration) Verdict {
	v.t.Helper()
	return v.want(v.Class == plugin.ClassTransient && v.RetryAfter == d, "transient, retry after "+d.String())
}

// WantRule: the classification rule that fired; see plugin.Classify.
func (v Verdict) WantRule(name string) Verdict {
	v.t.Helper()
	return v.want(v.Rule == name, "rule "+strconv.Quote(name))
}

// WantCode: the machine-readable word, such as an SQLSTATE.
func (v Verdict) WantCode(code string) Verdict {
	v.t.Helper()
	return v.want(v.Code == code, "code "+strconv.Quote(code))
}

// WantError: the message holds this text.
func (v Verdict) WantError(text string) Verdict {
	v.t.Helper()
	return v.want(strings.Contains(v.Message, text), "a message with "+strconv.Quote(text))
}

// WantEmitted: an acknowledgement with exactly these records, in this order. Null
// and empty are different.
func (v Verdict) WantEmitted(records ...plugin.Record) Verdict {
	v.t.Helper()
	same := v.Class == plugin.ClassAck && slices.EqualFunc(v.Emitted, records, sameRecord)
	return v.want(same, "ack, emitted:"+listOf(records))
}

func (v Verdict) want(ok bool, what string) Verdict {
	v.t.Helper()
	if !ok {
		v.t.Errorf("verdict on %s\n  want %s\n  got  %s%s", v.record, what, v, v.details())
	}
	return v
}

// stackLines is how much of a stack a failure shows.
const stackLines = 24

// details are what the verdict says besides its class, a line each.
func (v Verdict) details() string {
	var b strings.Builder
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "\n  %s: %s", name, strings.ReplaceAll(text, "\n", "\n    "))
		}
	}
	line("message", v.Message)
	line("code", v.Code)
	for _, c := range v.Causes {
		line("cause", c)
	}
	if v.Class == plugin.ClassAck {
		line("emitted", listOf(v.Emitted))
	}
	stack := strings.SplitN(v.Stack, "\n", stackLines+1)
	line("stack", strings.Join(stack[:min(len(stack), stackLines)], "\n"))
	return b.String()
}

func listOf(records []plugin.Record) string {
	if len(records) == 0 {
		return " none"
	}
	var b strings.Builder
	for _, r := range records {
		fmt.Fprintf(&b, "\n    to %s, key %s, value %s", r.Topic, quote(r.Key), quote(r.Value))
		for _, h := range r.Headers {
			fmt.Fprintf(&b, ", header %q=%s", h.Key, quote(h.Value))
		}
	}
	return b.String()
}

func quote(b []byte) string {
	if b == nil {
		return "null"
	}
	return strconv.Quote(string(b))
}

func sameRecord(a, b plugin.Record) bool {
	return a.Topic == b.Topic && same(a.Key, b.Key) && same(a.Value, b.Value) &&
		slices.EqualFunc(a.Headers, b.Headers, func(x, y plugin.Header) bool { return x.Key == y.Key && same(x.Value, y.Value) })
}

func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
