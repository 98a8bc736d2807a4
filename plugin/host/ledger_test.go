package host

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/internal/wire"
)

func delivery(handle uint64, timeout time.Duration) *plugin.Delivery {
	return &plugin.Delivery{Handle: handle, Timeout: timeout, Message: plugin.Message{Topic: "t", Offset: int64(handle)}}
}

// taken takes one frame and returns the offsets in it and the numbers.
func taken(l *ledger, h *hand, p pace, now time.Time) (offsets []uint64, numbers []uint64) {
	var f wire.HostFrame
	p.concurrency, p.calls = max(1, p.concurrency), max(1, p.calls)
	l.take(h, &p, now, &f, nil)
	for _, r := range f.Records {
		offsets, numbers = append(offsets, uint64(r.Offset)), append(numbers, r.Handle)
	}
	return offsets, numbers
}

func TestLedgerFrames(t *testing.T) {
	for _, c := range []struct {
		name  string
		sizes []int
		pace  pace
		want  []int // records a frame, until nothing is sent
	}{
		{"by number", slices.Repeat([]int{100}, 1100), pace{}, []int{500, 500, 100}},
		{"by bytes", slices.Repeat([]int{frameBytes / 4}, 9), pace{}, []int{4, 4, 1}},
		{"a large one goes alone", []int{10, 10 * frameBytes, 10}, pace{}, []int{1, 1, 1}},
		{"handler's records", slices.Repeat([]int{10}, 9), pace{maxRecords: 7}, []int{7}},
		{"handler's bytes", slices.Repeat([]int{10}, 9), pace{maxBytes: 35}, []int{3}},
		{"larger than handler's bytes", []int{50, 50}, pace{maxBytes: 35}, []int{1}},
		{"share", slices.Repeat([]int{10}, 9), pace{share: 5}, []int{5}},
	} {
		l, h := newLedger(), newHand()
		for i, size := range c.sizes {
			l.add(delivery(uint64(i), 0), size)
		}
		var got []int
		for {
			offsets, _ := taken(l, h, c.pace, time.Now())
			if len(offsets) == 0 {
				break
			}
			got = append(got, len(offsets))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: frames of %v, want %v", c.name, got, c.want)
		}
	}
}

func TestLedgerOuterDeadline(t *testing.T) {
	const timeout, grace = time.Second, 100 * time.Millisecond
	now := time.Now()
	p := pace{concurrency: 4, calls: 4, grace: grace}
	l, h := newLedger(), newHand()
	for i := range uint64(9) {
		l.add(delivery(i, timeout), 1)
	}
	_, numbers := taken(l, h, p, now)
	for k, wait := range map[int]time.Duration{0: timeout, 4: 2 * timeout, 8: 3 * timeout} {
		if got, want := l.slots[l.find(h, numbers[k])].due.Sub(now), wait+grace; got != want {
			t.Errorf("delivery %d is due after %v, want %v", k, got, want)
		}
	}
	if d := l.overdue(h, now.Add(timeout+grace)); d != nil {
		t.Errorf("overdue at its very deadline: %d", d.Handle)
	}
	if d := l.overdue(h, now.Add(timeout+grace+1)); d == nil || d.Handle != 0 {
		t.Errorf("overdue past the first deadline: %v", d)
	}
	for _, n := range numbers[:8] {
		l.settle(l.find(h, n))
	}
	if d := l.overdue(h, now.Add(3*timeout)); d != nil {
		t.Errorf("overdue before the last one's deadline: %d", d.Handle)
	}
	l.add(delivery(10, timeout), 1)
	_, numbers = taken(l, h, p, now)
	if got, want := l.slots[l.find(h, numbers[0])].due.Sub(now), timeout/4+timeout+grace; got != want {
		t.Errorf("behind one delivery: due after %v, want %v", got, want)
	}
	l.add(delivery(11, 0), 1)
	l.add(delivery(12, timeout), 1)
	taken(l, h, p, now)
	l.settle(l.find(h, numbers[0]))
	l.settle(h.sent.first)
	if d := l.overdue(h, now.Add(1000*time.Hour)); d != nil {
		t.Errorf("delivery %d is due without a timeout of its own or behind such a one", d.Handle)
	}
}

