package engine

import (
	"slices"
	"testing"
)

// FuzzKeys runs the key queues against a naive model: for each key who holds it
// and who waits, in a slice.
func FuzzKeys(f *testing.F) {
	f.Add([]byte{0, 0, 0, 64, 0, 128})
	f.Add([]byte{1, 1, 2, 65, 192, 65, 65, 3, 67})
	f.Add(slices.Repeat([]byte{5, 5, 69}, 200))
	f.Fuzz(func(t *testing.T, ops []byte) {
		type queue struct{ waiting []ref }
		model := map[uint64]*queue{}
		k := newKeys()
		parts := []*partition{{}, {}, {}, {}}
		slot := uint64(0)
		for _, op := range ops {
			key, part := uint64(op&7), parts[op>>3&3]
			switch op >> 6 {
			case 0, 3: // a record comes
				r := ref{part, slot}
				slot++
				q := model[key]
				want := q == nil
				if want {
					model[key] = &queue{}
				} else {
					q.waiting = append(q.waiting, r)
				}
				if got := k.enter(key, r); got != want {
					t.Fatalf("enter %d: %v, want %v", key, got, want)
				}
			case 1: // a call ends
				q := model[key]
				if q == nil {
					continue // nobody holds it: there is nothing to leave
				}
				var want ref
				ok := len(q.waiting) > 0
				if ok {
					want, q.waiting = q.waiting[0], q.waiting[1:]
				} else {
					delete(model, key)
				}
				if got, has := k.leave(key); got != want || has != ok {
					t.Fatalf("leave %d: slot %d %v, want slot %d %v", key, got.slot, has, want.slot, ok)
				}
			case 2: // a partition is lost, and owned anew
				part.gone = true
				k.forget()
				for _, q := range model {
					q.waiting = slices.DeleteFunc(q.waiting, func(r ref) bool { return r.p.gone })
				}
				parts[op>>3&3] = &partition{}
			}
			if k.idle() != (len(model) == 0) {
				t.Fatalf("idle %v, with %d keys held", k.idle(), len(model))
			}
		}
		for key, q := range model { // all come out, in order
			for _, want := range q.waiting {
				if got, ok := k.leave(key); !ok || got != want {
					t.Fatalf("drain %d: slot %d %v, want %d", key, got.slot, ok, want.slot)
				}
			}
			if _, ok := k.leave(key); ok {
				t.Fatalf("drain %d: one more than came", key)
			}
		}
		if !k.idle() {
			t.Fatal("keys stay occupied")
		}
	})
}
