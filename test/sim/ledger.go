package sim

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ledger is what the checker knows, and where it checks. Events come to it from
// the brokers' loop, from members' wires, from handlers and from deliverers; its
// mutex guards all of it and puts them in one order.
type ledger struct {
	schedule *Schedule
	history  *history
	// end is where a partition ends now. It may be called from the brokers'
	// loop and with mu held.
	end func(topicPartition) int64
	// committed is what the brokers hold as committed, under the same terms.
	committed func() map[string]map[int32]int64
	// partitions is how many a topic has, under the same terms.
	partitions func(topic string) int32

	mu         sync.Mutex
	inputs     map[topicPartition][]*record // main topic, by offset; nil = a marker
	former     map[string]*record           // of an earlier main topic, by id
	unsure     string                       // a topic that was made anew, of which members may not know yet
	logs       map[topicPartition]*log
	gens       map[int32]*generation
	latest     int32 // generation
	tenures    map[tenureID]*tenure
	lastChange time.Time // a position came to be accounted for
	quiet      bool      // no fault can be an excuse any more
	members    map[string]*member
	producers  map[topicPartition]*production
	violations []string
	failing    chan struct{} // closed by the first violation
	stats      Stats
}

type topicPartition struct {
	topic     string
	partition int32
}

func (tp topicPartition) String() string { return fmt.Sprintf("%s/%d", tp.topic, tp.partition) }

// record is an input that was produced, with what became of it.
type record struct {
	in        *Input
	partition int32
	offset    int64
	timestamp int64 // unix ms
	aborted   bool
	compacted bool // the log does not have it any more
	gone      bool // it was deleted, with its topic or by retention, before anybody was done with it

	sent      []*delivery
	handled   int         // the latest attempt that was acknowledged or dropped
	forwarded int         // the most failed attempts that a forward of it says; dead = in the DLQ
	copies    []*position // forwards of it, in the order in which the brokers took them
	emitted   int         // bit n: its emission n has arrived
}

// dead is more than the attempts of any record.
const dead = math.MaxInt32

// id is the record's stable id.
func (r *record) id() string { return recordID(r.partition, r.offset, r.timestamp) }

func recordID(partition int32, offset, timestamp int64) string {
	return fmt.Sprintf("%s/%d/%d@%d", mainTopic, partition, offset, timestamp)
}

// position is an offset of a topic.
type position struct {
	tp      topicPartition
	offset  int64
	rec     *record // nil = a marker
	failed  int     // in a forward: failed deliveries
	due     int64   // in a forward to a tier: unix ms
	emits   int     // in outTopic: which emission it is
	void    bool    // the broker did not apply it
	former  bool    // of an earlier topic
	applied bool
}

// log is a partition's positions. The last ones may be of a request that the
// broker has just taken and not yet applied.
type log struct {
	positions []*position
	applied   int   // known to be
	holes     int   // positions that compaction has taken out
	passed    int64 // commits up to here have been checked
	committed int64 // as last seen
}

func newLedger(s *Schedule, h *history) *ledger {
	return &ledger{
		schedule: s, history: h, inputs: map[topicPartition][]*record{}, former: map[string]*record{}, logs: map[topicPartition]*log{},
		gens: map[int32]*generation{}, tenures: map[tenureID]*tenure{}, members: map[string]*member{}, producers: map[topicPartition]*production{}, failing: make(chan struct{}),
		stats: Stats{Faults: map[Kind]int{}, Hits: map[Kind]int{}},
	}
}

// violate notes that an invariant does not hold. The caller holds mu.
func (l *ledger) violate(invariant, format string, args ...any) {
	text := fmt.Sprintf("%s  %s: ", l.history.now(), invariant) + fmt.Sprintf(format, args...)
	l.history.add(event{what: "VIOLATION", note: text})
	if len(l.violations) == 0 {
		close(l.failing)
	}
	if len(l.violations) < maxViolations {
		l.violations = append(l.violations, text)
	}
}

// maxViolations is how many violations of a seed are told.
const maxViolations = 20

// failed reports whether a violation was seen.
func (l *ledger) failed() bool {
	select {
	case <-l.failing:
		return true
	default:
		return false
	}
}

func (l *ledger) log(tp topicPartition) *log {
	g := l.logs[tp]
	if g == nil {
		g = &log{}
		l.logs[tp] = g
	}
	return g
}

// settleLog brings a log up to what the broker holds: what it did not apply goes,
// what it added by itself is a marker. The caller holds mu; the broker applies
// nothing meanwhile.
func (l *ledger) settleLog(tp topicPartition) *log {
	g := l.log(tp)
	end := int(l.end(tp))
	for len(g.positions) > end {
		last := g.positions[len(g.positions)-1]
		last.void = true
		g.positions = g.positions[:len(g.positions)-1]
		if tp.topic == mainTopic {
			l.inputs[tp] = l.inputs[tp][:len(g.positions)]
		}
	}
	for len(g.positions) < end {
		l.push(tp, &position{})
	}
	for ; g.applied < end; g.applied++ {
		l.apply(g.positions[g.applied])
	}
	return g
}

