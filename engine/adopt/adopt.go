// Package adopt hands records that wait on retry topics over from a group that
// is gone to another: a consumer group was renamed, and nobody reads what waits
// under the old name.
package adopt

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/kconsume/kconsume/engine/backlog"
	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/engine/record"
	"github.com/segmentio/kafka-go"
)

// ErrInUse is that the group to take over from still has members.
var ErrInUse = errors.New("the group has members")

// Bounds of one write. A topic may take less: then it is cut in halves.
const (
	batchRecords = 250
	batchBytes   = 900 << 10
)

// listGroups bounds how many groups List tells apart.
const listGroups = 1000

// Waiting is what waits for one group on one topic.
type Waiting struct {
	Topic    string
	Group    string
	State    string // of the group: "Stable", "Empty", "Dead" = there is none; "" = it could not be asked
	Members  int
	Records  int
	FirstDue time.Time // the zero time if no record says
}

// List is what waits on topics, by topic and group. A group's records below its
// committed offset are settled and do not count.
func List(ctx context.Context, c *kafka.Client, topics []string) ([]Waiting, error) {
	r := backlog.New(c)
	spans, err := r.Spans(ctx, topics)
	if err != nil {
		return nil, err
	}
	l := lister{Reader: r, spans: spans, groups: map[string]map[backlog.Place]int64{}, found: map[[2]string]*Waiting{}}
	for _, s := range spans {
		_, err := r.Scan(ctx, s, s.Start, unbounded(), func(rec *record.Record) error { return l.see(ctx, s, rec) })
		if err != nil {
			return nil, err
		}
	}
	return l.list(ctx), nil
}

func unbounded() *backlog.Budget { return &backlog.Budget{Bytes: int(^uint(0) >> 1)} }

type lister struct {
	*backlog.Reader
	spans  []backlog.Span
	groups map[string]map[backlog.Place]int64 // committed offsets of those seen
	found  map[[2]string]*Waiting
}

func (l *lister) see(ctx context.Context, s backlog.Span, rec *record.Record) error {
	group, ok := backlog.Header(rec, history.HeaderGroup)
	if !ok {
		return nil
	}
	committed, known := l.groups[group]
	if !known {
		if len(l.groups) == listGroups {
			return fmt.Errorf("list what waits: more than %d groups have records on these topics: name fewer topics", listGroups)
		}
		var err error
		if committed, err = l.Committed(ctx, group, l.spans); err != nil {
			return err
		}
		l.groups[group] = committed
	}
	if rec.Offset < committed[s.Place] {
		return nil
	}
	w := l.found[[2]string{s.Topic, group}]
	if w == nil {
		w = &Waiting{Topic: s.Topic, Group: group}
		l.found[[2]string{s.Topic, group}] = w
	}
	w.Records++
	if due, ok := dueOf(rec); ok && (w.FirstDue.IsZero() || due.Before(w.FirstDue)) {
		w.FirstDue = due
	}
	return nil
}

// dueOf is when a record is due, as its header says.
func dueOf(rec *record.Record) (time.Time, bool) {
	text, _ := backlog.Header(rec, history.HeaderDue)
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms <= 0 || ms > maxDue {
		return time.Time{}, false
	}
	return time.UnixMilli(ms), true
}

// maxDue is the end of the year 9999 in unix ms: what lies beyond is no time of ours.
const maxDue = 253402300799999

func (l *lister) list(ctx context.Context) []Waiting {
	states := map[string]backlog.State{}
	var out []Waiting
	for _, w := range l.found {
		s, asked := states[w.Group]
		if !asked {
			s, _ = l.Group(ctx, w.Group) // what may not be asked is shown as unknown
			states[w.Group] = s
		}
		w.State, w.Members = s.Name, s.Members
		out = append(out, *w)
	}
	slices.SortFunc(out, func(a, b Waiting) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Group, b.Group))
	})
	return out
}

// Plan says what is to be handed over.
type Plan struct {
	From, To string
	Topics   []string // those that the records wait on
	// Apply does it; else it is only counted.
	Apply bool
	// Progress, if set, is told of the records handed over so far.
	Progress func(records int)
}

// Moved is how many records were, or would be, handed over on one topic.
type Moved struct {
	Topic   string `json:"topic"`
	Records int    `json:"records"`
}

// Run copies the waiting records of a group to the end of the topic that they
// wait on, under the other group's name: same partition, same due time, same
// attempts. As it goes it commits the old group's offsets past what was copied,
// so that a second run finds nothing, and one after a crash repeats one write at
// most. It refuses a group that has members (ErrInUse), and so do the brokers
// should one come meanwhile. It holds one fetch and one write in memory.
func Run(ctx context.Context, c *kafka.Client, p Plan) ([]Moved, error) {
	if p.From == p.To {
		return nil, fmt.Errorf("take over records: both groups are %q", p.To)
	}
	r := backlog.New(c)
	g, err := r.Group(ctx, p.From)
	if err != nil {
		return nil, err
	}
	if !g.Vacant() {
		return nil, fmt.Errorf("take over records of group %q: %w: it is %s with %d: stop them, or wait for their session timeout", p.From, ErrInUse, g.Name, g.Members)
	}
	spans, err := r.Spans(ctx, p.Topics)
	if err != nil {
		return nil, err
	}
	committed, err := r.Committed(ctx, p.From, spans)
	if err != nil {
		return nil, err
	}
	m := &mover{Plan: p, client: c, moved: map[string]int{}}
	for _, s := range spans {
		if err := m.span(ctx, r, s, max(committed[s.Place], s.Start)); err != nil {
			return m.sum(), fmt.Errorf("take over records of group %q on %s/%d: %w", p.From, s.Topic, s.Partition, err)
		}
	}
	return m.sum(), nil
}

