package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A process that dies right after its first start has fixed where the group
// begins: records that come while nothing runs are not passed over.
func TestCrashRightAfterTheStart(t *testing.T) {
	for _, one := range []struct {
		name string
		set  func(cfg *engine.Config, begin time.Time)
		want int // records
	}{
		{"latest", func(cfg *engine.Config, _ time.Time) { cfg.Start = engine.OffsetLatest }, 10},
		{"earliest", func(*engine.Config, time.Time) {}, 30},
		{"a time", func(cfg *engine.Config, begin time.Time) { cfg.StartTime = begin.Add(5 * time.Second) }, 20},
		{"a time to come", func(cfg *engine.Config, begin time.Time) { cfg.StartTime = begin.Add(time.Hour) }, 10},
	} {
		t.Run(one.name, func(t *testing.T) {
			inWorld(t, 2, []string{"t"}, func(w *world) {
				var c calls
				begin := time.Now()
				put := func(word string) {
					for i := range 10 {
						w.produce(&kgo.Record{Topic: "t", Partition: int32(i % 2), Value: fmt.Appendf(nil, "ok %s %d", word, i)})
					}
				}
				put("before")
				time.Sleep(10 * time.Second)
				put("later")
				m := &meddler{w: w}
				done := make(chan struct{}, 1)
				w.cluster.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
					select {
					case done <- struct{}{}:
					default:
					}
					return nil, nil, false
				})
				cfg := w.config(probe(&c))
				cfg.Dial = m.dial
				cfg.SessionTimeout = 6 * time.Second
				one.set(&cfg, begin)
				r := w.start(cfg)
				<-done // the first commit has come to the broker, before anything is handled
				time.Sleep(time.Millisecond)
				m.cut()
				r.stop()
				<-r.done
				handled := len(c.all())
				put("meanwhile")
				time.Sleep(time.Minute)
				cfg.Dial = w.net.DialContext
				if !cfg.StartTime.IsZero() {
					cfg.StartTime = time.Now() // as --start in a script might be
				}
				r = w.start(cfg)
				time.Sleep(20 * time.Second)
				r.end()
				seen := map[string]bool{}
				for _, one := range c.all() {
					seen[string(one.msg.Value)] = true
				}
				if len(seen) != one.want {
					t.Errorf("%d records were handled (%d before the crash), want %d", len(seen), handled, one.want)
				}
				for i := range 10 {
					if v := fmt.Sprint("ok meanwhile ", i); !seen[v] {
						t.Errorf("%q, which came while nothing ran, was passed over", v)
					}
				}
				if lag := w.lag("g", "t"); lag != 0 {
					t.Errorf("lag %d", lag)
				}
			})
		})
	}
}

// stamped writes a record with a timestamp that no client of ours can express: it
// counts nanoseconds.
func (w *world) stamped(topic string, at time.Time, value string) {
	w.t.Helper()
	r := kmsg.Record{Value: []byte(value)}
	r.Length = int32(len(r.AppendTo(nil)) - 1)
	b := kmsg.RecordBatch{Magic: 2, FirstTimestamp: at.UnixMilli(), MaxTimestamp: at.UnixMilli(), ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: 1, Records: r.AppendTo(nil)}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 1000
	rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	rt.Topic, rp.Records = topic, sealed(b.AppendTo(nil))
	rt.Partitions = append(rt.Partitions, rp)
	all, err := kadm.NewClient(w.client).ListTopics(w.t.Context(), topic)
	if err != nil {
		w.t.Fatal(err)
	}
	rt.TopicID = all[topic].ID // newer versions of the request name it so
	req.Topics = append(req.Topics, rt)
	res, err := req.RequestWith(w.t.Context(), w.client)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := kerr.ErrorForCode(res.Topics[0].Partitions[0].ErrorCode); err != nil {
		w.t.Fatal(err)
	}
}

// Timestamps of any kind are ordinary input.
func TestOddTimestamps(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		var c calls
		stamps := []time.Time{time.UnixMilli(-1), time.UnixMilli(0), time.Date(1970, 1, 2, 0, 0, 0, 0, time.UTC), time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)}
		for i, at := range stamps {
			w.stamped("t", at, fmt.Sprintf("fail 9 %d", i))
		}
		cfg := w.tiers(&c, 5*time.Second)
		r := w.start(cfg)
		time.Sleep(20 * time.Second)
		r.end()
		dead := w.read("t.dlq")
		if len(dead) != len(stamps) {
			t.Fatalf("%d dead letters, want %d", len(dead), len(stamps))
		}
		byOffset := map[string]*kgo.Record{} // records without a key end in any order
		for _, d := range dead {
			byOffset[headersOf(d)["X-Original-Offset"]] = d
		}
		now := time.Now()
		for i, at := range stamps {
			d := byOffset[fmt.Sprint(i)]
			if d == nil {
				t.Fatalf("%v: not in the DLQ", at)
			}
			got := c.of(fmt.Sprintf("fail 9 %d", i))
			if len(got) != 2 {
				t.Fatalf("%v: %d deliveries, want 2", at, len(got))
			}
			for _, one := range got {
				if !one.msg.Time.Equal(at) {
					t.Errorf("%v: attempt %d shows %v", at, one.msg.Attempt, one.msg.Time)
				}
			}
			if late := got[1].at.Sub(got[0].at) - 5*time.Second; late < 0 || late > 100*time.Millisecond {
				t.Errorf("%v: the retry came %v after its due time", at, late)
			}
			h := headersOf(d)
			if h["X-Original-Timestamp"] != fmt.Sprint(at.UnixMilli()) || h["X-Record-Id"] != fmt.Sprintf("t/0/%d@%d", i, at.UnixMilli()) {
				t.Errorf("%v: headers %v", at, h)
			}
			if age := now.Sub(d.Timestamp); age < 0 || age > time.Minute {
				t.Errorf("%v: the dead letter itself is of %v", at, d.Timestamp)
			}
		}
	})
}
