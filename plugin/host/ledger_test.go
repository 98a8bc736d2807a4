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
func taken(l *ledger, p pace, now time.Time) (offsets []uint64, numbers []uint64) {
	var f wire.HostFrame
	p.concurrency = max(1, p.concurrency)
	l.take(&p, now, &f)
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
	} {
		l := newLedger()
		for i, size := range c.sizes {
			l.add(delivery(uint64(i), 0), size)
		}
		var got []int
		for {
			offsets, _ := taken(l, c.pace, time.Now())
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
	p := pace{concurrency: 4, grace: grace}
	l := newLedger()
	for i := range uint64(9) {
		l.add(delivery(i, timeout), 1)
	}
	_, numbers := taken(l, p, now)
	for k, wait := range map[int]time.Duration{0: timeout, 4: 2 * timeout, 8: 3 * timeout} {
		if got, want := l.slots[l.find(numbers[k])].due.Sub(now), wait+grace; got != want {
			t.Errorf("delivery %d is due after %v, want %v", k, got, want)
		}
	}
	if d := l.overdue(now.Add(timeout + grace)); d != nil {
		t.Errorf("overdue at its very deadline: %d", d.Handle)
	}
	if d := l.overdue(now.Add(timeout + grace + 1)); d == nil || d.Handle != 0 {
		t.Errorf("overdue past the first deadline: %v", d)
	}
	for _, n := range numbers[:8] {
		l.settle(l.find(n))
	}
	if d := l.overdue(now.Add(3 * timeout)); d != nil {
		t.Errorf("overdue before the last one's deadline: %d", d.Handle)
	}
	l.add(delivery(10, timeout), 1)
	_, numbers = taken(l, p, now)
	if got, want := l.slots[l.find(numbers[0])].due.Sub(now), timeout/4+timeout+grace; got != want {
		t.Errorf("behind one delivery: due after %v, want %v", got, want)
	}
	l.add(delivery(11, 0), 1)
	l.add(delivery(12, timeout), 1)
	taken(l, p, now)
	l.settle(l.find(numbers[0]))
	l.settle(l.sent.first)
	if d := l.overdue(now.Add(1000 * time.Hour)); d != nil {
		t.Errorf("delivery %d is due without a timeout of its own or behind such a one", d.Handle)
	}
}

func TestLedgerAnswersCountOnce(t *testing.T) {
	l := newLedger()
	l.add(delivery(1, 0), 1)
	if l.find(l.number(1)) != 0 {
		t.Error("a delivery was found that nobody was sent")
	}
	_, first := taken(l, pace{}, time.Now())
	if h := l.settle(l.find(first[0])); h != 1 {
		t.Errorf("settled %d", h)
	}
	l.add(delivery(2, 0), 1)
	_, second := taken(l, pace{}, time.Now())
	if l.find(first[0]) != 0 {
		t.Error("an answer given twice settles the next delivery")
	}
	for _, bad := range []uint64{0, 1 << 52, 99, second[0] + 1<<slotBits, wire.MaxHandle, ^uint64(0)} {
		if l.find(bad) != 0 {
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

func runLedger(t *testing.T, steps []byte) {
	l := newLedger()
	var waiting, sent []uint64 // handles, in order
	numbers := map[uint64]uint64{}
	cancelled := map[uint64]bool{}
	next := uint64(1)
	for _, b := range steps {
		pick := int(b >> 3)
		switch b % 7 {
		case 0, 1:
			l.add(delivery(next, time.Duration(pick)*time.Second), 1+pick)
			waiting = append(waiting, next)
			next++
		case 2:
			got, nums := taken(l, pace{concurrency: 3, maxRecords: 1 + pick}, time.Now())
			n := min(len(waiting), max(0, 1+pick-len(sent)))
			if !slices.Equal(got, waiting[:n]) {
				t.Fatalf("took %v, want %v", got, waiting[:n])
			}
			for i, h := range got {
				numbers[h] = nums[i]
			}
			sent, waiting = append(sent, waiting[:n]...), slices.Clone(waiting[n:])
		case 3, 4:
			if len(sent) == 0 {
				continue
			}
			i := pick % len(sent)
			if h := l.settle(l.find(numbers[sent[i]])); h != sent[i] {
				t.Fatalf("settled %d, want %d", h, sent[i])
			}
			delete(cancelled, sent[i])
			sent = slices.Delete(sent, i, i+1)
		case 5:
			handles := slices.Concat(some(sent, pick), some(waiting, pick), []uint64{next + 5})
			unsent, nums := l.cancel(handles)
			if !slices.Equal(unsent, some(waiting, pick)) {
				t.Fatalf("cancelled %v before they were sent, want %v", unsent, some(waiting, pick))
			}
			waiting = slices.DeleteFunc(waiting, func(h uint64) bool { return slices.Contains(unsent, h) })
			var want []uint64
			for _, h := range some(sent, pick) {
				if !cancelled[h] {
					want = append(want, numbers[h])
				}
				cancelled[h] = true
			}
			if !slices.Equal(nums, want) {
				t.Fatalf("numbers to cancel %v, want %v", nums, want)
			}
		case 6:
			gone, _ := l.lose()
			var want, back []uint64
			for _, h := range sent {
				if cancelled[h] {
					want = append(want, h)
				} else {
					back = append(back, h)
				}
			}
			if !slices.Equal(gone, want) {
				t.Fatalf("lost %v, want %v", gone, want)
			}
			waiting, sent = append(back, waiting...), nil
			clear(cancelled)
		}
		if l.waiting.n != len(waiting) || l.sent.n != len(sent) {
			t.Fatalf("%d wait and %d are sent, want %d and %d", l.waiting.n, l.sent.n, len(waiting), len(sent))
		}
		if len(sent) == 0 && (l.sentBytes != 0 || l.sentTime != 0 || l.untimed != 0) {
			t.Fatalf("nothing is sent, but %d bytes, %v, %d without a timeout", l.sentBytes, l.sentTime, l.untimed)
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