// A handler that runs fewer calls at once than it is told to is not hung where
// it takes them one after the other.
func TestOuterDeadlineGoesByWhatRunsAtOnce(t *testing.T) {
	const timeout = time.Second
	now := time.Now()
	for _, c := range []struct{ says, runs int }{{0, 4}, {1, 1}, {3, 3}, {4, 4}, {100, 4}} {
		l, h := newLedger(), newHand()
		for i := range uint64(13) {
			l.add(delivery(i, timeout), 1)
		}
		hello := Hello{Concurrency: c.says}
		_, numbers := taken(l, h, pace{concurrency: 4, calls: hello.calls(4)}, now)
		if got, want := l.slots[l.find(h, numbers[12])].due.Sub(now), 12*timeout/time.Duration(c.runs)+timeout; got != want {
			t.Errorf("it says %d: the 13th is due after %v, want %v", c.says, got, want)
		}
	}
}

func TestLedgerAnswersCountOnce(t *testing.T) {
	l, h := newLedger(), newHand()
	l.add(delivery(1, 0), 1)
	if l.find(h, l.number(1)) != 0 {
		t.Error("a delivery was found that nobody was sent")
	}
	_, first := taken(l, h, pace{}, time.Now())
	if got := l.settle(l.find(h, first[0])); got != 1 {
		t.Errorf("settled %d", got)
	}
	l.add(delivery(2, 0), 1)
	_, second := taken(l, h, pace{}, time.Now())
	if l.find(h, first[0]) != 0 {
		t.Error("an answer given twice settles the next delivery")
	}
	if l.find(newHand(), second[0]) != 0 {
		t.Error("a process answers what another one has")
	}
	for _, bad := range []uint64{0, 1 << 52, 99, second[0] + 1<<slotBits, wire.MaxHandle, ^uint64(0)} {
		if l.find(h, bad) != 0 {
			t.Errorf("number %d was found", bad)
		}
	}
	l.slots[1].generation = generationMask
	if n := l.number(1); n > wire.MaxHandle {
		t.Errorf("number %d does not fit", n)
	}
}

// TestLedgerAgainstModel drives a ledger and a naive model with the same random
// steps. FuzzLedger does so with steps from the fuzzer.
func TestLedgerAgainstModel(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		steps := make([]byte, 2000)
		for i := range steps {
			steps[i] = byte(r.Uint32())
		}
		runLedger(t, steps)
	}
}

func FuzzLedger(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	f.Fuzz(runLedger)
}

func TestLedgerGivesBack(t *testing.T) {
	l, h := newLedger(), newHand()
	for i := range uint64(3) {
		l.add(delivery(i, time.Second), 1)
	}
	_, numbers := taken(l, h, pace{share: 2}, time.Now())
	l.giveBack(l.find(h, numbers[0]))
	if l.find(h, numbers[0]) != 0 || h.sent.n != 1 || h.bytes != 1 || h.time != time.Second {
		t.Errorf("given back, and still in hand: %+v", h)
	}
	if offsets, _ := taken(l, newHand(), pace{}, time.Now()); !slices.Equal(offsets, []uint64{0, 2}) {
		t.Errorf("taken %v then", offsets)
	}
}

func TestLateBatchIsOneCall(t *testing.T) {
	h := newHand()
	for i, want := range []int{1, 1, 2} {
		if got := h.runsOn(uint64(i), lateDelivery{handle: uint64(i + 10), call: uint64(i / 2)}); got != want {
			t.Errorf("%d calls run on after %d deliveries, want %d", got, i+1, want)
		}
	}
	for i := range uint64(2) {
		if handle, ok := h.runsNoMore(i); !ok || handle != i+10 {
			t.Errorf("ended %d, %v", handle, ok)
		}
	}
	if _, ok := h.runsNoMore(0); ok || len(h.runs) != 1 {
		t.Errorf("%d calls run on", len(h.runs))
	}
}

func TestLedgerOfOneThatIsDebugged(t *testing.T) {
	l, h := newLedger(), newHand()
	l.add(delivery(1, time.Second), 1)
	taken(l, h, pace{debugged: true}, time.Now())
	if d := l.overdue(h, time.Now().Add(time.Hour)); d != nil {
		t.Error("overdue while a person looks at it")
	}
}

// modelHand is what the model knows of a hand.
type modelHand struct {
	*hand
	sent      []uint64 // handles, in order
	cancelled map[uint64]bool
}

