package store

import (
	"fmt"
	"testing"

	"github.com/kconsume/kconsume/plugins/examples/orders/order"
)

func TestMemorySavesOnceAndIsBounded(t *testing.T) {
	m := NewMemory(3)
	save := func(id string) {
		t.Helper()
		if err := m.Save(t.Context(), &order.Order{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	save("a")
	save("a")
	if m.Len() != 1 {
		t.Errorf("%d orders after saving one twice", m.Len())
	}
	for i := range 100 {
		save(fmt.Sprint(i))
		save(fmt.Sprint(i))
	}
	if m.Len() != 3 || len(m.ring) != 3 {
		t.Errorf("%d orders, ring %d; want 3", m.Len(), len(m.ring))
	}
	for _, id := range []string{"97", "98", "99"} {
		if _, ok := m.seen[id]; !ok {
			t.Errorf("order %s is not kept, though it is among the newest", id)
		}
	}
}