// push puts a position at the end of a log.
func (l *ledger) push(tp topicPartition, p *position) {
	g := l.log(tp)
	p.tp, p.offset = tp, int64(len(g.positions))
	g.positions = append(g.positions, p)
	if tp.topic == mainTopic {
		l.inputs[tp] = append(l.inputs[tp], p.rec)
	}
}

// apply notes that a topic holds a position.
func (l *ledger) apply(p *position) {
	p.applied = true
	l.lastChange = time.Now()
	if p.rec == nil {
		return
	}
	if p.tp.topic == mainTopic {
		p.rec.offset = p.offset
		if !p.rec.aborted {
			l.stats.Records++
		}
		return
	}
	if p.tp.topic == outTopic {
		p.rec.emitted |= 1 << p.emits
		l.stats.Emitted++
		return
	}
	failed := p.failed
	if p.tp.topic == dlqTopic {
		failed = dead
		l.stats.Dead++
	}
	p.rec.forwarded = max(p.rec.forwarded, failed)
}

// accounted reports whether a commit may pass a position: see I3.
func (p *position) accounted() bool {
	r := p.rec
	if r == nil || r.aborted || r.gone || r.compacted && p.tp.topic == mainTopic || r.handled > p.failed && r.emittedAll() || r.forwarded > p.failed {
		return true
	}
	for _, c := range r.copies {
		if c.applied && !c.former && c.tp == p.tp && c.failed == p.failed && c.offset > p.offset {
			return true
		}
	}
	return false
}

// production is a batch that the producer is writing.
type production struct {
	batch *Batch
	from  int // where its partition ended before
}

// producing notes which batch the producer writes to a partition next.
func (l *ledger) producing(tp topicPartition, b *Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.producers[tp] = &production{b, len(l.settleLog(tp).positions)}
}

// took notes records of the producer that a broker is about to apply, or to
// refuse: the batch may come in parts, and more than once.
func (l *ledger) took(tp topicPartition, rs []kmsgRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.settleLog(tp)
	p := l.producers[tp]
	for _, r := range rs {
		k := len(g.positions) - p.from
		if k >= len(p.batch.Records) {
			return // all of it is there: the broker will know it for a repetition
		}
		l.push(tp, &position{rec: &record{in: &p.batch.Records[k], partition: tp.partition, offset: int64(len(g.positions)), timestamp: r.timestamp, aborted: p.batch.Aborted}})
	}
}

// input is the record of the main topic, or of an earlier one, that has an offset
// and a timestamp; nil = there is none.
func (l *ledger) input(partition int32, offset, timestamp int64) *record {
	list := l.inputs[topicPartition{mainTopic, partition}]
	if offset >= 0 && offset < int64(len(list)) {
		if r := list[offset]; r != nil && r.timestamp == timestamp {
			return r
		}
	}
	return l.former[recordID(partition, offset, timestamp)]
}

// finish checks what holds at the end.
func (l *ledger) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, topic := range append(stageTopics(), dlqTopic, outTopic) {
		for p := range l.partitions(topic) {
			l.settleLog(topicPartition{topic, p})
		}
	}
	l.seeCommits()
	for _, topic := range stageTopics() {
		for p := range l.partitions(topic) {
			tp := topicPartition{topic, p}
			if g := l.log(tp); g.committed < int64(len(g.positions)) {
				l.violate("I1", "at the end %v is committed up to %d of %d", tp, g.committed, len(g.positions))
			}
		}
	}
	for _, list := range l.inputs {
		for _, r := range list {
			l.checkEnded(r)
		}
	}
	for _, r := range l.former {
		l.checkEnded(r)
	}
	l.stats.Generations = len(l.gens)
}

// checkEnded is I1 of a record at the end.
func (l *ledger) checkEnded(r *record) {
	switch {
	case r == nil || r.aborted || r.compacted || r.gone || r.forwarded == dead:
	case r.handled == 0 || !r.emittedAll():
		l.violate("I1", "%s was lost: neither in the DLQ nor handled (%d) with all that it emits (%b)", r.id(), r.handled, r.emitted)
	}
}

func unixMS(t time.Time) int64 { return t.UnixMilli() }

// sameBytes compares bytes and tells null from empty.
func sameBytes(a, b []byte) bool { return string(a) == string(b) && (a == nil) == (b == nil) }

// header is a header by what it holds.
type header struct {
	key   string
	value []byte
}

func headersOf(hs []kgo.RecordHeader) (out []header) {
	for _, h := range hs {
		out = append(out, header{h.Key, h.Value})
	}
	return out
}

func sameHeaders(a, b []header) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].key != b[i].key || !sameBytes(a[i].value, b[i].value) {
			return false
		}
	}
	return true
}
