package backlog

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/engine/record"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type brokers struct {
	*kfake.Cluster
	*Reader
	kgo *kgo.Client
}

func newBrokers(t *testing.T, partitions int32, topics ...string) *brokers {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(partitions, topics...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	transport := &kafka.Transport{MetadataTopics: topics, ClientID: "kconsume-test"}
	t.Cleanup(transport.CloseIdleConnections)
	b := &brokers{Cluster: c, Reader: New(&kafka.Client{Addr: kafka.TCP(c.ListenAddrs()...), Transport: transport, Timeout: 5 * time.Second})}
	b.kgo = b.producer(t)
	return b
}

func (b *brokers) producer(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	k, err := kgo.NewClient(append(opts, kgo.SeedBrokers(b.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// put writes n records of a group, "" for none of ours, each in a batch of its own.
func (b *brokers) put(t *testing.T, topic string, partition int32, group string, n int) {
	t.Helper()
	for i := range n {
		r := &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Append(nil, i)}
		if group != "" {
			r.Headers = []kgo.RecordHeader{{Key: history.HeaderGroup, Value: []byte("forged")}, {Key: history.HeaderGroup, Value: []byte(group)}}
		}
		if err := b.kgo.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func (b *brokers) commit(t *testing.T, group, topic string, partition int32, offset int64) {
	t.Helper()
	o := kadm.Offsets{}
	o.AddOffset(topic, partition, offset, -1)
	if err := kadm.NewClient(b.kgo).CommitAllOffsets(t.Context(), group, o); err != nil {
		t.Fatal(err)
	}
}

func TestUnreadAndCount(t *testing.T) {
	topics := []string{"ours", "passed", "others", "half", "foreign", "empty", "gone", "trimmed"}
	b := newBrokers(t, 2, topics...)
	b.put(t, "ours", 1, "g", 3) // no offset, but our records
	b.put(t, "passed", 0, "g", 3)
	b.commit(t, "g", "passed", 0, 3)
	b.commit(t, "g", "passed", 1, 0)
	b.put(t, "others", 0, "h", 3) // no offset, and none of ours
	b.put(t, "half", 0, "g", 2)
	b.put(t, "half", 0, "h", 2)
	b.commit(t, "g", "half", 0, 1)
	b.put(t, "foreign", 0, "", 3) // no header says whose they are
	b.put(t, "gone", 0, "g", 3)   // retention took them
	b.commit(t, "g", "gone", 0, 1)
	if err := b.DeleteRecords("gone", 0, 3); err != nil {
		t.Fatal(err)
	}
	b.put(t, "trimmed", 0, "g", 5) // retention took some
	if err := b.DeleteRecords("trimmed", 0, 2); err != nil {
		t.Fatal(err)
	}

	names := append(topics, "absent")
	unread, err := b.Unread(t.Context(), "g", names)
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]bool{"ours": true, "half": true, "trimmed": true}; !maps.Equal(unread, want) {
		t.Errorf("unread %v, want %v", unread, want)
	}
	counts, err := b.Count(t.Context(), "g", names, &Budget{1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]Count{"ours": {3, false}, "half": {1, false}, "trimmed": {3, false}}; !maps.Equal(counts, want) {
		t.Errorf("counts %v, want %v", counts, want)
	}
	groups, err := b.Groups(t.Context(), names, 10, &Budget{1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(groups, " "); got != "g h" {
		t.Errorf("groups %q", got)
	}
}

func TestCountWithinItsBudget(t *testing.T) {
	b := newBrokers(t, 1, "t")
	b.put(t, "t", 0, "g", 50)
	h := b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Observe: true, Count: -1})
	defer h.Remove()
	counts, err := b.Count(t.Context(), "g", []string{"t"}, &Budget{1})
	if err != nil {
		t.Fatal(err)
	}
	if n := counts["t"]; !n.Partial && n.Records < 50 || h.Hits() != 1 {
		t.Errorf("%+v after %d fetches", n, h.Hits())
	}
}

// What lies behind the beginning of an open transaction cannot be told yet, and
// what was aborted is not there.
func TestScanEndsAtAnOpenTransaction(t *testing.T) {
	b := newBrokers(t, 1, "t")
	b.put(t, "t", 0, "g", 2)
	tx := b.producer(t, kgo.TransactionalID("x"))
	write := func(value string) {
		t.Helper()
		if err := tx.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	write("aborted")
	if err := tx.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	if err := tx.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	write("open")
	b.put(t, "t", 0, "g", 1)
	spans, err := b.Spans(t.Context(), []string{"t"})
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	next, err := b.Scan(t.Context(), spans[0], 0, &Budget{1 << 20}, func(r *record.Record) error {
		seen = append(seen, string(r.Value))
		return nil
	})
	if err != nil || next != 4 || strings.Join(seen, " ") != "0 1" {
		t.Errorf("it saw %q up to offset %d (%v), want the two before the transaction that is open at 4", seen, next, err)
	}
	if err := tx.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
}

func TestScanFollowsTheLeader(t *testing.T) {
	b := newBrokers(t, 1, "t")
	b.put(t, "t", 0, "g", 3)
	spans, err := b.Spans(t.Context(), []string{"t"})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.MoveTopicPartition("t", 0, 1-spans[0].Leader); err != nil {
		t.Fatal(err)
	}
	n := 0
	next, err := b.Scan(t.Context(), spans[0], 1, &Budget{1 << 20}, func(*record.Record) error { n++; return nil })
	if err != nil || n != 2 || next != 3 {
		t.Errorf("%d records up to %d: %v", n, next, err)
	}
}

func TestGroup(t *testing.T) {
	b := newBrokers(t, 2, "t")
	if s, err := b.Group(t.Context(), "nobody"); err != nil || !s.Vacant() {
		t.Errorf("a group that does not exist: %+v, %v", s, err)
	}
	b.commit(t, "empty", "t", 0, 0)
	if s, err := b.Group(t.Context(), "empty"); err != nil || !s.Vacant() || s.Name != "Empty" {
		t.Errorf("a group without members: %+v, %v", s, err)
	}
	b.producer(t, kgo.ConsumerGroup("busy"), kgo.ConsumeTopics("t"))
	if _, err := b.WaitGroupStable(t.Context(), "busy", 1); err != nil {
		t.Fatal(err)
	}
	s, err := b.Group(t.Context(), "busy")
	if err != nil || s.Vacant() || s.Members != 1 || !maps.Equal(s.Owned, map[Place]bool{{"t", 0}: true, {"t", 1}: true}) {
		t.Errorf("a group with a member: %+v, %v", s, err)
	}
	b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeGroups}, Err: kerr.GroupAuthorizationFailed})
	if _, err := b.Group(t.Context(), "empty"); err == nil {
		t.Error("a group that may not be described is told of all the same")
	}
}
