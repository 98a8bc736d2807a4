package dlq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
	"github.com/kconsume/kconsume/engine/backlog"
	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/engine/topics"
	"github.com/segmentio/kafka-go"
)

const (
	sendTime  = 10 * time.Second // that one write may take; less than quietTime
	sendBytes = 900 << 10        // of one write of several records
)

// send sends what is ours and records it. errUnknown says that some may have
// been written and some not: they stay claimed.
func (r *runner) send(ctx context.Context, ours []claimed) error {
	var problem error
	for len(ours) > 0 && problem == nil {
		n := batch(ours)
		if !r.lease.holds() {
			return errUnknown // the lease may be another's: nothing is sent
		}
		problem = r.sendBatch(ctx, ours[:n])
		ours = ours[n:]
	}
	end, fatal := errors.AsType[*endedError](problem)
	if !fatal {
		return problem
	}
	return end
}

// batch is how many of the first records go together: of one partition, and not
// too many bytes.
func batch(ours []claimed) int {
	bytes := 0
	for i, c := range ours {
		bytes += c.letter.size
		if i > 0 && (c.id.Partition != ours[0].id.Partition || bytes > sendBytes) {
			return i
		}
	}
	return len(ours)
}

// sendBatch writes records at once and records what became of them. What the
// broker refuses of several is tried one by one.
func (r *runner) sendBatch(ctx context.Context, ours []claimed) error {
	base, err := r.produce(ctx, ours)
	if err == nil {
		return r.record(ctx, ours, base)
	}
	why, all, refusedIt := refusal(err)
	switch {
	case !refusedIt:
		if errors.Is(err, state.ErrStopped) {
			return err
		}
		r.logger.Warn("copies of dead letters could not be written: what became of them is looked up", "job", r.lease.id, "topic", r.job.Target, "error", err)
		return fmt.Errorf("%w: %w", errUnknown, err)
	case all:
		note := fmt.Sprintf("%s refuses: %v: %s%s", r.job.Target, err, why,
			topics.OnTopic(r.job.Target, topics.WriteTo).Advice(r.q.client, err))
		if err := r.release(ctx, ours, note); err != nil {
			return err
		}
		return &endedError{note}
	case len(ours) > 1:
		for i := range ours {
			if err := r.sendBatch(ctx, ours[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	}
	return r.release(ctx, ours, fmt.Sprintf("%s refuses it: %v: %s", r.job.Target, err, why))
}

// refusal tells whether a write was certainly not done, what to do about it, and
// whether the target refuses everything.
func refusal(err error) (why string, all, refused bool) {
	for _, k := range []struct {
		is  error
		all bool
		why string
	}{
		{kafka.MessageSizeTooLarge, false, "raise its max.message.bytes"},
		{kafka.RecordListTooLarge, false, "raise its max.message.bytes"},
		{kafka.InvalidRecord, false, "see whether it is compacted, which takes no record without a key"},
		{kafka.InvalidTimestamp, true, "set message.timestamp.type=LogAppendTime on it, or correct this host's clock"},
		{kafka.TopicAuthorizationFailed, true, "allow this user to write to it"},
		{kafka.ClusterAuthorizationFailed, true, "allow this user to write to it"},
		{kafka.UnknownTopicOrPartition, true, "create it with kconsume topics apply"},
		{kafka.PolicyViolation, true, "ask who runs the brokers"},
	} {
		if errors.Is(err, k.is) {
			return k.why, k.all, true
		}
	}
	return "", false, false
}

// produce writes copies in one batch and returns the offset of the first.
func (r *runner) produce(ctx context.Context, ours []claimed) (int64, error) {
	records := make([]kafka.Record, len(ours))
	for i, c := range ours {
		m := c.letter.meta.Replayed(c.replay)
		records[i] = kafka.Record{
			Key: kafka.NewBytes(c.letter.rec.Key), Value: kafka.NewBytes(c.letter.rec.Value), Time: time.Now(),
			Headers: m.Headers(c.letter.own(), false),
		}
	}
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	var base int64
	err := r.q.effect("send", func() error {
		res, err := r.q.client.Produce(ctx, &kafka.ProduceRequest{
			Topic: r.job.Target, Partition: int(ours[0].id.Partition), RequiredAcks: kafka.RequireAll, Compression: kafka.Snappy,
			Records: kafka.NewRecordReader(records...),
		})
		if err == nil {
			err = res.Error
		}
		if err == nil {
			base = res.BaseOffset
		}
		return err
	})
	return base, err
}

// record records what was sent, until that counts.
func (r *runner) record(ctx context.Context, ours []claimed, base int64) error {
	return r.q.log.Update(ctx, "sent", func(v *state.View) []state.Put {
		var puts []state.Put
		for i, c := range ours {
			if rec, ok := v.Record(c.id); ok && rec.Rec.Status == StatusClaimed && rec.Job == r.lease.id {
				puts = append(puts, r.sentPut(c.id, &rec, base+int64(i)))
			}
		}
		return puts
	})
}

// release frees what was not sent.
func (r *runner) release(ctx context.Context, ours []claimed, why string) error {
	why = cutText(why, MaxReason)
	err := r.q.log.Update(ctx, "release", func(v *state.View) []state.Put {
		var puts []state.Put
		for _, c := range ours {
			if rec, ok := v.Record(c.id); ok && rec.Rec.Status == StatusClaimed && rec.Job == r.lease.id {
				puts = append(puts, r.put(c.id, &rec, state.Release, why))
			}
		}
		return puts
	})
	if err == nil {
		r.skipped[why] += len(ours)
	}
	return err
}

// ends are the offsets behind the last records of a topic, by partition.
func (q *queue) ends(ctx context.Context, topic string) (map[int32]int64, error) {
	parts, err := q.reader.Spans(ctx, []string{topic})
	if err != nil {
		return nil, unavailable(err)
	}
	if len(parts) == 0 {
		return nil, &endedError{fmt.Sprintf("topic %s does not exist: create it with kconsume topics apply", topic)}
	}
	out := map[int32]int64{}
	for _, s := range parts {
		out[int32(s.Partition)] = s.End
	}
	return out, nil
}

// claim is a record that was claimed and may have been sent.
type claim struct {
	id     state.ID
	replay string
	from   int64 // where the target ended when it was claimed
}

// findings are what was found in a target.
type findings struct {
	at   map[string]*int64 // offset by replay id
	part map[int32]finding
}

type finding struct {
	whole bool // everything that had to be read was there
	why   string
}

// Bounds of a look into a target.
const (
	lookBytes = 2 << 30
	lookTime  = 5 * time.Minute
	lookFetch = 4 << 20
)

// look looks for copies in a target, from where it ended when they were claimed
// to where it ends now. What open transactions hide is read too.
func (q *queue) look(ctx context.Context, topic string, open []claim) (findings, error) {
	f := findings{at: map[string]*int64{}, part: map[int32]finding{}}
	parts, err := q.reader.Spans(ctx, []string{topic})
	if err != nil {
		return f, unavailable(err)
	}
	from, wanted := map[int32]int64{}, map[string]bool{}
	for _, c := range open {
		at, ok := from[c.id.Partition]
		if !ok || c.from < at {
			from[c.id.Partition] = c.from
		}
		wanted[c.replay] = true
	}
	budget, until := lookBytes, time.Now().Add(lookTime)
	for p, at := range from {
		if int(p) >= len(parts) {
			f.part[p] = finding{why: fmt.Sprintf("partition %d of %s, where its copy may be, is not there", p, topic)}
			continue
		}
		s := parts[p]
		switch {
		case s.Start > at:
			f.part[p] = finding{why: fmt.Sprintf("the part of %s/%d where its copy may be is deleted", topic, p)}
			at = s.Start
		case s.End < at:
			f.part[p] = finding{why: fmt.Sprintf("%s was made anew since its copy may have been written", topic)}
			continue
		default:
			f.part[p] = finding{whole: true}
		}
		if err := q.lookIn(ctx, &s, at, wanted, &f, &budget, until); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (q *queue) lookIn(ctx context.Context, s *backlog.Span, at int64, wanted map[string]bool, f *findings, budget *int, until time.Time) error {
	most := int32(lookFetch)
	for at < s.End {
		if *budget <= 0 || time.Now().After(until) {
			f.part[int32(s.Partition)] = finding{why: fmt.Sprintf("%s/%d holds too much to find its copy", s.Topic, s.Partition)}
			return nil
		}
		part, err := fetchPart(ctx, q.client, s, at, most, false)
		if err == nil {
			err = part.Err
		}
		if err != nil {
			return unavailable(fmt.Errorf("look for copies in %s/%d at offset %d: %w", s.Topic, s.Partition, at, err))
		}
		*budget -= part.Wire
		for i := range part.Set.Records {
			rec := &part.Set.Records[i]
			if id, ok := backlog.Header(rec, history.HeaderReplayID); ok && wanted[id] && f.at[id] == nil {
				offset := rec.Offset
				f.at[id] = &offset
			}
		}
		if part.Set.Next == at {
			if part.Set.Truncated <= int(most) {
				return refuse(KindUnavailable, "look for copies in %s/%d at offset %d: nothing comes: try again", s.Topic, s.Partition, at)
			}
			most = int32(part.Set.Truncated)
		}
		at = part.Set.Next
	}
	return nil
}
