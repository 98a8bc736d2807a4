package engine

import (
	"hash/maphash"
	"time"

	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/engine/record"
	"github.com/kconsume/kconsume/engine/topology"
	"github.com/kconsume/kconsume/metrics"
	"github.com/kconsume/kconsume/plugin"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// line is a main topic at work: its topics, what decides over its records, and
// its counters.
type line struct {
	topology.Line
	policy policy
	dead   prometheus.Counter
	retry  []prometheus.Counter // by tier
	fails  *prometheus.CounterVec
}

// lane is partition p of every stage of a line. It belongs to one member as a
// whole, and a key of it is handled by one call at a time.
type lane struct {
	line    *line
	id      int32
	keys    keys
	running running
}

// itemState is where a record is on its way:
//
//	waiting → queued → ready → flying → forwarding → (settled: gone)
//
// waiting and queued may be passed over; forwarding only where a verdict sends
// the record on. A displaced record goes from waiting to forwarding.
type itemState uint8

const (
	itemWaiting    itemState = iota + 1 // in the gate, not yet due
	itemQueued                          // behind another record of its key
	itemReady                           // its key is free for it, not yet sent
	itemFlying                          // with the handler
	itemForwarding                      // decided, its forward not yet acknowledged
)

// item is a record that was read and is not settled.
type item struct {
	rec   record.Record
	meta  *history.Meta // nil: a record of the main topic without a history
	due   int64         // unix ms, 0 = at once
	key   uint64
	keyed bool
	state itemState
	noted bool // written down in the journal
	chunk *chunk
	span  trace.Span // of its delivery; nil = not with the handler, or nobody traces
	trace string     // the traceparent of span, also when that has ended
}

// chunk is the memory of one fetch: it is held until its last record is settled.
type chunk struct {
	cost int
	live int
}

// itemCost is what a record costs beside its bytes: its entry in the tracker
// and its share of the queues.
const itemCost = 256

// partition is one partition of a stage that this member owns. The owner loop
// alone uses it, from the assignment until the last of its calls has ended.
type partition struct {
	idx   uint32 // names it in handles
	lane  *lane
	stage topology.Stage
	track tracker[item]
	gate  gate
	ready fifo // slots whose turn it is

	position  int64     // the next offset to fetch
	committed int64     // −1 = none yet
	high      int64     // high watermark, or the last stable offset, −1 = not known
	openAt    int64     // the offset at which an open transaction holds it up
	openSince time.Time // zero = none does
	leader    int32     // broker id, −1 = not known

	held      int       // bytes of chunks that are not settled
	busy      bool      // has records to hold, and so a full share
	share     int       // bytes it may hold
	grow      int       // bytes of one batch too large for share, 0 = none
	flying    int       // deliveries not yet answered
	careful   int       // records left that go one at a time, after an unclean end
	watchedAt time.Time // when the last of these was sent
	late      int       // calls answered at their deadline that still run
	inflation float64   // bytes held per byte fetched, of late
	fetching  bool
	pauseTo   time.Time // no fetch before: the last one failed
	problem   string    // why it does not go on
	lost      bool      // a broker says that its position does not exist
	anew      bool      // its topic was made anew: no commit until it begins again

	queued bool     // stands in the loop's turn list
	limit  uint64   // while draining: slots from here on are left to the next owner
	gone   bool     // lost: answers are dropped, nothing is committed
	outbox []parcel // decided while no generation was there to own them
	owed   int      // bytes emitted that its records wait for
	parked int      // records too large for their topic: nothing new is handled
	stuck  string   // what is to be done about them

	lateness prometheus.Observer
	handled  map[metrics.Outcome]prometheus.Counter
	tally    *tally // of the handler that answered last; nil before the first answer
}

// holdsBack reports that nothing new of it is to be handled: what was emitted
// takes up half its share, or a record is too large for its topic.
func (p *partition) holdsBack() bool { return p.parked > 0 || p.owed*2 > p.share }

// fifo is a queue of slots.
type fifo struct {
	slots []uint64
	taken int
}

func (f *fifo) push(slot uint64) { f.slots = append(f.slots, slot) }
func (f *fifo) len() int         { return len(f.slots) - f.taken }
func (f *fifo) peek() uint64     { return f.slots[f.taken] }

// takeBelow removes and returns the slots below a limit.
func (f *fifo) takeBelow(limit uint64) []uint64 {
	var taken []uint64
	kept := f.slots[:0]
	for _, s := range f.slots[f.taken:] {
		if s < limit {
			taken = append(taken, s)
		} else {
			kept = append(kept, s)
		}
	}
	f.slots, f.taken = kept, 0
	return taken
}

func (f *fifo) pop() uint64 {
	s := f.slots[f.taken]
	f.taken++
	switch {
	case f.taken == len(f.slots):
		f.slots, f.taken = f.slots[:0], 0
	case f.taken > 1024 && f.taken > len(f.slots)/2:
		f.slots = append([]uint64(nil), f.slots[f.taken:]...)
		f.taken = 0
	}
	return s
}

// admission is what a record turns out to be when it is read.
type admission struct {
	skip    bool   // another group's: not ours to handle
	group   string // skip: whose it is
	foreign bool   // on one of our topics, without our headers
	meta    *history.Meta
	due     int64 // unix ms, 0 = at once
}

// admit reads a record's history. Our headers count only where we write them:
// on our own tiers and replay topic, for our own group, and on the main topic
// for a replay to the source. A due time is never believed beyond the tier's
// delay from now: a record waits at most that long, whatever its header says.
func admit(stage topology.Stage, main, group string, rec *record.Record, partition int32, maxAttempts int, now int64) admission {
	if len(rec.Headers) == 0 {
		return admission{foreign: stage.Name != stageMain}
	}
	at := history.Origin{Topic: stage.Topic, Partition: partition, Offset: rec.Offset, Timestamp: rec.Timestamp}
	m := history.Read(rec.Headers, at, maxAttempts)
	if stage.Name == stageMain {
		if m.ReplayID == "" || m.Group != group || m.Origin.Topic != main {
			return admission{}
		}
		return admission{meta: &m}
	}
	switch {
	case m.Group == "":
		return admission{foreign: true}
	case m.Group != group:
		return admission{skip: true, group: m.Group}
	case stage.Delay == 0:
		return admission{meta: &m}
	}
	if m.Due == 0 {
		m.Due = rec.Timestamp + stage.Delay.Milliseconds()
	}
	m.Due = max(1, min(m.Due, now+stage.Delay.Milliseconds()))
	return admission{meta: &m, due: m.Due}
}

const (
	stageMain   = "main"
	stageReplay = "replay"
)

// orderKey is the key that a record occupies, if its order has one. Records
// without a key occupy none: no key is not a key.
func orderKey(o Order, seed maphash.Seed, stage topology.Stage, rec *record.Record) (key uint64, keyed bool) {
	switch {
	case o == OrderPartition:
		return maphash.String(seed, stage.Topic), true
	case o == OrderNone || rec.Key == nil:
		return 0, false
	}
	return maphash.Bytes(seed, rec.Key), true
}

// message is what a handler is shown of an item.
func (p *partition) message(it *item) plugin.Message {
	m := plugin.Message{
		Topic: p.stage.Topic, Partition: p.lane.id, Offset: it.rec.Offset, Time: msTime(it.rec.Timestamp),
		Key: it.rec.Key, Value: it.rec.Value, Headers: history.Own(it.rec.Headers),
		Attempt: 1, MaxAttempts: p.lane.line.policy.maxAttempts, Stage: p.stage.Name,
	}
	if it.meta != nil {
		o := &it.meta.Origin
		m.ID = it.meta.RecordID
		m.Topic, m.Partition, m.Offset, m.Time = o.Topic, o.Partition, o.Offset, msTime(o.Timestamp)
		m.Attempt = it.meta.Failed + 1
	}
	return m
}

// policy is the line's, for a leftover tier without the tiers up to its delay.
func (p *partition) policy() policy {
	pol := p.lane.line.policy
	if p.stage.Leftover {
		pol.after = p.stage.Delay
	}
	return pol
}

// past is the item's history, made up for a record that has none yet.
func (p *partition) past(it *item) history.Meta {
	if it.meta != nil {
		return *it.meta
	}
	return history.Meta{Origin: history.Origin{Topic: p.stage.Topic, Partition: p.lane.id, Offset: it.rec.Offset, Timestamp: it.rec.Timestamp}}
}

func msTime(ms int64) time.Time { return time.UnixMilli(ms) }

// handle names a delivery: the partition's index and the record's slot.
const slotBits = 40

func (p *partition) handle(slot uint64) uint64 { return uint64(p.idx)<<slotBits | slot&(1<<slotBits-1) }
