package conformance

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/kconsume/kconsume/plugin"
)

// together has the batch handler get these commands while a call runs, so that
// they wait at the same time, and returns the answers, by the commands' places.
// The last attempt of a record is its third.
func together(t *testing.T, path string, attempt map[int]uint64, commands ...string) []plugin.Verdict {
	t.Helper()
	l := connect(t, path, "batch")
	s := l.open("Deliver")
	dir := t.TempDir()
	begun, open := dir+"/begun", dir+"/open"
	gate, cancelled := uint64(len(commands)), uint64(len(commands)+1)
	send(t, s, appendRecord(appendStart(nil, 1), gate, nil, []byte("gate "+begun+" "+open)))
	awaitFile(t, begun)
	var frame []byte
	for i, c := range commands {
		frame = appendAttempt(frame, uint64(i), nil, []byte(c), max(attempt[i], 1))
	}
	// The answer to this one tells that the frame has been taken.
	send(t, s, appendCancel(appendRecord(frame, cancelled, nil, []byte("ack")), cancelled))
	got := l.await(s, func(got replies) bool { return len(got.answer) == 1 })
	if v := got.answer[cancelled]; v.Class != plugin.ClassUnspecified || v.Rule != plugin.RuleCancelled {
		t.Fatalf("answers %+v", got.answer)
	}
	if err := os.WriteFile(open, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	end(t, l, s, got)
	list := make([]plugin.Verdict, len(commands))
	for i := range list {
		v, ok := got.answer[uint64(i)]
		if !ok {
			t.Fatalf("%q is not answered", commands[i])
		}
		list[i] = v
	}
	return list
}

func end(t *testing.T, l *line, s grpc.ClientStream, got replies) {
	t.Helper()
	send(t, s, appendDrain(nil))
	l.awaitEnd(s, got)
}

// batchHandler: what waits while a call runs is one batch, and each record can
// have an answer of its own.
func batchHandler(t *testing.T, path string) {
	commands := []string{"batch-size", "transient 1500 not now", "permanent E42 no", "drop odd", "echo", "ack", "emit 2"}
	for range 200 {
		commands = append(commands, "ack")
	}
	last := len(commands)
	got := together(t, path, map[int]uint64{last: 3}, append(commands, "batch-size")...)
	if v := got[1]; v.Class != plugin.ClassTransient || v.RetryAfter.Milliseconds() != 1500 || v.Message != "not now" {
		t.Errorf("answer %+v", v)
	}
	if v := got[2]; v.Class != plugin.ClassPermanent || v.Code != "E42" {
		t.Errorf("answer %+v", v)
	}
	if v := got[3]; v.Class != plugin.ClassDrop || v.Message != "odd" {
		t.Errorf("answer %+v", v)
	}
	for _, v := range append(got[4:last], got[0], got[last]) {
		if v.Class != plugin.ClassAck {
			t.Errorf("answer %+v", v)
		}
	}
	if v := got[6]; len(v.Emitted) != 2 {
		t.Errorf("answer %+v", v)
	}
	for i, want := range map[int]string{0: "100", last: "1"} {
		if v := got[i]; len(v.Emitted) != 1 || string(v.Emitted[0].Value) != want {
			t.Errorf("record %d was not in a batch of %s: %+v", i, want, v)
		}
	}
}

// batchFailure: an error of the whole batch is for those that have no answer of
// their own; a bug is only the guilty record's.
func batchFailure(t *testing.T, path string) {
	got := together(t, path, nil, "ack", "permanent E42 no", "batch-error not now", "emit 1")
	for i, want := range []plugin.Class{plugin.ClassTransient, plugin.ClassPermanent, plugin.ClassTransient, plugin.ClassTransient} {
		if v := got[i]; v.Class != want || len(v.Emitted) > 0 || want == plugin.ClassTransient && v.Message != "not now" {
			t.Errorf("the batch fails: record %d: %+v", i, v)
		}
	}
	got = together(t, path, nil, "emit 1", "permanent E42 no", "panic oh dear", "ack")
	for i, want := range []plugin.Class{plugin.ClassAck, plugin.ClassPermanent, plugin.ClassPermanent, plugin.ClassAck} {
		if v := got[i]; v.Class != want {
			t.Errorf("a bug in the batch: record %d: %+v", i, v)
		}
	}
	if v := got[2]; v.Reason != plugin.ReasonPanic || !strings.Contains(v.Message, "oh dear") {
		t.Errorf("the guilty record: %+v", v)
	}
	if n := len(got[0].Emitted); n != 1 {
		t.Errorf("handled twice, it has emitted %d records: %s", n, fmt.Sprint(got[0]))
	}
}
