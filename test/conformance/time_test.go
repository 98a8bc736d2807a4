package conformance

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/host"
)

// soon is a deadline that a call which waits for us will miss.
const soon = 100 * time.Millisecond

// gate is a delivery whose call waits for a file.
type gate struct {
	plugin.Delivery
	begun, open string
}

func (r *rig) gate() gate {
	g := gate{begun: r.file(), open: r.file()}
	g.Delivery = do("gate %s %s", g.begun, g.open)
	return g
}

// concurrency: as many calls at once as the host asks for, and no more.
func concurrency(t *testing.T, path string) {
	r := start(t, path, func(c *host.Config) { c.Concurrency = 4 })
	var gates []gate
	var list []plugin.Delivery
	for range 6 {
		g := r.gate()
		gates, list = append(gates, g), append(list, g.Delivery)
	}
	handles := r.deliver(list...)
	for _, g := range gates[:4] {
		r.awaitFile(g.begun)
	}
	if exists(gates[4].begun) || exists(gates[5].begun) {
		t.Error("more than 4 calls run at once")
	}
	r.create(gates[2].open)
	r.await(handles[2])
	r.awaitFile(gates[4].begun)
	if exists(gates[5].begun) {
		t.Error("more than 4 calls run at once")
	}
	for _, g := range gates {
		if !exists(g.open) {
			r.create(g.open)
		}
	}
	r.await(handles...)
	r.acked(handles...)
}

// deadline: who heeds it has his own say, which counts as a timeout.
func deadline(t *testing.T, path string) {
	r := start(t, path, nil)
	a := r.ask(within(do("wait %s", r.file()), soon))
	if v := a.Verdict; v.Class != plugin.ClassTransient || v.Reason != plugin.ReasonTimeout || v.Rule != "timeout" {
		t.Errorf("answer %+v", a)
	}
	if a.Late { // on a busy machine
		r.awaitEnd(a.Handle)
	}
	r.acked(r.ask(within(do("ack"), time.Hour)).Handle)
}

// lateCalls are answered at the deadline, told when they end, and starve nobody.
func lateCalls(t *testing.T, path string) {
	r := start(t, path, func(c *host.Config) { c.Concurrency = 3 })
	a, b := r.gate(), r.gate()
	failing, open := r.file(), r.file()
	handles := r.deliver(
		within(a.Delivery, soon), within(b.Delivery, soon), // one fewer than would end the process
	)
	r.await(handles...)
	for _, h := range handles {
		answer := r.answered[h]
		if v := answer.Verdict; !answer.Late || v.Class != plugin.ClassTransient || v.Reason != plugin.ReasonTimeout || v.Rule != "timeout" {
			t.Errorf("answer %+v", answer)
		}
	}
	if len(r.ended) > 0 {
		t.Errorf("ended before they were let go: %v", r.ended)
	}
	three := r.deliver(do("gate %s %s", failing, open), do("ack"), do("echo"))
	r.await(three[1:]...)
	r.acked(three[1:]...)
	r.create(b.open)
	r.awaitEnd(handles[1])
	r.create(a.open)
	r.awaitEnd(handles[0])
	r.create(open)
	r.await(three[0])
	r.acked(three[0])
}

// pastTheDeadline: a late call's failure changes nothing, and is not told again.
func pastTheDeadline(t *testing.T, path string) {
	r := start(t, path, nil)
	begun, open := r.file(), r.file()
	a := r.ask(within(do("gate-then-fail %s %s too bad", begun, open), soon))
	if v := a.Verdict; !a.Late || v.Reason != plugin.ReasonTimeout || strings.Contains(v.Message, "too bad") {
		t.Errorf("answer %+v", a)
	}
	r.create(open)
	r.awaitEnd(a.Handle)
	r.acked(r.ask(do("ack")).Handle)
}

func cancel(t *testing.T, path string) {
	r := start(t, path, func(c *host.Config) { c.Concurrency = 2 })
	waits, g, queued := r.file(), r.gate(), r.file()
	handles := r.deliver(do("wait %s", waits), g.Delivery, do("wait %s", queued))
	r.awaitFile(waits)
	r.awaitFile(g.begun)
	// Not begun: answered now, though both calls run.
	r.host.Cancel(handles[2:])
	r.await(handles[2])
	// It heeds its call's end.
	r.host.Cancel(handles[:1])
	r.await(handles[0])
	r.cancelled(handles[0], handles[2])
	if exists(queued) {
		t.Error("a cancelled record was handled")
	}
	// What is done is done.
	r.host.Cancel(handles[1:2])
	r.acked(r.ask(do("ack")).Handle)
	r.create(g.open)
	r.await(handles[1])
	r.acked(handles[1])
	// Past its deadline and cancelled.
	begun, open := r.file(), r.file()
	late := r.ask(within(do("gate-then-fail %s %s x", begun, open), soon))
	r.host.Cancel([]uint64{late.Handle})
	r.create(open)
	r.awaitEnd(late.Handle)
}

// drain: what the handler has is answered, what it waits for too; who asks is
// told; then the stream ends.
func drain(t *testing.T, path string) {
	l := connect(t, path)
	s := l.open("Deliver")
	dir := t.TempDir()
	gateBegun, open, leaveBegun := dir+"/gate", dir+"/open", dir+"/leave"
	frame := appendStart(nil, 2)
	frame = appendRecord(frame, 1, nil, []byte("gate "+gateBegun+" "+open))
	frame = appendRecord(frame, 2, nil, []byte("leave "+leaveBegun))
	for h := uint64(3); h <= 50; h++ {
		frame = appendRecord(frame, h, nil, []byte("echo"))
	}
	send(t, s, frame)
	awaitFile(t, gateBegun)
	awaitFile(t, leaveBegun)
	send(t, s, appendDrain(nil))
	got := l.await(s, func(got replies) bool { return len(got.answer) == 49 })
	if _, ok := got.answer[1]; ok {
		t.Error("a call that waits is answered")
	}
	if a := got.answer[2]; a.Class != plugin.ClassUnspecified || a.Rule != plugin.RuleCancelled {
		t.Errorf("a record that was handed back: %+v", a)
	}
	if err := os.WriteFile(open, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.awaitEnd(s, got)
	for h := uint64(1); h <= 50; h++ {
		if a, ok := got.answer[h]; h != 2 && (!ok || a.Class != plugin.ClassAck) {
			t.Errorf("%d: %+v", h, a)
		}
	}
}

// stop is a drain by the host. A record that is handed back has no answer: the
// next process gets it.
func stop(t *testing.T, path string) {
	r := start(t, path, nil)
	g, leaving := r.gate(), r.file()
	handles := r.deliver(g.Delivery, do("leave %s", leaving))
	r.awaitFile(g.begun)
	r.awaitFile(leaving)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		r.stop()
	}()
	// It leaves only when it has been told to.
	for begin := time.Now(); r.host.Status().InFlight > 1; time.Sleep(time.Millisecond) {
		if time.Since(begin) > patience {
			t.Fatalf("it does not leave: %+v", r.host.Status())
		}
	}
	r.create(g.open)
	<-stopped
	r.acked(handles[0])
	if a, ok := r.answered[handles[1]]; ok {
		t.Errorf("a record that was handed back: %+v", a)
	}
}
