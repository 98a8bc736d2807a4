package dlq

import (
	"maps"
	"slices"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
	"github.com/kconsume/kconsume/engine/record"
	"github.com/kconsume/kconsume/engine/topics"
)

// Bounds of what an index keeps.
const (
	maxPrints   = 1000 // fingerprints that are told apart
	maxHandlers = 5    // of a fingerprint
	sparkHours  = 24
	blockSize   = 16 << 10 // offsets of a block, at first
	maxBlocks   = 256      // of a partition; then pairs become one
	maxSample   = 300      // bytes
)

// other stands for the fingerprints beyond the bound.
const other = "other"

// index counts a DLQ's records of one group by fingerprint, as far as they have
// been read. Its size depends on neither how many there are nor how large. It is
// not safe for concurrent use.
type index struct {
	life   topics.ID
	owner  string // the group whose records count
	parts  []*indexPart
	prints map[string]*print
	others int64 // records of other groups, and of none
	gen    int   // changes whenever a count does
}

// indexPart is what has been read of a partition: [start, next) of [start, end).
type indexPart struct {
	start, next, end int64
	size             int64    // offsets of a block of a small partition
	blocks           []*block // in order, without gaps
	// open is a lower bound of the oldest open record, and that record once it
	// is found; see queue.seekOpen.
	open   int64
	oldest *oldest
}

// oldest is a record that nobody has done anything about yet, or was open when
// it was looked at.
type oldest struct {
	id   state.ID
	came int64
}

// block counts the records of a range of offsets, so that they can be taken off
// again when retention deletes them.
type block struct {
	from, to int64
	counts   map[*print]*count
	others   int64
	again    bool // it is being read again: counts are not complete
}

type count struct{ n, first, last int64 } // times in unix ms

// print is what is known of a fingerprint.
type print struct {
	printed
	sample   string
	example  Position
	n        int64
	handlers []string // the latest last
	hours    map[int64]int64
}

func newIndex(group string, life topics.ID, partitions int) *index {
	x := &index{life: life, owner: group, prints: map[string]*print{}}
	x.grow(partitions)
	return x
}

// grow adds partitions.
func (x *index) grow(partitions int) {
	for len(x.parts) < partitions {
		x.parts = append(x.parts, &indexPart{size: blockSize})
	}
}

// bounds tells what a partition holds now. It returns the range that must be
// read again, because retention ended within a block; from == to if none.
func (x *index) bounds(partition int, start, end int64) (from, to int64) {
	p := x.parts[partition]
	p.end = end
	if len(p.blocks) == 0 {
		p.start, p.next = start, max(p.next, start)
		p.open = max(p.open, start)
		return 0, 0
	}
	for len(p.blocks) > 0 && p.blocks[0].to <= start {
		x.drop(p.blocks[0])
		p.blocks = p.blocks[1:]
	}
	if len(p.blocks) > 0 && (p.blocks[0].from < start || p.blocks[0].again) {
		b := p.blocks[0]
		from, to = start, b.to
		x.drop(b)
		p.blocks[0] = &block{from: start, to: b.to, again: true, counts: map[*print]*count{}}
	}
	p.start, p.next, p.open = start, max(p.next, start), max(p.open, start)
	if p.oldest != nil && p.oldest.id.Offset < start {
		p.oldest = nil
	}
	return from, to
}

// drop takes a block's records off the counts.
func (x *index) drop(b *block) {
	for pr, c := range b.counts {
		pr.n -= c.n
	}
	x.others -= b.others
	x.gen++
}

// into is the block that an offset belongs to. In the order of offsets; a block
// that is read again is the first.
func (p *indexPart) into(offset int64) *block {
	if n := len(p.blocks); n > 0 {
		if first := p.blocks[0]; offset < first.to && offset >= first.from {
			return first
		}
		if last := p.blocks[n-1]; offset < last.from+p.blockSize() {
			return last
		}
	}
	if len(p.blocks) >= maxBlocks {
		p.halve()
	}
	from := p.start
	if n := len(p.blocks); n > 0 {
		p.blocks[n-1].to = offset
		from = offset
	}
	b := &block{from: from, to: offset, counts: map[*print]*count{}}
	p.blocks = append(p.blocks, b)
	return b
}

// blockSize grows with the partition.
func (p *indexPart) blockSize() int64 {
	size := p.size
	for size*maxBlocks/2 < p.end-p.start {
		size *= 2
	}
	return size
}

// halve makes one block of each two.
func (p *indexPart) halve() {
	var out []*block
	for i := 0; i < len(p.blocks); i += 2 {
		b := p.blocks[i]
		if i+1 < len(p.blocks) {
			next := p.blocks[i+1]
			b.to, b.others = next.to, b.others+next.others
			for pr, c := range next.counts {
				b.add(pr, c.n, c.first, c.last)
			}
		}
		out = append(out, b)
	}
	p.blocks = out
}

func (b *block) add(pr *print, n, first, last int64) {
	c := b.counts[pr]
	if c == nil {
		c = &count{first: first, last: last}
		b.counts[pr] = c
	}
	c.n += n
	c.first, c.last = min(c.first, first), max(c.last, last)
}

