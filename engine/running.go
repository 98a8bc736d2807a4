package engine

// running are the records of a lane with a call that outlived its delivery: the
// deadline has passed, or the partition was lost. The call cannot be ended, only
// waited for: until then the record is not handed to this process again, be it
// from a tier or from its own partition owned anew. (A key that such a call
// occupies does the same for its other records; a record without a key has
// nothing else.) The owner loop alone uses it.
type running map[place][]ref

// place is where a record first was, in its lane.
type place struct {
	topic  string
	offset int64
}

// placeOf is the place of a record that is held.
func (p *partition) placeOf(slot uint64) place {
	it := p.track.at(slot)
	if it.meta != nil {
		return place{it.meta.Origin.Topic, it.meta.Origin.Offset}
	}
	return place{p.stage.Topic, it.rec.Offset}
}

// add notes a call.
func (r running) add(at place) {
	if _, noted := r[at]; !noted {
		r[at] = nil
	}
}

// hold keeps a record back if a call of it still runs.
func (r running) hold(at place, waiting ref) bool {
	held, runs := r[at]
	if runs {
		r[at] = append(held, waiting)
	}
	return runs
}

// ranOut says that a call has ended: its record may be handled again.
func (l *loop) ranOut(ln *lane, at place) {
	held := ln.running[at]
	delete(ln.running, at)
	for _, r := range held {
		if !r.p.gone && r.p.track.open(r.slot) {
			l.enter(r.p, r.slot)
		}
	}
}
