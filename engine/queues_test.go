package engine

import (
	"testing"
	"time"
)

func TestKeysOneAtATimeInOrder(t *testing.T) {
	k := newKeys()
	p := &partition{}
	if !k.enter(1, ref{p, 0}) || k.enter(1, ref{p, 1}) || k.enter(1, ref{p, 2}) || !k.enter(2, ref{p, 3}) {
		t.Fatal("a key was given twice, or a free one refused")
	}
	for want := uint64(1); want <= 2; want++ {
		if r, ok := k.leave(1); !ok || r.slot != want {
			t.Fatalf("next is %v %v, want slot %d", r.slot, ok, want)
		}
	}
	if _, ok := k.leave(1); ok {
		t.Fatal("a record came out twice")
	}
	k.leave(2)
	if !k.idle() {
		t.Fatal("keys stay occupied")
	}
}

func TestKeysForgetLostPartitions(t *testing.T) {
	k := newKeys()
	lost, kept := &partition{gone: true}, &partition{}
	k.enter(1, ref{lost, 0}) // flies
	k.enter(1, ref{lost, 1})
	k.enter(1, ref{kept, 7})
	k.forget()
	if k.enter(1, ref{kept, 8}) {
		t.Fatal("the key of a call that still runs was given away")
	}
	if r, ok := k.leave(1); !ok || r.p != kept || r.slot != 7 {
		t.Fatalf("next is %+v, want the kept partition's", r)
	}
}

func TestKeysQueueMemoryIsGivenBack(t *testing.T) {
	k := newKeys()
	p := &partition{}
	k.enter(1, ref{p, 0})
	for s := range uint64(10000) { // a hot key: always one ahead
		k.enter(1, ref{p, s + 1})
		k.enter(1, ref{p, s + 1})
		k.leave(1)
		k.leave(1)
		if q := k.m[1]; q != nil && cap(q.queue) > 256 {
			t.Fatalf("the queue of a hot key grew to %d for two records", cap(q.queue))
		}
	}
}

func TestGateInDueOrder(t *testing.T) {
	var g gate
	for slot, due := range []int64{30, 10, 20, 10} {
		g.add(due, uint64(slot))
	}
	if _, ok := g.pop(9); ok {
		t.Fatal("a record came before it was due")
	}
	var got []uint64
	for {
		w, ok := g.pop(20)
		if !ok {
			break
		}
		got = append(got, w.slot)
	}
	if len(got) != 3 || got[0] != 1 || got[1] != 3 || got[2] != 2 {
		t.Fatalf("order %v, want [1 3 2]", got)
	}
	if due, ok := g.next(); !ok || due != 30 {
		t.Fatalf("next due %d", due)
	}
	if taken := g.takeBelow(1, 0); len(taken) != 1 || g.len() != 0 {
		t.Fatalf("took %v, %d left", taken, g.len())
	}
}

func TestFifo(t *testing.T) {
	var f fifo
	for s := range uint64(10) {
		f.push(s)
	}
	f.pop()
	if got := f.takeBelow(4); len(got) != 3 || f.len() != 6 {
		t.Fatalf("took %v, %d left", got, f.len())
	}
	for want := uint64(4); f.len() > 0; want++ {
		if s := f.pop(); s != want {
			t.Fatalf("got %d, want %d", s, want)
		}
	}
}

func TestPaceFollowsTheHandler(t *testing.T) {
	p := newPace(64)
	now := time.UnixMilli(0)
	run := func(perSecond int) {
		for range 40 {
			now = now.Add(paceSample)
			p.answered(perSecond/int(time.Second/paceSample), now)
		}
	}
	run(100)
	if p.window != 64 {
		t.Errorf("a slow handler has %d records, want its concurrency", p.window)
	}
	run(10_000)
	if p.window < 400 || p.window > 600 {
		t.Errorf("at 10,000/s the window is %d, want about 500", p.window)
	}
	run(1_000_000)
	if p.window != maxAhead {
		t.Errorf("a fast handler has %d records, want %d", p.window, maxAhead)
	}
}