// add counts a record. Its bytes are not kept.
func (x *index) add(p *printer, partition int, r *record.Record) {
	part := x.parts[partition]
	b := part.into(r.Offset)
	b.to = max(b.to, r.Offset+1)
	x.gen++
	var g glance
	g.look(r)
	if !g.known || string(g.group) != x.owner {
		b.others++
		x.others++
		return
	}
	what := p.of(g.class, g.message)
	pr := x.print(what)
	pr.n++
	b.add(pr, 1, r.Timestamp, r.Timestamp)
	pr.example = Position{int32(partition), r.Offset}
	pr.handler(g.handler)
	if r.Offset >= part.next { // else it is read again
		pr.spark(r.Timestamp)
	}
	if pr.sample == "" && pr.print != other {
		pr.sample = cutText(text(string(g.message)), maxSample)
	}
}

// read tells that a partition has been read up to an offset.
func (x *index) read(partition int, next int64) {
	p := x.parts[partition]
	p.next = max(p.next, next)
	if n := len(p.blocks); n > 0 {
		p.blocks[n-1].to = max(p.blocks[n-1].to, next)
	}
}

// reread tells that the range which bounds returned has been read.
func (x *index) reread(partition int) {
	if p := x.parts[partition]; len(p.blocks) > 0 {
		p.blocks[0].again = false
	}
}

// print finds a fingerprint's entry. Where there is no room, those that no
// record has any more make it.
func (x *index) print(what printed) *print {
	if pr, ok := x.prints[what.print]; ok {
		return pr
	}
	if len(x.prints) >= maxPrints {
		maps.DeleteFunc(x.prints, func(_ string, pr *print) bool { return pr.n == 0 && pr.print != other })
	}
	if len(x.prints) >= maxPrints {
		what = printed{print: other, normal: "further kinds of failures, which are not told apart"}
		if pr, ok := x.prints[other]; ok {
			return pr
		}
	}
	pr := &print{printed: what, hours: map[int64]int64{}}
	x.prints[what.print] = pr
	return pr
}

func (pr *print) handler(name []byte) {
	n := len(pr.handlers)
	if len(name) == 0 || n > 0 && pr.handlers[n-1] == string(name) {
		return
	}
	s := cutText(text(string(name)), maxSample)
	pr.handlers = slices.DeleteFunc(pr.handlers, func(h string) bool { return h == s })
	pr.handlers = append(pr.handlers, s)
	if len(pr.handlers) > maxHandlers {
		pr.handlers = pr.handlers[1:]
	}
}

const hourMS = int64(time.Hour / time.Millisecond)

func (pr *print) spark(ms int64) {
	hour := ms / hourMS
	pr.hours[hour]++
	if len(pr.hours) > 2*sparkHours {
		newest := slices.Max(slices.Collect(maps.Keys(pr.hours)))
		maps.DeleteFunc(pr.hours, func(h, _ int64) bool { return h <= newest-sparkHours })
	}
}

func (pr *print) lastHours(now time.Time) (out [sparkHours]int64) {
	newest := now.UnixMilli() / hourMS
	for h, n := range pr.hours {
		if i := sparkHours - 1 - (newest - h); i >= 0 && i < sparkHours {
			out[i] = n
		}
	}
	return out
}

// progress is how far the index has read.
func (x *index) progress() (records, read, end int64) {
	for _, p := range x.parts {
		for _, b := range p.blocks {
			for _, c := range b.counts {
				records += c.n
			}
		}
		read += p.next - p.start
		end += p.end - p.start
	}
	return records, read, end
}

// covers reports whether the index counts a record of this life at a place.
func (x *index) covers(partition int32, offset int64) bool {
	if int(partition) >= len(x.parts) {
		return false
	}
	p := x.parts[partition]
	return offset >= p.start && offset < p.next
}

// skip tells where to read on instead of at an offset, because the block there
// is known to hold nothing that a selection means.
func (x *index) skip(partition int, offset int64, sel *Selection) (next int64, ok bool) {
	b := x.empty(partition, offset, sel)
	if b == nil {
		return offset, false
	}
	return b.to, true
}

// skipBack is skip for reading backwards: nothing that is meant lies between
// the offset returned and the one before end.
func (x *index) skipBack(partition int, end int64, sel *Selection) (next int64, ok bool) {
	b := x.empty(partition, end-1, sel)
	if b == nil {
		return end, false
	}
	return b.from, true
}

// empty is the block of an offset if nothing in it is meant.
func (x *index) empty(partition int, offset int64, sel *Selection) *block {
	if partition >= len(x.parts) {
		return nil
	}
	p := x.parts[partition]
	i, found := slices.BinarySearchFunc(p.blocks, offset, func(b *block, o int64) int {
		switch {
		case o < b.from:
			return 1
		case o >= b.to:
			return -1
		}
		return 0
	})
	if !found || p.blocks[i].again {
		return nil
	}
	b := p.blocks[i]
	for pr, c := range b.counts {
		if meant(pr, c, sel) {
			return nil
		}
	}
	return b
}

func meant(pr *print, c *count, sel *Selection) bool {
	if pr.print != other {
		if sel.Fingerprint != "" && sel.Fingerprint != pr.print || sel.Class != "" && sel.Class != pr.class {
			return false
		}
	}
	if !sel.Since.IsZero() && c.last < sel.Since.UnixMilli() || !sel.Until.IsZero() && c.first >= sel.Until.UnixMilli() {
		return false
	}
	return c.n > 0
}

func cutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
