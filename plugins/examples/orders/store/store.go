// Package store says what keeping an order means, and keeps orders in memory.
package store

import (
	"context"
	"sync"

	"github.com/kconsume/kconsume/plugins/examples/orders/order"
)

// Store keeps paid orders. Saving one again changes nothing: a delivery may be
// repeated.
type Store interface {
	Save(context.Context, *order.Order) error
}

// Memory keeps the newest orders in this process, for trying things out.
type Memory struct {
	mu    sync.Mutex
	limit int
	seen  map[string]struct{} // order ids
	ring  []string            // the same ids, oldest at next once it is full
	next  int
}

// NewMemory returns a store that forgets the oldest order beyond limit, which
// is at least 1.
func NewMemory(limit int) *Memory {
	return &Memory{limit: limit, seen: make(map[string]struct{})}
}

// Save keeps o. It never fails.
func (m *Memory) Save(_ context.Context, o *order.Order) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.seen[o.ID]; ok {
		return nil
	}
	if len(m.ring) < m.limit {
		m.ring = append(m.ring, o.ID)
	} else {
		delete(m.seen, m.ring[m.next])
		m.ring[m.next] = o.ID
		m.next = (m.next + 1) % m.limit
	}
	m.seen[o.ID] = struct{}{}
	return nil
}

// Len is the number of orders kept.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.seen)
}
