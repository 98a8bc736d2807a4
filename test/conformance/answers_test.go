package conformance

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/host"
)

func hello(t *testing.T, path string) {
	for mode, capabilities := range map[string]int{"": 0, "batch": 1} {
		cfg := config(t, path)
		if mode != "" {
			cfg.Args = []string{mode}
		}
		h, err := host.Inspect(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if h.Name != "conformance" || h.Version != "1.2.3" || !reflect.DeepEqual(h.Topics, []string{"conformance.a", "conformance.b"}) {
			t.Errorf("it says of itself %+v", h)
		}
		if language, ok := strings.CutSuffix(h.SDK, "/1"); !ok || language == "" {
			t.Errorf("its SDK is %q", h.SDK)
		}
		if len(h.Capabilities) != capabilities || capabilities == 1 && h.Capabilities[0] != "batch" {
			t.Errorf("mode %q: capabilities %q", mode, h.Capabilities)
		}
	}
}

// batches: every record is answered once, however many come at once.
func batches(t *testing.T, path string) {
	r := start(t, path, nil)
	for _, n := range []int{1, 100, 500, 2000} {
		list := make([]plugin.Delivery, n)
		for i := range list {
			list[i] = do("ack")
			if i%7 == 3 {
				list[i] = do("drop odd")
			}
		}
		handles := r.deliver(list...)
		r.await(handles...)
		for i, h := range handles {
			want := plugin.ClassAck
			if i%7 == 3 {
				want = plugin.ClassDrop
			}
			if got := r.answered[h].Verdict.Class; got != want {
				t.Fatalf("of %d the record %d has class %d, not %d", n, i, got, want)
			}
		}
	}
}

// inOrder: one call at a time takes records as they came.
func inOrder(t *testing.T, path string) {
	r := start(t, path, func(c *host.Config) { c.Concurrency = 1 })
	list := make([]plugin.Delivery, 200)
	for i := range list {
		list[i] = do("echo")
	}
	handles := r.deliver(list...)
	r.await(handles...)
	if !reflect.DeepEqual(r.order, handles) {
		t.Errorf("answered in the order %v", r.order)
	}
}

func nullAndEmpty(t *testing.T, path string) {
	r := start(t, path, nil)
	every := [][]byte{nil, {}, []byte("text"), {0, 0xff, 0xfe}}
	for _, key := range every {
		for _, value := range every {
			d := do("echo")
			d.Message.Key, d.Message.Value = key, value
			for _, v := range every {
				d.Message.Headers = append(d.Message.Headers, plugin.Header{Key: "h", Value: v})
			}
			d.Message.Headers = append(d.Message.Headers, plugin.Header{Key: "", Value: key}, plugin.Header{Key: "do", Value: value})
			want := plugin.Record{Topic: "echo", Key: key, Value: value, Headers: d.Message.Headers}
			v := r.ask(d).Verdict
			if v.Class != plugin.ClassAck || len(v.Emitted) != 1 || !reflect.DeepEqual(v.Emitted[0], want) {
				t.Errorf("key %#v, value %#v come back as %+v", key, value, v)
			}
		}
	}
}

func fields(t *testing.T, path string) {
	r := start(t, path, nil)
	for _, c := range []struct {
		change   func(*plugin.Message)
		timeout  time.Duration
		want     map[string]string
		deadline bool
	}{
		{func(m *plugin.Message) {}, 0, map[string]string{
			"topic": "conformance.a", "partition": "0", "time": "1700000000000", "attempt": "1", "max_attempts": "3", "stage": "main",
		}, false},
		{func(m *plugin.Message) {
			m.ID, m.Topic, m.Partition, m.Stage = "an id", "größe", 1<<31-1, "retry.5s"
			m.Time, m.Attempt, m.MaxAttempts = time.UnixMilli(-1), 1<<31-1, 1<<31-1
		}, time.Hour, map[string]string{
			"id": "an id", "topic": "größe", "partition": "2147483647", "time": "-1", "attempt": "2147483647", "max_attempts": "2147483647", "stage": "retry.5s",
		}, true},
		{func(m *plugin.Message) { m.Time = time.UnixMilli(1 << 52) }, 0, map[string]string{"time": fmt.Sprint(int64(1) << 52)}, false},
	} {
		d := within(do("tell"), c.timeout)
		c.change(&d.Message)
		a := r.ask(d)
		if a.Verdict.Class != plugin.ClassAck || len(a.Verdict.Emitted) != 1 {
			t.Errorf("answer %+v", a)
			continue
		}
		told := map[string]string{}
		var names []string
		for _, h := range a.Verdict.Emitted[0].Headers {
			told[h.Key] = string(h.Value)
			names = append(names, h.Key)
		}
		if got := strings.Join(names, " "); got != "id topic partition offset time attempt max_attempts stage deadline" {
			t.Errorf("fields told: %s", got)
		}
		c.want["offset"] = fmt.Sprint(a.Handle)
		for name, want := range c.want {
			if told[name] != want {
				t.Errorf("%s is %q, not %q", name, told[name], want)
			}
		}
		if deadline := told["deadline"] != "0"; deadline != c.deadline {
			t.Errorf("%s ms to the deadline", told["deadline"])
		}
	}
}

// wanted is a verdict as far as all languages agree.
type wanted struct {
	command string
	class   plugin.Class
	reason  plugin.Reason
	rule    string // several with a bar between
	code    string
	message string // contained in the verdict's
	wait    time.Duration
	causes  []string // each contained in one of the verdict's, in this order
}

func (r *rig) expect(w wanted) {
	r.Helper()
	d := do("%s", w.command)
	d.Message.Value = []byte(`{"a":`)
	a := r.ask(d)
	v := a.Verdict
	if a.Late || v.Class != w.class || v.Reason != w.reason || !slices.Contains(strings.Split(w.rule, "|"), v.Rule) || v.Code != w.code || v.RetryAfter != w.wait {
		r.Errorf("%s: %+v", w.command, a)
	}
	if !strings.Contains(v.Message, w.message) {
		r.Errorf("%s: the message is %q", w.command, v.Message)
	}
	left := v.Causes
	for _, want := range w.causes {
		for len(left) > 0 && !strings.Contains(left[0], want) {
			left = left[1:]
		}
		if len(left) == 0 {
			r.Errorf("%s: the causes are %q", w.command, v.Causes)
			break
		}
		left = left[1:]
	}
	if w.class != plugin.ClassAck && len(v.Emitted) > 0 {
		r.Errorf("%s: emitted %v", w.command, v.Emitted)
	}
}

func verdicts(t *testing.T, path string) {
	r := start(t, path, nil)
	const explicit = "explicit"
	for _, w := range []wanted{
		{command: "ack", class: plugin.ClassAck},
		{command: "transient 0 not now", class: plugin.ClassTransient, reason: plugin.ReasonTransient, rule: explicit, message: "not now"},
		{command: "transient 1500 not now", class: plugin.ClassTransient, reason: plugin.ReasonTransient, rule: explicit, message: "not now", wait: 1500 * time.Millisecond},
		{command: "transient 86400000 ä", class: plugin.ClassTransient, reason: plugin.ReasonTransient, rule: explicit, message: "ä", wait: 24 * time.Hour},
		{command: "permanent E42 no such customer", class: plugin.ClassPermanent, reason: plugin.ReasonPermanent, rule: explicit, code: "E42", message: "no such customer"},
		{command: "drop a test order", class: plugin.ClassDrop, rule: explicit, message: "a test order"},
		{command: "causes outer middle inner", class: plugin.ClassPermanent, reason: plugin.ReasonPermanent, rule: explicit, message: "outer", causes: []string{"middle", "inner"}},
		{command: "wrapped 700 not now", class: plugin.ClassTransient, reason: plugin.ReasonTransient, rule: explicit, message: "own words", wait: 700 * time.Millisecond, causes: []string{"not now"}},
		{command: "json", class: plugin.ClassPermanent, reason: plugin.ReasonPoison, rule: "json"},
		{command: "unknown strange", class: plugin.ClassPermanent, reason: plugin.ReasonPermanent, rule: plugin.RuleUnknown, message: "strange"},
		{command: "emit-then-fail no", class: plugin.ClassPermanent, reason: plugin.ReasonPermanent, rule: explicit, message: "no"},
		{command: "dance", class: plugin.ClassPermanent, reason: plugin.ReasonPermanent, rule: explicit, message: "no such command"},
	} {
		r.expect(w)
	}
	for value, class := range map[string]plugin.Class{
		`{"a": 1}`: plugin.ClassAck, `null`: plugin.ClassAck, ``: plugin.ClassPermanent, "\xff": plugin.ClassPermanent, `{} {}`: plugin.ClassPermanent,
	} {
		d := do("json")
		d.Message.Value = []byte(value)
		if v := r.ask(d).Verdict; v.Class != class {
			t.Errorf("JSON %q: %+v", value, v)
		}
	}
	if v := r.ask(do("json")).Verdict; v.Reason != plugin.ReasonPoison {
		t.Errorf("a null value is no JSON: %+v", v)
	}
}

func kindsOfErrors(t *testing.T, path string) {
	r := start(t, path, nil)
	again := func(kind, rule, code string) wanted {
		return wanted{command: "typed " + kind, class: plugin.ClassTransient, reason: plugin.ReasonTransient, rule: rule, code: code}
	}
	never := func(kind, rule, code string) wanted {
		return wanted{command: "typed " + kind, class: plugin.ClassPermanent, reason: plugin.ReasonPermanent, rule: rule, code: code}
	}
	for _, w := range []wanted{
		again("timeout", "deadline|temporary", ""),
		again("refused", "network", ""),
		{command: "typed json", class: plugin.ClassPermanent, reason: plugin.ReasonPoison, rule: "json"},
		again("status-503", "status", "503"),
		again("status-429", "status", "429"),
		never("status-404", "status", "404"),
		again("sqlstate-40001", "sqlstate", "40001"),
		never("sqlstate-23505", "sqlstate", "23505"),
		again("grpc-14", "grpc", "Unavailable"),
		never("grpc-3", "grpc", "InvalidArgument"),
	} {
		r.expect(w)
	}
}

func emit(t *testing.T, path string) {
	r := start(t, path, nil)
	for _, n := range []int{0, 1, 3000} {
		v := r.ask(do("emit %d", n)).Verdict
		if v.Class != plugin.ClassAck || len(v.Emitted) != n {
			t.Fatalf("of %d emitted records %d came, class %d", n, len(v.Emitted), v.Class)
		}
		for i, e := range v.Emitted {
			if e.Topic != "out" || e.Key != nil || string(e.Value) != fmt.Sprint(i) || len(e.Headers) > 0 {
				t.Errorf("record %d of %d: %+v", i, n, e)
			}
		}
	}
}

// noUTF8: bytes that are no text end nothing, and come back as they went.
func noUTF8(t *testing.T, path string) {
	r := start(t, path, nil)
	bad := "\xff\xfe half \xe2\x82 nul \x00 surrogate \xed\xa0\x80"
	d := do("echo")
	d.Message.Headers = append(d.Message.Headers, plugin.Header{Key: bad, Value: []byte(bad)}, plugin.Header{Key: "größe"})
	v := r.ask(d).Verdict
	if len(v.Emitted) != 1 || !reflect.DeepEqual(v.Emitted[0].Headers, d.Message.Headers) {
		t.Errorf("headers come back as %+q", v.Emitted)
	}
	d = do("tell")
	d.Message.ID, d.Message.Topic, d.Message.Stage = bad, bad, bad
	if v := r.ask(d).Verdict; v.Class != plugin.ClassAck {
		t.Errorf("answer %+v", v)
	}
	v = r.ask(do("badtext")).Verdict
	if v.Class != plugin.ClassPermanent || v.Rule != "explicit" || !strings.Contains(v.Message, "bad ") || !strings.HasSuffix(v.Message, " text") {
		t.Errorf("answer %+v", v)
	}
	if v := r.ask(do("permanent x \xff\xfe")).Verdict; v.Class != plugin.ClassPermanent {
		t.Errorf("answer %+v", v)
	}
	r.acked(r.ask(do("ack")).Handle)
}

func longTexts(t *testing.T, path string) {
	r := start(t, path, nil)
	v := r.ask(do("longtext 10000000")).Verdict
	if v.Class != plugin.ClassPermanent || len(v.Message) < 1000 || strings.Trim(v.Message, "x") != "" {
		t.Errorf("class %d, a message of %d bytes", v.Class, len(v.Message))
	}
}

// bug: a handler that fails as a program with a bug does costs its own record
// only.
func bug(t *testing.T, path string) {
	r := start(t, path, nil)
	pid := r.host.Status().PID
	handles := r.deliver(do("ack"), do("panic oh dear"), do("ack"))
	r.await(handles...)
	v := r.answered[handles[1]].Verdict
	if v.Class != plugin.ClassPermanent || v.Reason != plugin.ReasonPanic || v.Rule != "panic" || !strings.Contains(v.Message, "oh dear") {
		t.Errorf("answer %+v", v)
	}
	if len(v.Stack) == 0 || bytes.Count([]byte(v.Stack), []byte("\n")) < 1 {
		t.Errorf("the stack is %q", v.Stack)
	}
	r.acked(handles[0], handles[2])
	if s := r.host.Status(); s.PID != pid || s.Restarts > 0 {
		t.Errorf("the process did not survive: %+v", s)
	}
}