func runLedger(t *testing.T, steps []byte) {
	l := newLedger()
	var waiting []uint64 // handles, in order
	hands := [2]*modelHand{}
	for i := range hands {
		hands[i] = &modelHand{hand: newHand(), cancelled: map[uint64]bool{}}
	}
	numbers := map[uint64]uint64{}
	next := uint64(1)
	for n, b := range steps {
		pick := int(b >> 3)
		m := hands[n%2]
		switch b % 8 {
		case 0, 1:
			l.add(delivery(next, time.Duration(pick)*time.Second), 1+pick)
			waiting = append(waiting, next)
			next++
		case 2, 3:
			may := func(handle uint64) bool { return b%8 == 2 || handle%2 == 0 }
			var f wire.HostFrame
			l.take(m.hand, &pace{concurrency: 3, calls: 3, maxRecords: 1 + pick}, time.Now(), &f, may)
			room := 1 + pick - len(m.sent)
			waiting = slices.DeleteFunc(waiting, func(h uint64) bool {
				if room <= 0 || !may(h) {
					return false
				}
				room--
				m.sent = append(m.sent, h)
				return true
			})
			for i, r := range f.Records {
				want := m.sent[len(m.sent)-len(f.Records)+i]
				if uint64(r.Offset) != want {
					t.Fatalf("took %d, want %d", r.Offset, want)
				}
				numbers[want] = r.Handle
			}
		case 4, 5:
			if len(m.sent) == 0 {
				continue
			}
			i := pick % len(m.sent)
			if l.find(hands[1-n%2].hand, numbers[m.sent[i]]) != 0 {
				t.Fatalf("%d is in the other hand, too", m.sent[i])
			}
			if h := l.settle(l.find(m.hand, numbers[m.sent[i]])); h != m.sent[i] {
				t.Fatalf("settled %d, want %d", h, m.sent[i])
			}
			delete(m.cancelled, m.sent[i])
			m.sent = slices.Delete(m.sent, i, i+1)
		case 6:
			handles := map[uint64]struct{}{next + 5: {}}
			for _, h := range slices.Concat(some(hands[0].sent, pick), some(hands[1].sent, pick), some(waiting, pick)) {
				handles[h] = struct{}{}
			}
			unsent := l.withdraw(handles)
			if !slices.Equal(unsent, some(waiting, pick)) {
				t.Fatalf("withdrew %v, want %v", unsent, some(waiting, pick))
			}
			waiting = slices.DeleteFunc(waiting, func(h uint64) bool { return slices.Contains(unsent, h) })
			for _, m := range hands {
				m.cancels = nil
				l.cancel(m.hand, handles)
				var want []uint64
				for _, h := range some(m.sent, pick) {
					if !m.cancelled[h] {
						want = append(want, numbers[h])
					}
					m.cancelled[h] = true
				}
				if !slices.Equal(m.cancels, want) {
					t.Fatalf("numbers to cancel %v, want %v", m.cancels, want)
				}
			}
		case 7:
			was := l.lose(m.hand)
			var gone, back []uint64
			for _, h := range m.sent {
				if m.cancelled[h] {
					gone = append(gone, h)
				} else {
					back = append(back, h)
				}
			}
			if !slices.Equal(was.cancelled, gone) || !slices.Equal(was.again, back) {
				t.Fatalf("lost %+v, want %v and again %v", was, gone, back)
			}
			waiting, m.sent = append(back, waiting...), nil
			clear(m.cancelled)
		}
		if l.waiting.n != len(waiting) {
			t.Fatalf("%d wait, want %d", l.waiting.n, len(waiting))
		}
		for _, m := range hands {
			if m.hand.sent.n != len(m.sent) {
				t.Fatalf("%d are sent, want %d", m.hand.sent.n, len(m.sent))
			}
			if len(m.sent) == 0 && (m.bytes != 0 || m.time != 0 || m.untimed != 0) {
				t.Fatalf("nothing is sent, but %d bytes, %v, %d without a timeout", m.bytes, m.time, m.untimed)
			}
		}
	}
}

// some is every third of a list, from pick on.
func some(list []uint64, pick int) []uint64 {
	var out []uint64
	for i := pick % 3; i < len(list); i += 3 {
		out = append(out, list[i])
	}
	return out
}
