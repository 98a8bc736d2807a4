package engine

// keys lets records of one key go one at a time, over all stages of a lane: a
// key is occupied from when a record of it becomes ready until its call has
// ended, and the next one becomes ready then. The owner loop alone uses it.
//
// Keys are hashes. Two keys of one hash wait for each other, which costs a
// little parallelism and no order.
type keys struct {
	m map[uint64]*keyQueue
}

// ref names a record: a partition and a slot in its tracker.
type ref struct {
	p    *partition
	slot uint64
}

// keyQueue is an occupied key with the records that wait for it, oldest first.
type keyQueue struct {
	queue []ref
	free  int // queue[:free] is taken
}

func newKeys() keys { return keys{m: map[uint64]*keyQueue{}} }

// enter occupies a key for a record, or queues it behind the one that holds it.
func (k *keys) enter(key uint64, r ref) (ready bool) {
	q, held := k.m[key]
	if !held {
		k.m[key] = nil // the queue is made when a second record comes
		return true
	}
	if q == nil {
		q = &keyQueue{}
		k.m[key] = q
	}
	q.queue = append(q.queue, r)
	return false
}

// leave frees a key, or hands it to the record that waited longest.
func (k *keys) leave(key uint64) (next ref, ok bool) {
	q := k.m[key]
	if q == nil || q.free == len(q.queue) {
		delete(k.m, key)
		return ref{}, false
	}
	next = q.queue[q.free]
	q.queue[q.free] = ref{}
	q.free++
	if q.free == len(q.queue) {
		k.m[key] = nil
	} else if q.free > 32 && q.free > len(q.queue)/2 {
		q.queue = append([]ref(nil), q.queue[q.free:]...)
		q.free = 0
	}
	return next, true
}

// forget drops the queued records of partitions that are gone. Keys that a call
// still occupies stay occupied.
func (k *keys) forget() {
	for key, q := range k.m {
		if q == nil {
			continue
		}
		kept := q.queue[:0]
		for _, r := range q.queue[q.free:] {
			if !r.p.gone {
				kept = append(kept, r)
			}
		}
		q.queue, q.free = kept, 0
		if len(kept) == 0 {
			k.m[key] = nil
		}
	}
}

// idle reports that no key is occupied.
func (k *keys) idle() bool { return len(k.m) == 0 }
