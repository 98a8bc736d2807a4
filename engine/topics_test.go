package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/engine/record"
	"github.com/kconsume/kconsume/engine/topology"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// grow gives a topic more partitions.
func (w *world) grow(topic string, partitions int) {
	w.t.Helper()
	res, err := kadm.NewClient(w.client).UpdatePartitions(w.t.Context(), partitions, topic)
	if err == nil {
		err = res.Error()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.client.ForceMetadataRefresh()
	time.Sleep(3 * time.Second) // the producer learns of it
}

// partitions is how many a topic has.
func (w *world) partitions(topic string) int {
	return len(w.cluster.PartitionInfos(topic))
}

// The main topic grows under running members: the topics beside it grow before
// a new partition of it is read, and within a minute all are.
func TestMainTopicGrows(t *testing.T) {
	inWorld(t, 2, []string{"t"}, func(w *world) {
		var c calls
		var early, grew atomic.Int32
		w.cluster.ControlKey(int16(kmsg.CreatePartitions), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			for _, topic := range req.(*kmsg.CreatePartitionsRequest).Topics {
				if topic.Topic != "t" {
					grew.Add(1)
				}
			}
			return nil, nil, false
		})
		w.cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			for _, topic := range req.(*kmsg.FetchRequest).Topics {
				for _, p := range topic.Partitions {
					if topic.Topic == "t" && p.Partition >= 2 && grew.Load() < 4 {
						early.Add(1)
					}
				}
			}
			return nil, nil, false
		})
		cfg := w.tiers(&c, 5*time.Second, 30*time.Second)
		cfg.Start = engine.OffsetLatest
		a, b := w.start(cfg), w.start(w.tiers(&c, 5*time.Second, 30*time.Second))
		time.Sleep(20 * time.Second)
		w.grow("t", 6)
		grown := time.Now()
		w.failing("t", 60, 6)
		time.Sleep(time.Minute)
		if n := early.Load(); n > 0 {
			t.Errorf("a new partition was read %d times before ours had grown", n)
		}
		seen := map[int32]time.Duration{}
		for _, one := range c.all() {
			if _, ok := seen[one.msg.Partition]; !ok {
				seen[one.msg.Partition] = one.at.Sub(grown)
			}
		}
		for p := range int32(6) {
			if at, ok := seen[p]; !ok || at > time.Minute {
				t.Errorf("partition %d was first read %v after it came", p, at)
			}
		}
		time.Sleep(time.Minute)
		for _, topic := range []string{"t.retry.5s", "t.retry.30s", "t.replay", "t.dlq"} {
			if n := w.partitions(topic); n != 6 {
				t.Errorf("%s has %d partitions", topic, n)
			}
		}
		for _, r := range w.read("t.dlq") {
			if h := headersOf(r); h["X-Original-Partition"] != fmt.Sprint(r.Partition) {
				t.Errorf("a record of partition %s is in partition %d of the DLQ", h["X-Original-Partition"], r.Partition)
			}
		}
		owned := 0
		for _, r := range []*running{a, b} {
			s := statusOf(r)
			owned += len(s.Stages[0].Partitions)
			if s.Problem != "" || len(s.Unowned)+len(s.TopicProblems) > 0 {
				t.Errorf("status: %+v", s)
			}
		}
		if owned != 6 {
			t.Errorf("%d partitions have an owner", owned)
		}
		a.end()
		b.end()
		w.allDead("t", 60, &c)
		if lag := w.lag("g", "t", "t.retry.5s", "t.retry.30s"); lag != 0 {
			t.Errorf("lag %d", lag)
		}
		w.storm(cfg, 8)
	})
}

