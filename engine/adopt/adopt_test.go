package adopt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine/history"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const tier = "t.retry.1h"

// brokers are an embedded cluster with a tier of two partitions, a client as the
// commands have one, and another client to write and to read with.
type brokers struct {
	*kfake.Cluster
	client *kafka.Client
	kgo    *kgo.Client
	adm    *kadm.Client
}

func newBrokers(t *testing.T) *brokers {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(2, tier))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	transport := &kafka.Transport{MetadataTopics: []string{tier}, ClientID: "kconsume-test"}
	t.Cleanup(transport.CloseIdleConnections)
	k, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return &brokers{c, &kafka.Client{Addr: kafka.TCP(c.ListenAddrs()...), Transport: transport, Timeout: 5 * time.Second}, k, kadm.NewClient(k)}
}

// wait writes a waiting record of a group.
func (b *brokers) wait(t *testing.T, group string, partition int32, key, value []byte) {
	t.Helper()
	r := &kgo.Record{Topic: tier, Partition: partition, Key: key, Value: value, Headers: []kgo.RecordHeader{
		{Key: "own", Value: nil}, {Key: "own", Value: []byte{}},
		{Key: "X-Retry-Attempts", Value: []byte("1")}, {Key: "X-Retry-Due", Value: []byte("1790000000000")},
		{Key: "X-Retry-Group", Value: []byte(group)}, {Key: "X-Record-Id", Value: []byte("id")},
	}}
	if err := b.kgo.ProduceSync(t.Context(), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func (b *brokers) commit(t *testing.T, group string, partition int32, offset int64) {
	t.Helper()
	o := kadm.Offsets{}
	o.AddOffset(tier, partition, offset, -1)
	if err := b.adm.CommitAllOffsets(t.Context(), group, o); err != nil {
		t.Fatal(err)
	}
}

// read is a partition of the tier as it is.
func (b *brokers) read(t *testing.T, partition int32) []*kgo.Record {
	t.Helper()
	ends, err := b.adm.ListEndOffsets(t.Context(), tier)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(tier, partition)
	if end.Offset == 0 {
		return nil
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(b.ListenAddrs()...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{tier: {partition: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var out []*kgo.Record
	for len(out) == 0 || out[len(out)-1].Offset+1 < end.Offset {
		out = append(out, c.PollFetches(t.Context()).Records()...)
	}
	return out
}

func groupOf(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == history.HeaderGroup {
			return string(h.Value)
		}
	}
	return ""
}

func (b *brokers) run(t *testing.T, p Plan) int {
	t.Helper()
	p.Topics = []string{tier, "absent"}
	moved, err := Run(t.Context(), b.client, p)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range moved {
		n += m.Records
	}
	return n
}

func TestAdopt(t *testing.T) {
	b := newBrokers(t)
	b.wait(t, "old", 0, []byte("settled"), []byte("v"))
	for i := range 600 { // more than one write
		b.wait(t, []string{"old", "other"}[i%2], int32(i/2%2), fmt.Append(nil, i), []byte("v"))
	}
	b.wait(t, "old", 1, nil, nil)
	b.wait(t, "old", 1, []byte{}, []byte{})
	b.commit(t, "old", 0, 1)
	before := len(b.read(t, 0)) + len(b.read(t, 1))

	if n := b.run(t, Plan{From: "old", To: "new"}); n != 302 {
		t.Errorf("a dry run counts %d records, want 302", n)
	}
	if n := len(b.read(t, 0)) + len(b.read(t, 1)); n != before {
		t.Fatalf("a dry run wrote %d records", n-before)
	}
	told := 0
	if n := b.run(t, Plan{From: "old", To: "new", Apply: true, Progress: func(n int) { told = n }}); n != 302 || told != 302 {
		t.Errorf("%d records were handed over, %d told, want 302", n, told)
	}
	if n := b.run(t, Plan{From: "old", To: "new", Apply: true}); n != 0 {
		t.Errorf("a second run handed %d records over again", n)
	}
	for p := range int32(2) {
		var from, to []*kgo.Record
		for _, r := range b.read(t, p) {
			switch {
			case groupOf(r) == "old" && string(r.Key) != "settled":
				from = append(from, r)
			case groupOf(r) == "new":
				to = append(to, r)
			}
		}
		if len(from) != len(to) {
			t.Fatalf("partition %d: %d records of the new group for %d of the old", p, len(to), len(from))
		}
		for i, want := range from {
			got := to[i]
			if !same(got.Key, want.Key) || !same(got.Value, want.Value) || len(got.Headers) != len(want.Headers) {
				t.Fatalf("partition %d: %q=%q, want %q=%q", p, got.Key, got.Value, want.Key, want.Value)
			}
			if time.Since(got.Timestamp) > time.Hour {
				t.Errorf("the copy is stamped %v", got.Timestamp)
			}
			for j, h := range want.Headers {
				if h.Key == history.HeaderGroup {
					continue
				}
				if g := got.Headers[j]; g.Key != h.Key || !same(g.Value, h.Value) {
					t.Errorf("header %d is %q=%#v, want %q=%#v", j, g.Key, g.Value, h.Key, h.Value)
				}
			}
		}
	}
}

func same(a, b []byte) bool { return string(a) == string(b) && (a == nil) == (b == nil) }

func TestAdoptRefusesAGroupInUse(t *testing.T) {
	b := newBrokers(t)
	b.wait(t, "old", 0, []byte("k"), []byte("v"))
	member, err := kgo.NewClient(kgo.SeedBrokers(b.ListenAddrs()...), kgo.ConsumerGroup("old"), kgo.ConsumeTopics(tier), kgo.DisableAutoCommit())
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	if _, err := b.WaitGroupStable(t.Context(), "old", 1); err != nil {
		t.Fatal(err)
	}
	for _, apply := range []bool{false, true} {
		_, err := Run(t.Context(), b.client, Plan{From: "old", To: "new", Topics: []string{tier}, Apply: apply})
		if !errors.Is(err, ErrInUse) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v", err)
		}
	}
	if n := len(b.read(t, 0)); n != 1 {
		t.Errorf("%d records were copied", n-1)
	}
	if _, err := Run(t.Context(), b.client, Plan{From: "x", To: "x", Topics: []string{tier}}); err == nil {
		t.Error("a group was handed over to itself")
	}
}

// A member that comes while records are handed over is noticed by the brokers.
func TestAdoptStopsWhenTheGroupComesBack(t *testing.T) {
	b := newBrokers(t)
	for i := range 600 {
		b.wait(t, "old", 0, fmt.Append(nil, i), []byte("v"))
	}
	b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Group: "old", Err: kerr.UnknownMemberID})
	_, err := Run(t.Context(), b.client, Plan{From: "old", To: "new", Topics: []string{tier}, Apply: true})
	if !errors.Is(err, ErrInUse) {
		t.Fatalf("got %v", err)
	}
	if n := len(b.read(t, 0)) - 600; n > batchRecords {
		t.Errorf("%d records were copied, one write is %d", n, batchRecords)
	}
	if n := b.run(t, Plan{From: "old", To: "new", Apply: true}); n != 600 {
		t.Errorf("the second run handed %d over", n)
	}
}

// A topic that takes less at once than one of our writes.
func TestAdoptCutsWritesInHalves(t *testing.T) {
	b := newBrokers(t)
	for i := range 20 {
		b.wait(t, "old", 0, fmt.Append(nil, i), []byte(strings.Repeat(fmt.Sprint(i), 100)))
	}
	most := 0
	b.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		p := req.(*kmsg.ProduceRequest)
		part := p.Topics[0].Partitions[0]
		var batch kmsg.RecordBatch
		if err := batch.ReadFrom(part.Records); err != nil {
			t.Error(err)
		}
		if batch.NumRecords <= 3 {
			most = max(most, int(batch.NumRecords))
			return nil, nil, false
		}
		res := p.ResponseKind().(*kmsg.ProduceResponse)
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic = tier
		rp := kmsg.NewProduceResponseTopicPartition()
		rp.ErrorCode = kerr.MessageTooLarge.Code
		rt.Partitions = append(rt.Partitions, rp)
		res.Topics = append(res.Topics, rt)
		return res, nil, true
	})
	if n := b.run(t, Plan{From: "old", To: "new", Apply: true}); n != 20 {
		t.Errorf("%d records were handed over", n)
	}
	var keys []string
	for _, r := range b.read(t, 0) {
		if groupOf(r) == "new" {
			keys = append(keys, string(r.Key))
		}
	}
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprint(i))
	}
	if !slices.Equal(keys, want) || most == 0 {
		t.Errorf("handed over %v", keys)
	}
}

func TestList(t *testing.T) {
	b := newBrokers(t)
	for i := range 10 {
		b.wait(t, "old", int32(i%2), []byte("k"), []byte("v"))
	}
	b.wait(t, "other", 0, []byte("k"), []byte("v"))
	b.commit(t, "old", 0, 2)
	got, err := List(t.Context(), b.client, []string{tier, "absent"})
	if err != nil {
		t.Fatal(err)
	}
	due := time.UnixMilli(1790000000000)
	want := []Waiting{
		{Topic: tier, Group: "old", State: "Empty", Records: 8, FirstDue: due},
		{Topic: tier, Group: "other", State: "Dead", Records: 1, FirstDue: due},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := List(ctx, b.client, []string{tier}); err == nil {
		t.Error("it goes on though it was told to stop")
	}
}