// mover hands over partition by partition.
type mover struct {
	Plan
	client *kafka.Client
	moved  map[string]int
	total  int

	batch []copied
	bytes int
}

// copied is a record as it is written again. Null and empty stay apart.
type copied struct {
	key, value []byte
	headers    []kafka.Header
	offset     int64 // where it came from
}

func (m *mover) sum() []Moved {
	var out []Moved
	for topic, n := range m.moved {
		out = append(out, Moved{topic, n})
	}
	slices.SortFunc(out, func(a, b Moved) int { return cmp.Compare(a.Topic, b.Topic) })
	return out
}

// span hands over what one partition holds from an offset on.
func (m *mover) span(ctx context.Context, r *backlog.Reader, s backlog.Span, from int64) error {
	next, err := r.Scan(ctx, s, from, unbounded(), func(rec *record.Record) error {
		if group, ok := backlog.Header(rec, history.HeaderGroup); !ok || group != m.From {
			return nil
		}
		if !m.Apply {
			m.count(s.Topic, 1)
			return nil
		}
		if len(m.batch) > 0 && (len(m.batch) == batchRecords || m.bytes+sizeOf(rec) > batchBytes) {
			if err := m.flush(ctx, s, rec.Offset); err != nil {
				return err
			}
		}
		m.add(rec)
		return nil
	})
	if err != nil {
		return err
	}
	if !m.Apply || next == from {
		return nil
	}
	return m.flush(ctx, s, next)
}

func (m *mover) count(topic string, n int) {
	m.moved[topic] += n
	m.total += n
	if m.Progress != nil {
		m.Progress(m.total)
	}
}

// add queues a copy. Its bytes are its own: the record's are the scan's.
func (m *mover) add(rec *record.Record) {
	out := copied{key: bytes.Clone(rec.Key), value: bytes.Clone(rec.Value), offset: rec.Offset}
	m.bytes += sizeOf(rec)
	for _, h := range rec.Headers {
		value := bytes.Clone(h.Value)
		if h.Key == history.HeaderGroup {
			value = []byte(m.To)
		}
		out.headers = append(out.headers, kafka.Header{Key: h.Key, Value: value})
	}
	m.batch = append(m.batch, out)
}

// sizeOf is about what a record takes in a write.
func sizeOf(rec *record.Record) int {
	n := 64 + len(rec.Key) + len(rec.Value)
	for i := range rec.Headers {
		n += 16 + len(rec.Headers[i].Key) + len(rec.Headers[i].Value)
	}
	return n
}

// flush writes what is queued and lets the old group's offset follow.
func (m *mover) flush(ctx context.Context, s backlog.Span, next int64) error {
	if err := m.write(ctx, s, m.batch); err != nil {
		return err
	}
	m.batch, m.bytes = m.batch[:0], 0
	return m.commit(ctx, s, next)
}

// write sends records in their order, in halves where the topic takes no more
// at once. What went out before a failure is committed.
func (m *mover) write(ctx context.Context, s backlog.Span, batch []copied) error {
	if len(batch) == 0 {
		return nil
	}
	err := m.produce(ctx, s, batch)
	switch {
	case err == nil:
		m.count(s.Topic, len(batch))
		return nil
	case errors.Is(err, kafka.MessageSizeTooLarge) && len(batch) > 1:
		half := len(batch) / 2
		if err := m.write(ctx, s, batch[:half]); err != nil {
			return err
		}
		if err := m.commit(ctx, s, batch[half].offset); err != nil {
			return err
		}
		return m.write(ctx, s, batch[half:])
	case errors.Is(err, kafka.MessageSizeTooLarge):
		return fmt.Errorf("the record at offset %d is too large under the new name: %w: raise max.message.bytes of %s a little", batch[0].offset, err, s.Topic)
	}
	return fmt.Errorf("write: %w", err)
}

func (m *mover) produce(ctx context.Context, s backlog.Span, batch []copied) error {
	records := make([]kafka.Record, len(batch))
	for i, c := range batch {
		records[i] = kafka.Record{
			Key: kafka.NewBytes(c.key), Value: kafka.NewBytes(c.value), Headers: c.headers,
			Time: time.Now(), // none would be 1970, which retention deletes at once
		}
	}
	res, err := m.client.Produce(ctx, &kafka.ProduceRequest{
		Topic: s.Topic, Partition: s.Partition, RequiredAcks: kafka.RequireAll, Compression: kafka.Snappy,
		Records: kafka.NewRecordReader(records...),
	})
	if err != nil {
		return err
	}
	return res.Error
}

// commit moves the old group's offset. Brokers refuse it while the group has
// members.
func (m *mover) commit(ctx context.Context, s backlog.Span, offset int64) error {
	res, err := m.client.OffsetCommit(ctx, &kafka.OffsetCommitRequest{
		GroupID: m.From, GenerationID: -1,
		Topics: map[string][]kafka.OffsetCommit{s.Topic: {{Partition: s.Partition, Offset: offset}}},
	})
	if err != nil {
		return fmt.Errorf("commit offset %d of the old group: %w", offset, err)
	}
	for _, parts := range res.Topics {
		for _, p := range parts {
			if errors.Is(p.Error, kafka.UnknownMemberId) || errors.Is(p.Error, kafka.IllegalGeneration) || errors.Is(p.Error, kafka.RebalanceInProgress) {
				return fmt.Errorf("commit offset %d: %w: it came back meanwhile: stop it and run this again", offset, ErrInUse)
			}
			if p.Error != nil {
				return fmt.Errorf("commit offset %d of the old group: %w", offset, p.Error)
			}
		}
	}
	return nil
}