// Where kconsume may not grow topics it says what to do, reads the new
// partitions no further, and goes on by itself once that is done.
func TestMainTopicGrowsAndOursMayNot(t *testing.T) {
	inWorld(t, 1, []string{"t", "t.retry.5s", "t.replay", "t.dlq"}, func(w *world) {
		if err := w.cluster.CreateTopic("t.dlq.state", 1, map[string]string{topology.CleanupPolicy: "compact"}); err != nil {
			t.Fatal(err)
		}
		var c calls
		cfg := w.tiers(&c, 5*time.Second)
		cfg.KeepTopics = true
		reg := cfg.Registerer.(*prometheus.Registry)
		r := w.start(cfg)
		time.Sleep(20 * time.Second)
		w.grow("t", 2)
		w.failing("t", 20, 2)
		time.Sleep(time.Minute)
		s := statusOf(r)
		if len(s.TopicProblems) != 3 {
			t.Errorf("status: %+v", s.TopicProblems)
		}
		for _, p := range s.TopicProblems {
			if p.Problem != "partitions" || !strings.Contains(p.Text, "kconsume topics apply") {
				t.Errorf("status says %+v", p)
			}
			if n := counted(t, reg, "kconsume_topic_problems", map[string]string{"topic": p.Topic, "problem": "partitions"}); n != 1 {
				t.Errorf("the metric for %s is %v", p.Topic, n)
			}
		}
		for _, one := range c.all() {
			if one.msg.Partition == 1 {
				t.Fatal("a partition was read that has no tiers")
			}
		}
		for _, topic := range []string{"t.retry.5s", "t.replay", "t.dlq"} {
			w.grow(topic, 2)
		}
		time.Sleep(2 * time.Minute)
		if s := statusOf(r); len(s.TopicProblems) != 0 || s.Problem != "" {
			t.Errorf("status still says %+v", s)
		}
		if n := counted(t, reg, "kconsume_topic_problems", nil); n != 0 {
			t.Errorf("the metric is %v", n)
		}
		r.end()
		w.allDead("t", 20, &c)
	})
}

// refuseNullKeys makes the broker do what Kafka does and the embedded one does not: a
// compacted topic refuses a batch with a record that has no key.
func (w *world) refuseNullKeys(topic string, compacted *atomic.Bool) {
	w.cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.KeepControl()
		p := req.(*kmsg.ProduceRequest)
		if !compacted.Load() || len(p.Topics) != 1 || p.Topics[0].Topic != topic {
			return nil, nil, false
		}
		res := p.ResponseKind().(*kmsg.ProduceResponse)
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic = topic
		for _, part := range p.Topics[0].Partitions {
			if !hasNullKey(w.t, part.Records) {
				return nil, nil, false
			}
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.ErrorCode = part.Partition, kerr.InvalidRecord.Code
			rt.Partitions = append(rt.Partitions, rp)
		}
		res.Topics = append(res.Topics, rt)
		return res, nil, true
	})
}

func hasNullKey(t *testing.T, raw []byte) bool {
	set, err := record.Decode(raw, record.Options{MaxInflate: 1 << 20})
	if err != nil {
		t.Error(err)
	}
	return slices.ContainsFunc(set.Records, func(r record.Record) bool { return r.Key == nil })
}

