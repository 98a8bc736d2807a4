package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kconsume/kconsume/engine/fetch"
	"github.com/kconsume/kconsume/engine/record"
	"github.com/kconsume/kconsume/engine/topics"
	"github.com/segmentio/kafka-go"
)

// ErrMissing is that the state topic does not exist.
var ErrMissing = errors.New("the topic does not exist: create it with kconsume topics apply")

var errAnew = errors.New("it was made anew: what it said is forgotten")

const (
	followBytes   = 4 << 20
	followWait    = time.Second // how long a broker holds an empty answer back
	followInflate = 64 << 20
	retryMin      = 100 * time.Millisecond
	retryMax      = 2 * time.Second
	// missingPatience is how long after the start the topic may be missing
	// without a word in the log.
	missingPatience = 15 * time.Second
	// lookEvery is how often the topic's identity is asked for, so that a topic
	// that was made anew is noticed.
	lookEvery = 5 * time.Second
)

// Put is an entry to write. A nil value is a tombstone.
type Put struct {
	Key   string
	Value any // made JSON
}

// Log follows a state topic and writes to it. Its methods are safe for
// concurrent use; Run owns the following.
type Log struct {
	Topic string
	// Effect, if set, is called around every write, with a word for it.
	Effect func(what string, do func() error) error

	client *kafka.Client
	logger *slog.Logger

	// life is the topic's that the view is of; Run's own.
	life topics.ID

	mu      sync.Mutex
	view    *View
	behind  bool          // the view has not reached the end that the log had at the start
	problem error         // why nothing comes, nil = something does
	changed chan struct{} // closed and made anew whenever one of the above changes
}

// NewLog makes a log. The client's transport must know the topic.
func NewLog(c *kafka.Client, topic string, l *slog.Logger) *Log {
	return &Log{Topic: topic, client: c, logger: l, view: NewView(), behind: true, changed: make(chan struct{})}
}

// Run follows the log until ctx ends. What fails is tried again, and logged on
// change.
func (l *Log) Run(ctx context.Context) {
	begun := time.Now()
	pause, said := retryMin, ""
	for ctx.Err() == nil {
		err := l.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		l.set(func() { l.problem = err })
		// At the start it is about to be made.
		early := errors.Is(err, ErrMissing) && time.Since(begun) < missingPatience
		if text := err.Error(); text != said && !early {
			l.logger.Warn("the state of dead letters cannot be read: it is tried again", "topic", l.Topic, "error", err)
			said = text
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		if pause = min(2*pause, retryMax); l.healthy() {
			pause, said = retryMin, ""
		}
	}
}

func (l *Log) healthy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.problem == nil
}

// set changes something under the lock and wakes who waits for it.
func (l *Log) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

