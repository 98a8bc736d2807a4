package dev

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kconsume/kconsume/engine"
)

var update = flag.Bool("update", false, "write the golden files anew")

// noon is when the tests' story begins.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// at is a moment of the story.
func at(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }

// step is an event of the record at 0/offset.
func step(ms int, kind engine.EventKind, offset int64, change ...func(*engine.Event)) engine.Event {
	e := engine.Event{
		Kind: kind, At: at(ms), ID: string(rune('a' + offset)), Topic: "orders.confirmed",
		Offset: offset, Key: []byte("anna"), Stage: "main", Attempt: 1,
	}
	for _, c := range change {
		c(&e)
	}
	return e
}

func from(stage string, attempt, due int) func(*engine.Event) {
	return func(e *engine.Event) { e.Stage, e.Attempt, e.Due = stage, attempt, at(due) }
}

func failed(class, code, message string) func(*engine.Event) {
	return func(e *engine.Event) { e.Class, e.Code, e.Message = class, code, message }
}

func sentTo(topic string, due int) func(*engine.Event) {
	return func(e *engine.Event) {
		e.To = "orders.confirmed." + topic
		if due > 0 {
			e.Due = at(due)
		}
	}
}

const busy = "gateway payments 503: busy"

// transcript is everything that a view says to a series of events, with a tick
// after each.
func transcript(l layout, v *view, events ...engine.Event) string {
	var b strings.Builder
	for _, e := range events {
		for _, n := range append(v.event(e), v.tick(e.At)...) {
			b.WriteString(l.format(n))
		}
	}
	return b.String()
}

// story is what dev's samples go through, and what else can happen.
func story() []engine.Event {
	gateway := failed("transient", "503", busy)
	return []engine.Event{
		step(0, engine.EventDelivered, 0),
		step(3, engine.EventAcked, 0),
		step(400, engine.EventDelivered, 1),
		step(404, engine.EventRetried, 1, gateway, sentTo("retry.2s", 2404)),
		step(1200, engine.EventDelivered, 3),
		step(1203, engine.EventRetried, 3, gateway, sentTo("retry.2s", 3203)),
		step(2000, engine.EventDelivered, 5),
		step(2003, engine.EventDead, 5, sentTo("dlq", 0), failed("poison", "", "invalid character 'o' looking for beginning of value")),
		step(2407, engine.EventDelivered, 1, from("retry.2s", 2, 2404)),
		step(2410, engine.EventAcked, 1, from("retry.2s", 2, 0)),
		step(2800, engine.EventDelivered, 7),
		step(2801, engine.EventDead, 7, sentTo("dlq", 0), failed("permanent", "", `invalid order: total_cents is 1350, the items add up to 1250`)),
		step(3204, engine.EventDelivered, 3, from("retry.2s", 2, 3203)),
		step(3206, engine.EventRetried, 3, from("retry.2s", 2, 0), gateway, sentTo("retry.5s", 8206)),
		step(8210, engine.EventDelivered, 3, from("retry.5s", 3, 8206)),
		step(8212, engine.EventDead, 3, from("retry.5s", 3, 0), gateway, sentTo("dlq", 0)),
		step(9000, engine.EventDelivered, 8),
		step(11000, engine.EventAcked, 8),
		step(11100, engine.EventDelivered, 9, func(e *engine.Event) { e.Key = []byte("注文\x1b[2J\u202e and a very long key") }),
		step(11102, engine.EventDead, 9, sentTo("dlq", 0), failed("panic", "", "runtime error: index out of range [3] with length 3\ngoroutine 7")),
		step(12000, engine.EventDelivered, 10),
		step(14000, engine.EventDelivered, 10),
		step(14500, engine.EventDropped, 10, failed("", "", "seen before")),
	}
}

func storyLabels(p place) string {
	if p.offset >= 8 {
		return ""
	}
	return sampleAt(int(p.offset)).what
}

func TestTranscript(t *testing.T) {
	widths := map[string]layout{
		"pipe": {stage: 8}, "80": {width: 80, stage: 8}, "120": {width: 120, stage: 8},
		"40": {width: 40, stage: 8}, "color": {width: 120, stage: 8, color: true},
	}
	intro := intro{
		broker: "127.0.0.1:40404", topics: []string{"orders.confirmed"}, tiers: []string{"retry.2s", "retry.5s"},
		dlqs: []string{"orders.confirmed.dlq"}, metrics: "http://127.0.0.1:9464/metrics", samples: true,
	}
	for name, l := range widths {
		t.Run(name, func(t *testing.T) {
			v := newView(storyLabels)
			got := intro.header(l) + transcript(l, v, story()...) + l.format(v.summary("so far", at(20000)))
			for s := range strings.Lines(got) {
				s = strings.TrimSuffix(s, "\n")
				isCommand := strings.Contains(s, "kcat") // to be copied, so never broken
				if l.width > 0 && !l.color && !isCommand && textWidth(s) > l.width {
					t.Errorf("%d wide, the terminal is %d: %s", textWidth(s), l.width, s)
				}
			}
			compareGolden(t, filepath.Join("testdata", "story-"+name+".golden"), got)
		})
	}
}