// A tier's policy is changed under a running engine.
func TestTierCompactedWhileRunning(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		var c calls
		cfg := w.tiers(&c, 5*time.Second)
		reg := cfg.Registerer.(*prometheus.Registry)
		r := w.start(cfg)
		time.Sleep(10 * time.Second)
		var compacted atomic.Bool
		w.refuseNullKeys("t.retry.5s", &compacted)
		w.setting("t.retry.5s", "cleanup.policy", "compact")
		compacted.Store(true)
		altered := time.Now()
		send := func() {
			rs := []*kgo.Record{{Topic: "t", Value: []byte("fail 1 null")}}
			for i := range 3 {
				rs = append(rs, &kgo.Record{Topic: "t", Key: []byte("k"), Value: fmt.Appendf(nil, "fail 1 k%d", i)})
			}
			for i := range 5 {
				rs = append(rs, &kgo.Record{Topic: "t", Key: fmt.Append(nil, i), Value: fmt.Appendf(nil, "fail 1 n%d", i)})
			}
			w.produce(rs...)
		}
		send()
		time.Sleep(20 * time.Second)
		before := len(w.read("t.retry.5s"))
		if before > 8 {
			t.Errorf("%d records went on, only 8 could", before)
		}
		time.Sleep(time.Until(altered.Add(time.Minute)))
		s := statusOf(r)
		if len(s.TopicProblems) != 1 || s.TopicProblems[0].Problem != "compacted" || !strings.Contains(s.TopicProblems[0].Text, "--add-config cleanup.policy=delete") {
			t.Errorf("status after a minute: %+v", s)
		}
		if n := counted(t, reg, "kconsume_topic_problems", map[string]string{"topic": "t.retry.5s", "problem": "compacted"}); n != 1 {
			t.Errorf("the metric is %v", n)
		}
		send() // it is known now: nothing more is written there
		time.Sleep(30 * time.Second)
		if n := len(w.read("t.retry.5s")); n != before {
			t.Errorf("the compacted topic was given %d records more", n-before)
		}
		if lag := w.lag("g", "t"); lag != 18 {
			t.Errorf("lag %d, want 18: committed past a record that was not forwarded", lag)
		}
		w.setting("t.retry.5s", "cleanup.policy", "delete")
		compacted.Store(false)
		time.Sleep(time.Minute)
		if s := statusOf(r); s.Problem != "" || len(s.TopicProblems) > 0 {
			t.Errorf("status still says %+v", s)
		}
		r.end()
		if n := counted(t, reg, "kconsume_messages_total", map[string]string{"outcome": "ack"}); n != 18 {
			t.Errorf("%v records were handled, want 18", n)
		}
		if lag := w.lag("g", "t", "t.retry.5s"); lag != 0 {
			t.Errorf("lag %d", lag)
		}
	})
}

// A broker refuses one record for what it holds, and its whole batch with it:
// the record waits, is named, and goes on once it may; its neighbours go on at
// once, those of its partition too.
func TestInvalidRecordIsSingledOut(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		var c calls
		var refuses atomic.Bool
		refuses.Store(true)
		cfg := w.tiers(&c, 5*time.Second)
		w.refuseNullKeys("t.retry.5s", &refuses)
		var rs []*kgo.Record
		for i := range 20 {
			rs = append(rs, &kgo.Record{Topic: "t", Key: fmt.Append(nil, i), Value: fmt.Appendf(nil, "fail 1 %d", i)})
		}
		rs[7].Key = nil
		w.produce(rs...)
		r := w.start(cfg)
		time.Sleep(20 * time.Second)
		if n := counted(t, cfg.Registerer.(*prometheus.Registry), "kconsume_messages_total", map[string]string{"outcome": "ack"}); n != 19 {
			t.Errorf("%v records were handled beside the one that is refused, want 19", n)
		}
		w.produce(&kgo.Record{Topic: "t", Key: []byte("k"), Value: []byte("ok")})
		time.Sleep(5 * time.Second)
		if len(c.of("ok")) != 1 {
			t.Error("its partition stands still")
		}
		if lag := w.lag("g", "t"); lag != 14 {
			t.Errorf("lag %d, want 14: it is committed up to the record that is refused", lag)
		}
		if s := statusOf(r); !strings.Contains(s.Problem, "t.retry.5s") || !strings.Contains(s.Problem, "cleanup.policy") {
			t.Errorf("status says %q", s.Problem)
		}
		refuses.Store(false)
		time.Sleep(20 * time.Second)
		if s := statusOf(r); s.Problem != "" {
			t.Errorf("status still says %q", s.Problem)
		}
		r.end()
		if len(c.of("fail 1 7")) != 2 {
			t.Errorf("the record was delivered %d times", len(c.of("fail 1 7")))
		}
		if lag := w.lag("g", "t", "t.retry.5s"); lag != 0 {
			t.Errorf("lag %d", lag)
		}
	})
}