// follow reads on from where the view stands until something fails. A topic that
// was made anew, or was cut below that place, is read from its beginning.
func (l *Log) follow(ctx context.Context) error {
	lay, err := l.layout(ctx)
	if err != nil {
		return err
	}
	end, err := l.end(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	at := l.view.Next
	l.mu.Unlock()
	if at > end || l.life != lay.ID {
		at, l.life = 0, lay.ID
		l.forget()
	}
	most, looked := int32(followBytes), time.Now()
	for ctx.Err() == nil {
		if at >= end {
			l.set(func() { l.behind, l.problem = false, nil })
		}
		part, err := l.fetch(ctx, lay.Leaders[0], at, most)
		if err != nil {
			return err
		}
		switch {
		case errors.Is(part.Err, kafka.OffsetOutOfRange) && at < part.LogStart:
			at = part.LogStart
			continue
		case part.Err != nil:
			return fmt.Errorf("read %s at offset %d: %w%s", l.Topic, at, part.Err, topics.OnTopic(l.Topic, topics.ReadFrom).Advice(l.client, part.Err))
		}
		if len(part.Set.Records) > 0 || part.Set.Next > at {
			l.apply(&part, end)
			at, most = part.Set.Next, followBytes
		} else if part.Set.Truncated > int(most) {
			most = int32(part.Set.Truncated)
		}
		if time.Since(looked) >= lookEvery {
			looked = time.Now()
			now, err := l.layout(ctx)
			if err != nil {
				return err
			}
			if now.ID != l.life {
				return fmt.Errorf("read %s: %w", l.Topic, errAnew)
			}
			lay = now
		}
	}
	return nil
}

// forget begins with the view of an empty log.
func (l *Log) forget() { l.set(func() { l.view, l.behind = NewView(), true }) }

func (l *Log) layout(ctx context.Context) (topics.Layout, error) {
	all, err := topics.Layouts(ctx, l.client, []string{l.Topic})
	if err != nil {
		return topics.Layout{}, fmt.Errorf("look for %s: %w", l.Topic, err)
	}
	lay, ok := all[l.Topic]
	if !ok || len(lay.Leaders) == 0 {
		return topics.Layout{}, fmt.Errorf("read %s: %w", l.Topic, ErrMissing)
	}
	return lay, nil
}

// end is the offset behind the last entry that is written.
func (l *Log) end(ctx context.Context) (int64, error) {
	res, err := l.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{l.Topic: {kafka.LastOffsetOf(0)}}})
	var parts []kafka.PartitionOffsets
	if err == nil {
		parts = res.Topics[l.Topic]
	}
	if len(parts) == 1 {
		err = parts[0].Error
	}
	switch {
	case errors.Is(err, kafka.UnknownTopicOrPartition):
		return 0, fmt.Errorf("ask for the end of %s: %w", l.Topic, ErrMissing)
	case err != nil:
		return 0, fmt.Errorf("ask for the end of %s: %w%s", l.Topic, err, topics.OnTopic(l.Topic, topics.ReadFrom).Advice(l.client, err))
	case len(parts) != 1:
		return 0, fmt.Errorf("ask for the end of %s: no broker says", l.Topic)
	}
	return parts[0].LastOffset, nil
}

func (l *Log) fetch(ctx context.Context, leader int32, at int64, most int32) (fetch.Part, error) {
	a, err := fetch.Do(ctx, l.transport(), l.client.Addr, fetch.Request{
		Broker: leader, ClientID: topics.ClientID(l.transport()), MaxWait: followWait, MinBytes: 1, MaxBytes: most, MaxInflate: followInflate,
		Wants: []fetch.Want{{Topic: l.Topic, Offset: at, MaxBytes: most, LeaderEpoch: -1}},
	})
	if err != nil {
		return fetch.Part{}, fmt.Errorf("read %s: %w", l.Topic, err)
	}
	return a.Parts[0], nil
}

func (l *Log) transport() kafka.RoundTripper {
	if l.client.Transport == nil {
		return kafka.DefaultTransport
	}
	return l.client.Transport
}

// apply applies what came.
func (l *Log) apply(part *fetch.Part, end int64) {
	l.set(func() {
		for i := range part.Set.Records {
			l.view.Apply(entryOf(&part.Set.Records[i]))
		}
		l.view.Next = max(l.view.Next, part.Set.Next)
		l.problem = nil
		if l.view.Next >= end {
			l.behind = false
		}
	})
}

func entryOf(r *record.Record) Entry {
	e := Entry{Offset: r.Offset, Time: time.UnixMilli(r.Timestamp), Key: string(r.Key)}
	if r.Value != nil {
		e.Value = append([]byte{}, r.Value...) // the record's is the fetch's
	}
	return e
}

// Read shows the view, which f must not keep, once it has reached the end that
// the log had when Run began; it waits for that as long as ctx allows.
func (l *Log) Read(ctx context.Context, f func(*View)) error {
	return l.await(ctx, func() bool {
		if l.behind {
			return false
		}
		f(l.view)
		return true
	})
}

// Await waits until the entry at an offset has been applied.
func (l *Log) Await(ctx context.Context, offset int64) error {
	return l.await(ctx, func() bool { return !l.behind && l.view.Next > offset })
}

// Sync waits until everything that is in the log now has been applied.
func (l *Log) Sync(ctx context.Context) error {
	end, err := l.end(ctx)
	if err != nil {
		return err
	}
	return l.Await(ctx, end-1)
}