func compareGolden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; go test -update writes it anew\n%s", path, got)
	}
}

func TestViewSays(t *testing.T) {
	retried := func(change ...func(*engine.Event)) engine.Event {
		return step(0, engine.EventRetried, 0, append([]func(*engine.Event){failed("transient", "", "x"), sentTo("retry.2s", 2000)}, change...)...)
	}
	dead := func(class, code, message string) engine.Event {
		return step(0, engine.EventDead, 0, failed(class, code, message), sentTo("dlq", 0))
	}
	tests := []struct {
		name   string
		events []engine.Event
		want   string // of the last line, without its columns
	}{
		{"result without a beginning", []engine.Event{step(5, engine.EventAcked, 0)}, "done"},
		{"quick", []engine.Event{step(0, engine.EventDelivered, 0), step(249, engine.EventAcked, 0)}, "received, done in 249 ms"},
		{"back at once", []engine.Event{step(5, engine.EventDelivered, 0, func(e *engine.Event) { e.Stage = "retry.2s" })}, "came back at once"},
		{"early", []engine.Event{step(5, engine.EventDelivered, 0, from("retry.2s", 2, 15))}, "came back 10 ms before it was due"},
		{"replayed", []engine.Event{step(5, engine.EventDelivered, 0, func(e *engine.Event) { e.Stage = "replay" })}, "replayed from the DLQ"},
		{"dropped", []engine.Event{step(5, engine.EventDropped, 0)}, "dropped on purpose"},
		{"skipped", []engine.Event{step(5, engine.EventSkipped, 0)}, "passed over: it belongs to another group"},
		{"again", []engine.Event{step(0, engine.EventDelivered, 0), step(9, engine.EventDelivered, 0)}, "delivered once more: the handler gave no answer"},
		{"due tomorrow", []engine.Event{retried(sentTo("retry.1h", 13*3600*1000))}, "failed: x → waits in retry.1h until 2 Mar 01:00"},
		{"foreign topic name", []engine.Event{retried(func(e *engine.Event) { e.To = "later" })}, "failed: x → waits in later until 12:00:02.0"},
		{"timeout", []engine.Event{dead("timeout", "", "30s")}, "took too long: 30s → DLQ: the 1st delivery was the last"},
		{"no message", []engine.Event{dead("permanent", "E7", "")}, "failed: E7 → DLQ: permanent, no retry"},
		{"nothing at all", []engine.Event{dead("permanent", "", "")}, "failed: no reason given → DLQ: permanent, no retry"},
		{"crash", []engine.Event{dead("handler_crash", "", "signal: killed")}, "ends the handler's process: signal: killed → DLQ: no retry for this (handler_crash)"},
		{"oversize", []engine.Event{dead("oversize", "", "")}, "too large → DLQ: no retry for this (oversize)"},
		{"unknown class", []engine.Event{dead("new\x1b", "", "y")}, `failed (new\x1b): y → DLQ: no retry for this (new\x1b)`},
		{"hostile", []engine.Event{dead("permanent", "", "a\u202eb\x1b[2J")}, `failed: a\u202eb\x1b[2J → DLQ: permanent, no retry`},
		{"long", []engine.Event{dead("permanent", "", strings.Repeat("x", 5000))}, "failed: " + strings.Repeat("x", maxSaid-1) + "… → DLQ: permanent, no retry"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := layout{stage: 8}
			lines := strings.Split(strings.TrimSuffix(transcript(l, newView(storyLabels), tt.events...), "\n"), "\n")
			last := lines[len(lines)-1]
			if got := string([]rune(last)[textWidth(l.columns("", "", "", "", "")):]); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// A forward's answer that comes late does not end the delivery after it.
func TestForwardAnsweredAfterTheRecordIsBack(t *testing.T) {
	v := newView(storyLabels)
	got := transcript(layout{stage: 8}, v,
		step(0, engine.EventDelivered, 1),
		step(2001, engine.EventDelivered, 1, from("retry.2s", 2, 2000)),
		step(2002, engine.EventRetried, 1, failed("transient", "503", busy), sentTo("retry.2s", 2000)),
		step(2005, engine.EventAcked, 1, from("retry.2s", 2, 0)))
	for _, want := range []string{"came back 1 ms after it was due\n", "→ waits in retry.2s until 12:00:02.0\n", "done in 4 ms\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if len(v.begun) != 0 || len(v.waiting) != 0 {
		t.Errorf("%d begun, %d waiting; want none", len(v.begun), len(v.waiting))
	}
}

func TestNameWithoutALabelIsTheKey(t *testing.T) {
	v := newView(func(place) string { return "" })
	for want, key := range map[string][]byte{"no key": nil, "key ": {}, `key a\x00`: []byte("a\x00")} {
		if got := v.name(engine.Event{Key: key}); got != want {
			t.Errorf("key %q is called %q, want %q", key, got, want)
		}
	}
}

func TestViewIsBounded(t *testing.T) {
	v := newView(storyLabels)
	for i := range maxFollowed + 100 {
		id := func(e *engine.Event) { e.ID = time.Duration(i).String() }
		v.event(step(0, engine.EventDelivered, 0, id))
	}
	if len(v.begun) != maxFollowed {
		t.Errorf("%d begun, want %d", len(v.begun), maxFollowed)
	}
	for i := range maxFollowed + 100 {
		v.event(step(0, engine.EventRetried, 0, func(e *engine.Event) { e.ID = time.Duration(i).String() }))
	}
	if len(v.begun) != 0 || len(v.waiting) != maxFollowed {
		t.Errorf("%d begun and %d waiting, want 0 and %d", len(v.begun), len(v.waiting), maxFollowed)
	}
}

// A slow terminal costs lines, never the engine's time, and it is said.
func TestNarratorDropsRatherThanWaits(t *testing.T) {
	n := newNarrator()
	const more = 5
	for range maxUntold + more {
		n.observe(step(0, engine.EventAcked, 0))
	}
	done := make(chan struct{})
	close(done)
	var out strings.Builder
	if err := n.run(done, newView(storyLabels), &out, func() layout { return layout{stage: 8} }); err != nil {
		t.Fatal(err)
	}
	// The closed channel and the events are equally ready, so what is told
	// before the end may take more than one round; all of it must be there.
	if got := strings.Count(out.String(), "done\n"); got != maxUntold {
		t.Errorf("%d lines, want %d", got, maxUntold)
	}
	if want := "too fast to be told or counted: 5 steps\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("the summary does not end in %q", want)
	}
}

func TestNarratorCopiesWhatItKeepsOfAKey(t *testing.T) {
	n := newNarrator()
	key := []byte(strings.Repeat("k", 1000))
	n.observe(engine.Event{Kind: engine.EventAcked, Key: key})
	clear(key)
	if got := string((<-n.events).Key); got != strings.Repeat("k", maxKeptOfKey) {
		t.Errorf("kept %q", got)
	}
	n.observe(engine.Event{Kind: engine.EventAcked})
	if got := (<-n.events).Key; got != nil {
		t.Errorf("null became %q", got)
	}
}

func TestNarratorTellsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, done, ended := newNarrator(), make(chan struct{}), make(chan error)
		out := newTranscript()
		go func() {
			ended <- n.run(done, newView(storyLabels), out, func() layout { return layout{stage: 8} })
		}()
		told := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := out.take(); (want == "") != (got == "") || !strings.Contains(got, want) {
				t.Errorf("told %q, want %q", got, want)
			}
		}
		begin := step(0, engine.EventDelivered, 0)
		begin.At = time.Now()
		n.observe(begin)
		told(200*time.Millisecond, "")
		told(200*time.Millisecond, "received, no result yet")
		result := step(0, engine.EventAcked, 0)
		result.At = time.Now()
		n.observe(result)
		told(0, "done in 400 ms")
		told(summaryEvery, "so far: 1 handled")
		told(summaryEvery, "") // nothing new, nothing said
		close(done)
		told(0, "in all: 1 handled")
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

type brokenPipe struct{}

var errBroken = errors.New("broken pipe")

func (brokenPipe) Write([]byte) (int, error) { return 0, errBroken }

func TestNarratorEndsWithItsOutput(t *testing.T) {
	n := newNarrator()
	n.observe(step(0, engine.EventAcked, 0))
	err := n.run(nil, newView(storyLabels), brokenPipe{}, func() layout { return layout{stage: 8} })
	if !errors.Is(err, errBroken) {
		t.Errorf("run: %v, want %v", err, errBroken)
	}
}
