// Package backlog looks at the records that wait on retry topics: whose they
// are, and which of them their group has not passed yet.
package backlog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/kconsume/kconsume/engine/fetch"
	"github.com/kconsume/kconsume/engine/record"
	"github.com/kconsume/kconsume/engine/topics"
	"github.com/segmentio/kafka-go"
)

// Place is a partition.
type Place struct {
	Topic     string
	Partition int
}

// Span is what a partition holds.
type Span struct {
	Place
	Start, End int64 // offsets; the end is the high watermark
	Leader     int32
}

// Reader reads retry topics beside their consumers. It changes nothing. Its
// methods are safe for concurrent use.
type Reader struct {
	client    *kafka.Client
	transport kafka.RoundTripper
	addr      net.Addr
}

// New makes a reader. The client's transport must know the topics that are
// asked for: all, or those among its MetadataTopics.
func New(c *kafka.Client) *Reader {
	r := &Reader{client: c, transport: c.Transport, addr: c.Addr}
	if r.transport == nil {
		r.transport = kafka.DefaultTransport
	}
	return r
}

// Spans are the partitions of topics. A topic that does not exist is left out.
func (r *Reader) Spans(ctx context.Context, names []string) ([]Span, error) {
	if len(names) == 0 {
		return nil, nil
	}
	layouts, err := topics.Layouts(ctx, r.client, names)
	if err != nil {
		return nil, err
	}
	starts, err := r.offsets(ctx, layouts, kafka.FirstOffsetOf)
	if err != nil {
		return nil, err
	}
	ends, err := r.offsets(ctx, layouts, kafka.LastOffsetOf)
	if err != nil {
		return nil, err
	}
	var out []Span
	for _, n := range names {
		for p, leader := range layouts[n].Leaders {
			at := Place{n, p}
			out = append(out, Span{at, starts[at], ends[at], leader})
		}
	}
	return out, nil
}

// offsets lists one offset of each partition. Beginnings and ends are asked for
// apart: kafka-go tells several answers of a partition apart by their values only.
func (r *Reader) offsets(ctx context.Context, layouts map[string]topics.Layout, which func(int) kafka.OffsetRequest) (map[Place]int64, error) {
	ask := map[string][]kafka.OffsetRequest{}
	for name, l := range layouts {
		for p := range l.Leaders {
			ask[name] = append(ask[name], which(p))
		}
	}
	out := map[Place]int64{}
	if len(ask) == 0 {
		return out, nil
	}
	res, err := r.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: ask})
	if err != nil {
		return nil, fmt.Errorf("list offsets: %w", err)
	}
	for name, parts := range res.Topics {
		for _, p := range parts {
			if p.Error != nil {
				return nil, fmt.Errorf("list offsets of %s/%d: %w", name, p.Partition, p.Error)
			}
			out[Place{name, p.Partition}] = max(p.FirstOffset, p.LastOffset)
		}
	}
	return out, nil
}

// Committed are a group's offsets in spans; −1 = none.
func (r *Reader) Committed(ctx context.Context, group string, spans []Span) (map[Place]int64, error) {
	ask := map[string][]int{}
	for _, s := range spans {
		ask[s.Topic] = append(ask[s.Topic], s.Partition)
	}
	out := map[Place]int64{}
	if len(ask) == 0 {
		return out, nil
	}
	res, err := r.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: ask})
	if err == nil {
		err = res.Error
	}
	if errors.Is(err, kafka.GroupIdNotFound) {
		for _, s := range spans {
			out[s.Place] = -1
		}
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read committed offsets of group %q: %w", group, err)
	}
	for topic, parts := range res.Topics {
		for _, p := range parts {
			if p.Error != nil {
				return nil, fmt.Errorf("read committed offset of group %q in %s/%d: %w", group, topic, p.Partition, p.Error)
			}
			out[Place{topic, p.Partition}] = p.CommittedOffset
		}
	}
	return out, nil
}

