package dedupe

import (
	"cmp"
	"container/list"
	"context"
	"strings"
	"sync"
	"time"
)

const (
	defaultEntries = 100_000
	defaultBytes   = 32 << 20
	defaultTTL     = time.Hour
	// entryBytes is about what an entry takes besides its id.
	entryBytes = 256
)

// MemoryConfig bounds a Memory.
type MemoryConfig struct {
	// Entries and Bytes bound the ids that are remembered as done; default 100,000
	// and 32 MiB. Past either, the one that was not asked for longest is forgotten.
	Entries, Bytes int
	// TTL is how long an id is remembered; default 1 h.
	TTL time.Duration
}

// Memory is a Store in this process. What it knows ends with the process: it
// keeps quick repeats away, not those after a crash, and not those that another
// process gets. Ids under way are as many as calls run, and not counted.
type Memory struct {
	config MemoryConfig

	mu      sync.Mutex
	entries map[string]*entry // guarded by mu
	done    list.List         // guarded by mu; of *entry, asked for last at the front
	bytes   int               // guarded by mu; of done
}

type entry struct {
	id      string
	ended   chan struct{} // closed by End; nil once it is done
	expires time.Time     // set when it is done
	at      *list.Element // set when it is done
}

// NewMemory returns an empty one.
func NewMemory(c MemoryConfig) *Memory {
	c.Entries = max(cmp.Or(c.Entries, defaultEntries), 1)
	c.Bytes = cmp.Or(c.Bytes, defaultBytes)
	c.TTL = cmp.Or(c.TTL, defaultTTL)
	return &Memory{config: c, entries: make(map[string]*entry)}
}

// Begin is Store's. Its error is ctx's.
func (m *Memory) Begin(ctx context.Context, id string) (done bool, err error) {
	for {
		done, ended := m.begin(id)
		if ended == nil {
			return done, nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// begin returns a channel where it is to be tried again once that is closed.
func (m *Memory) begin(id string) (done bool, ended <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[id]
	if e != nil && e.at != nil && !time.Now().Before(e.expires) {
		m.forget(e)
		e = nil
	}
	switch {
	case e == nil:
		id = strings.Clone(id) // which may be part of a larger string
		m.entries[id] = &entry{id: id, ended: make(chan struct{})}
		return false, nil
	case e.at == nil:
		return false, e.ended
	}
	m.done.MoveToFront(e.at)
	return true, nil
}

// End is Store's. An id that is not under way is passed over.
func (m *Memory) End(_ context.Context, id string, done bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[id]
	if e == nil || e.at != nil {
		return nil
	}
	close(e.ended)
	e.ended = nil
	if !done {
		delete(m.entries, id)
		return nil
	}
	e.expires = time.Now().Add(m.config.TTL)
	e.at = m.done.PushFront(e)
	m.bytes += e.size()
	for m.done.Len() > m.config.Entries || m.bytes > m.config.Bytes {
		m.forget(m.done.Back().Value.(*entry))
	}
	return nil
}

// forget is for whoever holds m.mu; e is done.
func (m *Memory) forget(e *entry) {
	m.done.Remove(e.at)
	delete(m.entries, e.id)
	m.bytes -= e.size()
}

func (e *entry) size() int { return len(e.id) + entryBytes }