// Changed is closed at the next change of the view.
func (l *Log) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// await waits until done, which is called under the lock, says so. Its error
// tells what is in the way.
func (l *Log) await(ctx context.Context, done func() bool) error {
	for {
		l.mu.Lock()
		ok, changed, problem := done(), l.changed, l.problem
		l.mu.Unlock()
		if ok {
			return nil
		}
		if errors.Is(problem, ErrMissing) {
			return problem
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if problem != nil {
				return problem
			}
			return fmt.Errorf("the state of dead letters in %s is still being read: try again: %w", l.Topic, context.Cause(ctx))
		}
	}
}

// Append writes entries in one batch, which lies in the log whole or not at
// all, and returns the offset of the first. After an error it may lie there all
// the same, now or a little later: an entry that names what it follows does no
// harm then.
func (l *Log) Append(ctx context.Context, puts ...Put) (int64, error) {
	records := make([]kafka.Record, len(puts))
	for i, p := range puts {
		records[i] = kafka.Record{Key: kafka.NewBytes([]byte(p.Key)), Time: time.Now()}
		if p.Value == nil {
			continue
		}
		body, err := json.Marshal(p.Value)
		if err != nil {
			return 0, fmt.Errorf("write to %s: %w", l.Topic, err)
		}
		records[i].Value = kafka.NewBytes(body)
	}
	res, err := l.client.Produce(ctx, &kafka.ProduceRequest{
		Topic: l.Topic, RequiredAcks: kafka.RequireAll, Compression: kafka.Snappy, Records: kafka.NewRecordReader(records...),
	})
	if err == nil {
		err = res.Error
	}
	if err != nil {
		return 0, fmt.Errorf("write to %s: %w%s", l.Topic, err, topics.OnTopic(l.Topic, topics.WriteTo).Advice(l.client, err))
	}
	return res.BaseOffset, nil
}

// Update writes what decide asks for, reads the log past it and asks again,
// until decide wants nothing more: it looks at what is true now and says what is
// missing. An attempt whose end is not known is thereby looked up first.
func (l *Log) Update(ctx context.Context, what string, decide func(*View) []Put) error {
	for tries := 1; ; tries++ {
		var puts []Put
		if err := l.Read(ctx, func(v *View) { puts = decide(v) }); err != nil {
			return err
		}
		if len(puts) == 0 {
			return nil
		}
		if tries > updateTries {
			return fmt.Errorf("write to %s: others change the same again and again: try again", l.Topic)
		}
		var first int64
		err := l.effect(what, func() (err error) {
			first, err = l.Append(ctx, puts...)
			return err
		})
		if err == nil {
			err = l.Await(ctx, first+int64(len(puts))-1)
		} else if tries < updateTries && ctx.Err() == nil && !refused(err) {
			l.logger.Debug("write of state failed: it is looked up and tried again", "topic", l.Topic, "what", what, "error", err)
			if err = sleep(ctx, retryMin<<min(tries-1, 4)); err == nil {
				err = l.Sync(ctx)
			}
		}
		if err != nil {
			return err
		}
	}
}

// updateTries is how often Update writes.
const updateTries = 10

func (l *Log) effect(what string, do func() error) error {
	if l.Effect == nil {
		return do()
	}
	return l.Effect(what, do)
}

// ErrStopped is what an Effect returns where nothing more may be written.
var ErrStopped = errors.New("nothing is written any more")

// refused reports that trying again is of no use.
func refused(err error) bool {
	for _, is := range []error{ErrStopped, kafka.TopicAuthorizationFailed, kafka.ClusterAuthorizationFailed, kafka.MessageSizeTooLarge, kafka.InvalidRecord, kafka.PolicyViolation} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// At is the entry at an offset, false if it is not there any more.
func (l *Log) At(ctx context.Context, offset int64) (Entry, bool, error) {
	lay, err := l.layout(ctx)
	if err != nil {
		return Entry{}, false, err
	}
	part, err := l.fetch(ctx, lay.Leaders[0], offset, atBytes)
	if err == nil && part.Set.Truncated > atBytes {
		part, err = l.fetch(ctx, lay.Leaders[0], offset, int32(part.Set.Truncated))
	}
	if err != nil {
		return Entry{}, false, err
	}
	if len(part.Set.Records) == 0 || part.Set.Records[0].Offset != offset {
		return Entry{}, false, nil
	}
	return entryOf(&part.Set.Records[0]), true, nil
}

// atBytes is what one entry is asked for with.
const atBytes = 64 << 10