const (
	scanBytes   = 1 << 20
	scanWait    = 100 * time.Millisecond
	scanInflate = 64 << 20
	scanTries   = 5
	scanPause   = 200 * time.Millisecond
)

// Budget bounds what scans read.
type Budget struct {
	Bytes int // as on the wire, what is left
}

// Scan shows the committed records of a span from an offset on, and returns the
// offset behind the last one that it passed: the span's end, unless the budget
// is spent, a transaction is open, or visit returned an error. It holds one
// fetch in memory at a time; a record is visit's until it returns.
func (r *Reader) Scan(ctx context.Context, s Span, from int64, b *Budget, visit func(*record.Record) error) (next int64, err error) {
	at := max(from, s.Start)
	most, tries := int32(scanBytes), 0
	for at < s.End && b.Bytes > 0 {
		part, err := r.fetch(ctx, s, at, most)
		if err != nil {
			return at, fmt.Errorf("read %s/%d at offset %d: %w", s.Topic, s.Partition, at, err)
		}
		if errors.Is(part.Err, kafka.OffsetOutOfRange) && at < part.LogStart {
			at = part.LogStart // retention was faster
			continue
		}
		b.Bytes -= part.Wire
		for i := range part.Set.Records {
			rec := &part.Set.Records[i]
			if rec.Offset >= s.End {
				return s.End, nil
			}
			if err := visit(rec); err != nil {
				return rec.Offset, err
			}
		}
		if part.Err != nil {
			return part.Set.Next, fmt.Errorf("read %s/%d at offset %d: %w", s.Topic, s.Partition, part.Set.Next, part.Err)
		}
		switch {
		case part.Set.Next > at:
			at, tries = part.Set.Next, 0
			continue
		case part.LastStable >= 0 && at >= part.LastStable:
			return at, nil // an open transaction: nobody may read on
		case part.Set.Truncated > int(most):
			most = int32(part.Set.Truncated)
		}
		if tries++; tries == scanTries {
			return at, fmt.Errorf("read %s/%d at offset %d: nothing comes, and the topic ends at %d", s.Topic, s.Partition, at, s.End)
		}
	}
	return min(at, max(s.End, from)), nil
}

// fetch reads once, after a while again where the leader has moved.
func (r *Reader) fetch(ctx context.Context, s Span, at int64, most int32) (fetch.Part, error) {
	for tries := 1; ; tries++ {
		a, err := fetch.Do(ctx, r.transport, r.addr, fetch.Request{
			Broker: s.Leader, ClientID: topics.ClientID(r.transport), MaxWait: scanWait, MinBytes: 1, MaxBytes: most,
			ReadCommitted: true, MaxInflate: scanInflate,
			Wants: []fetch.Want{{Topic: s.Topic, Partition: int32(s.Partition), Offset: at, MaxBytes: most, LeaderEpoch: -1}},
		})
		var failed error
		switch {
		case err != nil:
			failed = err
		case errors.Is(a.Parts[0].Err, kafka.NotLeaderForPartition), errors.Is(a.Parts[0].Err, kafka.LeaderNotAvailable):
			failed = a.Parts[0].Err
		default:
			return a.Parts[0], nil
		}
		if tries == scanTries || ctx.Err() != nil {
			return fetch.Part{}, failed
		}
		select {
		case <-time.After(scanPause):
		case <-ctx.Done():
			return fetch.Part{}, failed
		}
		if l, err := topics.Layouts(ctx, r.client, []string{s.Topic}); err == nil && s.Partition < len(l[s.Topic].Leaders) {
			s.Leader = l[s.Topic].Leaders[s.Partition]
		}
	}
}

// Header is the last header of a name, as the engine reads its own.
func Header(rec *record.Record, name string) (string, bool) {
	for i := len(rec.Headers) - 1; i >= 0; i-- {
		if rec.Headers[i].Key == name {
			return string(rec.Headers[i].Value), true
		}
	}
	return "", false
}
