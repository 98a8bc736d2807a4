package engine_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/plugin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A member that stood still delivers nothing until the group has confirmed that
// its partitions are still its own.
func TestFrozenMemberAsksFirst(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		var c calls
		var silent, freeze atomic.Bool
		w.cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			if !silent.Load() {
				return nil, nil, false
			}
			return refuseCommit(req.(*kmsg.OffsetCommitRequest), kerr.CoordinatorLoadInProgress), nil, true
		})
		cfg := w.config(probe(&c))
		cfg.Observer = func(e engine.Event) {
			if e.Kind == engine.EventAcked && freeze.CompareAndSwap(true, false) {
				time.Sleep(25 * time.Second) // the whole loop stands still
			}
		}
		r := w.start(cfg)
		time.Sleep(5 * time.Second)
		freeze.Store(true)
		silent.Store(true)
		w.produce(values("t", "ok")...)
		time.Sleep(time.Second)
		w.produce(values("t", "ok")...)
		time.Sleep(35 * time.Second) // it has gone on for ten
		if n := len(c.all()); n != 1 {
			t.Errorf("%d deliveries, want 1: it went on though the group had not confirmed", n)
		}
		silent.Store(false)
		time.Sleep(5 * time.Second)
		r.end()
		if n := len(c.all()); n != 2 {
			t.Errorf("%d deliveries after the group had confirmed, want 2", n)
		}
	})
}

// refuseCommit answers a commit with an error for every partition.
func refuseCommit(req *kmsg.OffsetCommitRequest, e *kerr.Error) kmsg.Response {
	res := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	for _, topic := range req.Topics {
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic = topic.Topic
		for _, part := range topic.Partitions {
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition, rp.ErrorCode = part.Partition, e.Code
			rt.Partitions = append(rt.Partitions, rp)
		}
		res.Topics = append(res.Topics, rt)
	}
	return res
}

// Where a full tier has long waits in front of what is settled, those are
// written again behind: the commit does not lag by their wait.
func TestFullTierIsUnclogged(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		var c calls
		h := plugin.HandlerFunc(func(_ context.Context, m *plugin.Message) error {
			c.add(m)
			if m.Attempt > 1 {
				return nil
			}
			if m.Value[0] == 'A' {
				return plugin.RetryAfter(errGateway, 50*time.Second)
			}
			return plugin.RetryAfter(errGateway, 10*time.Second)
		})
		body := bytes.Repeat([]byte("x"), 10<<10)
		for i := range 40 {
			v := append([]byte("B"), body...)
			if i%4 == 0 {
				v[0] = 'A'
			}
			w.produce(&kgo.Record{Topic: "t", Value: v})
		}
		cfg := w.config(h)
		cfg.Retry = []time.Duration{time.Minute}
		cfg.MaxBuffer = 1 << 20
		r := w.start(cfg)
		time.Sleep(20 * time.Second) // the short waits are over, the long ones are not
		if lag := w.lag("g", "t.retry.1m"); lag > 15 {
			t.Errorf("lag %d on the tier: the commit waits for the longest", lag)
		}
		time.Sleep(time.Minute)
		r.end()
		if n := len(c.all()); n != 80 {
			t.Errorf("%d deliveries, want 80", n)
		}
		if lag := w.lag("g", "t", "t.retry.1m"); lag != 0 {
			t.Errorf("lag %d at the end", lag)
		}
	})
}
