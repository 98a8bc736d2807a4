package sim

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The main topic is compacted as far as its chaff goes: records that the producer
// marks as such, and those of aborted transactions. The brokers would not do that
// to it (records without a key are none of a compacted topic), so it is done on the
// members' wires: what is gone is missing in what they are answered, from then on
// and for all of them. As in a compacted log, a batch keeps its first and last
// offset, whichever of its records are left, and one of which none is left may
// stay as an empty one or be gone, but for the last one of a log.

// compact takes out of a partition what can be. A position that nobody was done
// with counts as accounted for.
func (l *ledger) compact(tp topicPartition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.settleLog(tp)
	for _, p := range g.positions {
		if r := p.rec; r != nil && (r.in.Chaff || r.aborted) && !r.compacted {
			r.compacted = true
			g.holes++
		}
	}
}

// sieve leaves out of an answer to a fetch what compaction has taken out of the
// log.
func (w *world) sieve(q request, frame []byte) []byte {
	if !w.ledger.compacted() {
		return frame
	}
	res, at, err := decodeFetched(q.version, frame)
	if err != nil {
		panic(err)
	}
	n := 0
	for i := range res.Topics {
		t := &res.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if t.Topic == mainTopic && p.ErrorCode == 0 {
				p.RecordBatches = w.ledger.sieve(topicPartition{t.Topic, p.Partition}, p.RecordBatches, &n)
			}
		}
	}
	if n == 0 {
		return frame
	}
	w.hit(Compact, n)
	out := res.AppendTo(append([]byte(nil), frame[:at]...))
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}

// compacted reports whether anything is.
func (l *ledger) compacted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.logs {
		if g.holes > 0 {
			return true
		}
	}
	return false
}

// sieve leaves out of batches what is gone, and counts those that it concerns.
func (l *ledger) sieve(tp topicPartition, batches []byte, n *int) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.log(tp)
	if g.holes == 0 {
		return batches
	}
	out := make([]byte, 0, len(batches))
	for len(batches) > 12 {
		size := 12 + int(binary.BigEndian.Uint32(batches[8:]))
		if size > len(batches) {
			break
		}
		var b kmsg.RecordBatch
		if err := b.ReadFrom(batches[:size]); err != nil {
			panic(err) // the brokers' answer
		}
		whole := batches[:size]
		batches = batches[size:]
		if !g.holed(&b) {
			out = append(out, whole...)
			continue
		}
		*n++
		g.thin(&b)
		if b.NumRecords > 0 || len(batches) == 0 || b.FirstOffset%2 == 0 {
			out = append(out, sealed(&b)...)
		}
	}
	return out
}

// holed reports whether a batch has records that are gone.
func (g *log) holed(b *kmsg.RecordBatch) bool {
	for o := b.FirstOffset; o <= b.FirstOffset+int64(b.LastOffsetDelta) && o < int64(len(g.positions)); o++ {
		if r := g.positions[o].rec; r != nil && r.compacted {
			return true
		}
	}
	return false
}

// thin takes the records out of a batch that are gone.
func (g *log) thin(b *kmsg.RecordBatch) {
	var kept []byte
	n := int32(0)
	err := eachRecord(b, func(raw []byte, r *kmsg.Record) {
		if rec := g.positions[b.FirstOffset+int64(r.OffsetDelta)].rec; rec == nil || !rec.compacted {
			kept = append(kept, raw...)
			n++
		}
	})
	if err != nil {
		panic(err) // the brokers' answer
	}
	b.Records, b.NumRecords = kept, n
	b.Attributes &^= 7 // not compressed any more
}

// sealed is a batch with its length and checksum set right.
func sealed(b *kmsg.RecordBatch) []byte {
	const beforeLength, crcAt, attributesAt = 12, 17, 21
	out := b.AppendTo(nil)
	binary.BigEndian.PutUint32(out[8:], uint32(len(out)-beforeLength))
	binary.BigEndian.PutUint32(out[crcAt:], crc32.Checksum(out[attributesAt:], crc32.MakeTable(crc32.Castagnoli)))
	return out
}

// moveStart has retention delete the records of a partition of the main topic, up
// to somewhere between what is committed and its end.
func (w *world) moveStart(f Fault) {
	tp := topicPartition{mainTopic, f.Partition}
	info := w.cluster.PartitionInfo(tp.topic, tp.partition)
	from := max(w.committed()[tp.topic][tp.partition], info.LogStartOffset)
	to := from + (info.LastStableOffset-from)*int64(f.Count)/maxCount
	if to <= info.LogStartOffset {
		return
	}
	w.hit(MoveStart, w.ledger.expire(tp, to))
	if err := w.cluster.DeleteRecords(tp.topic, tp.partition, to); err != nil {
		panic(err)
	}
}

// expire notes that retention takes positions below an offset, and returns how
// many of them nobody was done with: what becomes of those is the topic's owner's
// business.
func (l *ledger) expire(tp topicPartition, to int64) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.settleLog(tp).positions[:to] {
		if !p.accounted() {
			p.rec.gone = true
			n++
		}
	}
	return n
}
