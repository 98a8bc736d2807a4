package fetch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kconsume/kconsume/engine/record"
	"github.com/kconsume/kconsume/plugin"
)

// cluster is an in-process Kafka with the topics, whose partitions are led by
// the brokers in turn, and a way to it.
type cluster struct {
	fake *kfake.Cluster
	addr net.Addr
	tr   *kafka.Transport
}

func newCluster(t *testing.T, brokers int, partitions int32, topics ...string) *cluster {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(brokers), kfake.SeedTopics(partitions, topics...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	for _, topic := range topics {
		for p := range partitions {
			if err := fake.MoveTopicPartition(topic, p, p%int32(brokers)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return &cluster{fake: fake, addr: kafka.TCP(fake.ListenAddrs()...), tr: transport(t)}
}

func (c *cluster) producer(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	opts = append(opts, kgo.SeedBrokers(c.fake.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	p, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func (c *cluster) request(topic string, partition int32, wants ...Want) Request {
	return Request{Broker: c.fake.LeaderFor(topic, partition), ClientID: "test", MaxWait: 10 * time.Second, MinBytes: 1, MaxBytes: 50 << 20, Wants: wants}
}

func (c *cluster) do(t *testing.T, r Request) Answer {
	t.Helper()
	a, err := Do(t.Context(), c.tr, c.addr, r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func produce(t *testing.T, p *kgo.Client, rs ...*kgo.Record) {
	t.Helper()
	if err := p.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func TestManyPartitions(t *testing.T) {
	const partitions = 20
	topics := []string{"a", "b"}
	c := newCluster(t, 3, partitions, topics...)
	p := c.producer(t, kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	requests := map[int32]*Request{}
	for i := range int32(partitions * 2) {
		topic, part := topics[i%2], i/2
		for n := range int(part) { // partition 0 stays empty
			produce(t, p, &kgo.Record{Topic: topic, Partition: part, Key: []byte(topic), Value: []byte(strconv.Itoa(n))})
		}
		r := c.request(topic, part)
		if requests[r.Broker] == nil {
			requests[r.Broker] = &r
		}
		requests[r.Broker].Wants = append(requests[r.Broker].Wants, want(topic, part, int64(part/2)))
	}
	if len(requests) != 3 {
		t.Fatalf("partitions are led by %d brokers", len(requests))
	}
	for _, r := range requests {
		a := c.do(t, *r)
		for i, part := range a.Parts {
			w := r.Wants[i]
			if part.Want != w || part.Err != nil || part.HighWatermark != int64(w.Partition) || part.Set.Next != int64(w.Partition) {
				t.Fatalf("part %d of %+v: %+v", i, w, part)
			}
			if got := int64(len(part.Set.Records)); got != int64(w.Partition)-w.Offset {
				t.Errorf("%s/%d: %d records from %d on", w.Topic, w.Partition, got, w.Offset)
			}
			for j, rec := range part.Set.Records {
				if string(rec.Key) != w.Topic || string(rec.Value) != strconv.FormatInt(w.Offset+int64(j), 10) {
					t.Fatalf("%s/%d holds %s=%s at %d", w.Topic, w.Partition, rec.Key, rec.Value, rec.Offset)
				}
			}
		}
	}
}

func TestBytesAsProduced(t *testing.T) {
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1, 1, "t")
			stamp := time.UnixMilli(1_700_000_000_123)
			in := []*kgo.Record{
				{Topic: "t", Timestamp: stamp},
				{Topic: "t", Timestamp: stamp, Key: []byte{}, Value: []byte{}},
				{Topic: "t", Timestamp: stamp, Key: []byte("k"), Value: []byte(strings.Repeat("v", 5000)), Headers: []kgo.RecordHeader{
					{Key: "h", Value: []byte("1")}, {Key: "h", Value: []byte{}}, {Key: "h"}, {Key: "\xff\x00\xfe", Value: []byte("\xff")}, {Key: ""},
				}},
			}
			produce(t, c.producer(t, kgo.ProducerBatchCompression(codec)), in...)
			p := c.do(t, c.request("t", 0, want("t", 0, 0))).Parts[0]
			ms := stamp.UnixMilli()
			want := []record.Record{
				{Offset: 0, Timestamp: ms},
				{Offset: 1, Timestamp: ms, Key: []byte{}, Value: []byte{}},
				{Offset: 2, Timestamp: ms, Key: []byte("k"), Value: in[2].Value, Headers: []plugin.Header{
					{Key: "h", Value: []byte("1")}, {Key: "h", Value: []byte{}}, {Key: "h"}, {Key: "\xff\x00\xfe", Value: []byte("\xff")}, {Key: ""},
				}},
			}
			if p.Err != nil || !reflect.DeepEqual(p.Set.Records, want) {
				t.Errorf("got %#v, error %v", p.Set.Records, p.Err)
			}
		})
	}
}

func TestTransactions(t *testing.T) {
	c := newCluster(t, 1, 1, "t")
	p := c.producer(t, kgo.TransactionalID("tx"))
	for _, round := range []struct {
		value string
		end   kgo.TransactionEndTry
	}{{"aborted 1", kgo.TryAbort}, {"kept 1", kgo.TryCommit}, {"aborted 2", kgo.TryAbort}, {"kept 2", kgo.TryCommit}, {"aborted 3", kgo.TryAbort}} {
		if err := p.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			produce(t, p, &kgo.Record{Topic: "t", Value: fmt.Appendf(nil, "%s.%d", round.value, i)})
		}
		if err := p.EndTransaction(t.Context(), round.end); err != nil {
			t.Fatal(err)
		}
	}
	r := c.request("t", 0, want("t", 0, 0))
	r.ReadCommitted = true
	got := c.do(t, r).Parts[0]
	if v := values(got); got.Err != nil || v != "4=kept 1.0 5=kept 1.1 6=kept 1.2 12=kept 2.0 13=kept 2.1 14=kept 2.2 " {
		t.Errorf("read committed: %q, error %v", v, got.Err)
	}
	if got.Set.Aborted != 9 || got.Set.Control != 5 || got.Set.Next != 20 {
		t.Errorf("%d aborted, %d control, next %d", got.Set.Aborted, got.Set.Control, got.Set.Next)
	}
	r.ReadCommitted = false
	got = c.do(t, r).Parts[0]
	if len(got.Set.Records) != 15 || got.Set.Aborted != 0 || got.Set.Control != 5 || got.Set.Next != 20 {
		t.Errorf("read uncommitted: %d records, %d aborted, %d control, next %d", len(got.Set.Records), got.Set.Aborted, got.Set.Control, got.Set.Next)
	}
	// A trailing marker is passed.
	r.ReadCommitted, r.Wants[0].Offset = true, 19
	if got = c.do(t, r).Parts[0]; len(got.Set.Records) != 0 || got.Set.Next != 20 {
		t.Errorf("at the last marker: %d records, next %d", len(got.Set.Records), got.Set.Next)
	}
}

// What is wrong with one partition is data, and the others are served.
func TestPartitionErrorsAreData(t *testing.T) {
	c := newCluster(t, 2, 4, "t")
	p := c.producer(t)
	for part := range int32(4) {
		produce(t, p, &kgo.Record{Topic: "t", Partition: part, Value: []byte("v")})
	}
	tests := []struct {
		name string
		want Want
		err  error
	}{
		{"beyond the end", want("t", 0, 100), kafka.OffsetOutOfRange},
		{"led by another", want("t", 1, 0), kafka.NotLeaderForPartition},
		{"no such partition", want("t", 99, 0), kafka.UnknownTopicOrPartition},
		{"no such topic", want("nope", 0, 0), kafka.UnknownTopicOrPartition},
		{"epoch of the future", Want{"t", 0, 0, 100, 99}, kafka.UnknownLeaderEpoch},
		{"right", want("t", 0, 0), nil},
	}
	for _, tt := range tests {
		a := c.do(t, c.request("t", 0, tt.want, want("t", 2, 0)))
		if p := a.Parts[0]; !errors.Is(p.Err, tt.err) || tt.err != nil && (p.Set.Next != tt.want.Offset || len(p.Set.Records) > 0) {
			t.Errorf("%s: %+v, want error %v", tt.name, p, tt.err)
		}
		if a.Parts[1].Err != nil || values(a.Parts[1]) != "0=v " {
			t.Errorf("%s: the other partition: %+v", tt.name, a.Parts[1])
		}
	}
}

// A fetch at the end waits, and returns when a record comes.
func TestLongPoll(t *testing.T) {
	c := newCluster(t, 1, 2, "t")
	p := c.producer(t)
	produce(t, p, &kgo.Record{Topic: "t", Value: []byte("old")})
	r := c.request("t", 0, want("t", 0, 1), want("t", 1, 0))
	r.MaxWait = time.Minute
	done := make(chan Answer)
	go func() {
		a, err := Do(context.WithoutCancel(t.Context()), c.tr, c.addr, r)
		if err != nil {
			t.Error(err)
		}
		done <- a
	}()
	produce(t, p, &kgo.Record{Topic: "t", Value: []byte("new")})
	a := <-done
	if len(a.Parts) != 2 || values(a.Parts[0]) != "1=new " || a.Parts[1].Set.Next != 0 || a.Parts[1].Err != nil {
		t.Errorf("got %+v", a)
	}
}

// An empty long poll ends by itself, and leaves the offsets where they are.
func TestLongPollOfNothing(t *testing.T) {
	c := newCluster(t, 1, 1, "t")
	r := c.request("t", 0, want("t", 0, 0))
	r.MaxWait = 50 * time.Millisecond
	for range 3 {
		if p := c.do(t, r).Parts[0]; p.Err != nil || p.Set.Next != 0 || len(p.Set.Records) != 0 {
			t.Errorf("got %+v", p)
		}
	}
}

// Two fetches of one broker at once use a connection each.
func TestTwoAtOnce(t *testing.T) {
	c := newCluster(t, 1, 2, "t")
	p := c.producer(t)
	waiting := c.request("t", 0, want("t", 0, 0))
	waiting.MaxWait = time.Minute
	done := make(chan Answer)
	go func() {
		a, err := Do(context.WithoutCancel(t.Context()), c.tr, c.addr, waiting)
		if err != nil {
			t.Error(err)
		}
		done <- a
	}()
	produce(t, p, &kgo.Record{Topic: "t", Partition: 1, Value: []byte("quick")})
	if a := c.do(t, c.request("t", 1, want("t", 1, 0))); values(a.Parts[0]) != "0=quick " {
		t.Errorf("got %+v", a)
	}
	produce(t, p, &kgo.Record{Topic: "t", Partition: 0, Value: []byte("late")})
	if a := <-done; values(a.Parts[0]) != "0=late " {
		t.Errorf("got %+v", a)
	}
}

func BenchmarkDo(b *testing.B) {
	const partitions, records = 10, 1000
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "t"))
	if err != nil {
		b.Fatal(err)
	}
	defer fake.Close()
	p, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	r := Request{Broker: fake.LeaderFor("t", 0), MaxWait: time.Second, MinBytes: 1, MaxBytes: 50 << 20}
	for part := range int32(partitions) {
		var rs []*kgo.Record
		for range records {
			rs = append(rs, &kgo.Record{Topic: "t", Partition: part, Value: make([]byte, 1<<10)})
		}
		if err := p.ProduceSync(b.Context(), rs...).FirstErr(); err != nil {
			b.Fatal(err)
		}
		w := want("t", part, 0)
		w.MaxBytes = 8 << 20
		r.Wants = append(r.Wants, w)
	}
	tr := &kafka.Transport{}
	defer tr.CloseIdleConnections()
	addr := kafka.TCP(fake.ListenAddrs()...)
	b.SetBytes(partitions * records << 10)
	b.ReportAllocs()
	for b.Loop() {
		a, err := Do(b.Context(), tr, addr, r)
		if err != nil {
			b.Fatal(err)
		}
		for _, p := range a.Parts {
			if len(p.Set.Records) != records {
				b.Fatalf("%d records, error %v", len(p.Set.Records), p.Err)
			}
		}
	}
}
