package host

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/internal/wire"
)

func TestVerdictOf(t *testing.T) {
	bad := badAnswer("the handler's answer has no class that kconsume knows")
	for _, c := range []struct {
		name string
		in   wire.Verdict
		want plugin.Verdict
	}{
		{"ack", wire.Verdict{Class: wire.ClassAck, Reason: "panic", Emitted: []wire.Emit{{Topic: "t", Key: []byte{}}}},
			plugin.Verdict{Class: plugin.ClassAck, Emitted: []plugin.Record{{Topic: "t", Key: []byte{}}}}},
		{"drop", wire.Verdict{Class: wire.ClassDrop, Message: "old"}, plugin.Verdict{Class: plugin.ClassDrop, Message: "old"}},
		{"transient", wire.Verdict{Class: wire.ClassTransient, Code: "503", RetryAfterMS: 1500},
			plugin.Verdict{Class: plugin.ClassTransient, Reason: plugin.ReasonTransient, Code: "503", RetryAfter: 1500 * time.Millisecond}},
		{"timeout", wire.Verdict{Class: wire.ClassTransient, Reason: "timeout"}, plugin.Verdict{Class: plugin.ClassTransient, Reason: plugin.ReasonTimeout}},
		{"panic", wire.Verdict{Class: wire.ClassPermanent, Reason: "panic", Stack: "s", Rule: "panic"},
			plugin.Verdict{Class: plugin.ClassPermanent, Reason: plugin.ReasonPanic, Stack: "s", Rule: "panic"}},
		{"bytes stay", wire.Verdict{Class: wire.ClassPermanent, Message: "bad \xff\xfe", Code: "\xc3("},
			plugin.Verdict{Class: plugin.ClassPermanent, Reason: plugin.ReasonPermanent, Message: "bad \xff\xfe", Code: "\xc3("}},
		{"made-up reason", wire.Verdict{Class: wire.ClassPermanent, Reason: "nonsense"}, plugin.Verdict{Class: plugin.ClassPermanent, Reason: plugin.ReasonPermanent}},
		{"host's reason", wire.Verdict{Class: wire.ClassTransient, Reason: "handler_crash"}, plugin.Verdict{Class: plugin.ClassTransient, Reason: plugin.ReasonTransient}},
		{"no class", wire.Verdict{Message: "x"}, bad},
		{"unknown class", wire.Verdict{Class: 17}, bad},
		{"negative class", wire.Verdict{Class: -1}, bad},
		{"unknown class, cancelled", wire.Verdict{Class: 17, Rule: "cancelled"}, bad},
		{"cancelled", wire.Verdict{Rule: "cancelled"}, plugin.Verdict{Rule: plugin.RuleCancelled}},
		{"no emitted records but with an ack", wire.Verdict{Class: wire.ClassDrop, Emitted: []wire.Emit{{Topic: "t"}}}, plugin.Verdict{Class: plugin.ClassDrop}},
		{"endless retry-after", wire.Verdict{Class: wire.ClassTransient, RetryAfterMS: math.MaxUint64},
			plugin.Verdict{Class: plugin.ClassTransient, Reason: plugin.ReasonTransient, RetryAfter: math.MaxInt64 / time.Millisecond * time.Millisecond}},
	} {
		if got := verdictOf(&c.in); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestTextsAreBounded(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	v := verdictOf(&wire.Verdict{Class: wire.ClassPermanent, Code: huge, Message: huge, Stack: huge, Rule: huge, Causes: make([]string, 1000)})
	if len(v.Code) != codeLimit || len(v.Message) != messageLimit || len(v.Stack) != stackLimit || len(v.Rule) != codeLimit || len(v.Causes) != causesLimit {
		t.Errorf("kept %d, %d, %d, %d bytes and %d causes", len(v.Code), len(v.Message), len(v.Stack), len(v.Rule), len(v.Causes))
	}
	h := helloOf(&wire.Hello{Name: huge, Topics: []string{huge}, Capabilities: make([]string, 1000), MaxBytes: math.MaxUint64})
	if len(h.Name) != nameLimit || len(h.Topics[0]) != nameLimit || len(h.Capabilities) != listLimit || h.MaxBytes != math.MaxInt {
		t.Errorf("Hello keeps %d and %d bytes, %d capabilities, max bytes %d", len(h.Name), len(h.Topics[0]), len(h.Capabilities), h.MaxBytes)
	}
}

func TestFill(t *testing.T) {
	d := plugin.Delivery{Handle: 7, Timeout: time.Microsecond, Message: plugin.Message{
		Topic: "t", Partition: -1, Offset: 9, Key: nil, Value: []byte{}, Attempt: 2, MaxAttempts: 3, Stage: "main", Trace: plugin.Trace{Parent: "00-1", State: "a=1"},
		Headers: []plugin.Header{{Key: "\xff", Value: nil}, {Key: "", Value: []byte{}}},
	}}
	var f wire.HostFrame
	fill(f.Add(2), &d, 42)
	want := wire.Record{Handle: 42, Topic: "t", Partition: -1, Offset: 9, TimeMS: -1, Value: []byte{}, Attempt: 2, MaxAttempts: 3, Stage: "main", TimeoutMS: 1, Trace: "00-1", TraceState: "a=1",
		Headers: []wire.Header{{Key: "\xff"}, {Value: []byte{}}}}
	if got := f.Records[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("record %+v, want %+v", got, want)
	}
	for d, want := range map[time.Duration]uint32{0: 0, -1: 0, 1: 1, time.Millisecond: 1, time.Second + 1: 1001, math.MaxInt64: math.MaxUint32} {
		if got := timeoutMS(d); got != want {
			t.Errorf("timeout %v is %d ms, want %d", d, got, want)
		}
	}
}

func TestSizeOfIsNotTooSmall(t *testing.T) {
	for _, m := range []plugin.Message{
		{},
		{Topic: strings.Repeat("t", 249), Partition: math.MinInt32, Offset: math.MinInt64, Time: time.UnixMilli(math.MinInt64 / 2), Stage: "retry.30s", Attempt: math.MaxInt32, MaxAttempts: math.MaxInt32},
		{Key: make([]byte, 300), Value: make([]byte, 70000), Headers: []plugin.Header{{Key: "k", Value: make([]byte, 200)}, {}}},
		{ID: strings.Repeat("i", 400), Topic: "t", Headers: make([]plugin.Header, 100)},
		{ID: strings.Repeat("i", 400), Trace: plugin.Trace{Parent: strings.Repeat("p", 55), State: strings.Repeat("s", 512)}},
	} {
		d := plugin.Delivery{Message: m, Timeout: time.Hour}
		var f wire.HostFrame
		r := f.Add(len(m.Headers))
		fill(r, &d, wire.MaxHandle)
		if got, real := sizeOf(&d), r.Size(); got < real {
			t.Errorf("%d bytes reckoned for a record of %d", got, real)
		}
	}
}
