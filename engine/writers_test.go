package engine

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/metrics"
	"github.com/kconsume/kconsume/plugin"
	"github.com/segmentio/kafka-go"
)

func TestWriterHasTheConfiguredPolicy(t *testing.T) {
	c := Config{
		Brokers: []string{"b:1"}, WriteAttempts: 7, WriteBackoffMin: time.Second, WriteBackoffMax: 2 * time.Second,
		WriteTimeout: 3 * time.Second, ReadTimeout: 4 * time.Second, Emit: map[string]EmitPolicy{"views": EmitDrop},
	}.withDefaults()
	w := newWriters(c, newCluster(c, nil))
	for _, alone := range []bool{false, true} {
		wr := w.of("orders.dlq", alone)
		if wr.MaxAttempts != 7 || wr.WriteBackoffMin != time.Second || wr.WriteBackoffMax != 2*time.Second ||
			wr.WriteTimeout != 3*time.Second || wr.ReadTimeout != 4*time.Second {
			t.Errorf("the policy is %+v", wr)
		}
		if wr.RequiredAcks != kafka.RequireAll || wr.Async || wr.AllowAutoTopicCreation {
			t.Errorf("acks %v, async %v, creates topics %v", wr.RequiredAcks, wr.Async, wr.AllowAutoTopicCreation)
		}
		if one := w.of("views", alone); one.MaxAttempts != 1 {
			t.Errorf("a dropped topic has %d tries", one.MaxAttempts)
		}
	}
	if w.of("orders.dlq", true).BatchSize != 1 {
		t.Error("a record that goes alone may be joined by others")
	}
}

// A partition that exists is taken; where it does not, Java's hash decides.
func TestCopartition(t *testing.T) {
	parts := []int{0, 1, 2, 3, 4, 5, 6}
	for _, c := range []struct {
		partition int
		key       []byte
		n, want   int
	}{
		{4, []byte("k"), 7, 4},
		{4, nil, 7, 4},
		{4, nil, 3, 1},
		// Of org.apache.kafka.common.utils.Utils.murmur2, as its own test has them.
		{-1, []byte("21"), 7, int((-973932308 & 0x7fffffff) % 7)},
		{-1, []byte("foobar"), 7, int((-790332482 & 0x7fffffff) % 7)},
		{9, []byte("a-little-bit-long-string"), 7, int((-985981536 & 0x7fffffff) % 7)},
		{-1, []byte("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8"), 7, int((-58897971 & 0x7fffffff) % 7)},
	} {
		got := (copartition{}).Balance(kafka.Message{Partition: c.partition, Key: c.key}, parts[:c.n]...)
		if got != c.want {
			t.Errorf("partition %d, key %q, of %d: %d, want %d", c.partition, c.key, c.n, got, c.want)
		}
		if c.partition < 0 && keyPartition(c.key, c.n) != c.want {
			t.Errorf("key %q: %d, want %d", c.key, keyPartition(c.key, c.n), c.want)
		}
	}
}

// A client that has not heard of a topic's growth yet must not send a record
// away from its partition.
func TestCopartitionOfATopicThatHasGrown(t *testing.T) {
	for there, want := range map[bool]int{true: 4, false: 1} {
		m := kafka.Message{Partition: 4, WriterData: &receipt{there: there}}
		if got := (copartition{}).Balance(m, 0, 1, 2); got != want {
			t.Errorf("the partition exists: %v: %d, want %d", there, got, want)
		}
	}
}

// The close of writers is bounded, though a write of theirs never ends.
func TestWritersCloseUnderWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Config{Brokers: []string{"b:1"}}.withDefaults()
		w := newWriters(c, newCluster(c, nil))
		wr := w.of("t", false)
		mute := muteTransport(make(chan struct{}))
		wr.Transport = mute
		failed := make(chan error, 1)
		go func() { failed <- wr.WriteMessages(t.Context(), kafka.Message{Value: []byte("v")}) }()
		synctest.Wait()
		begin := time.Now()
		w.close()
		if took := time.Since(begin); took != closeWait {
			t.Errorf("the close took %v, want %v: it waits for the write, and no longer", took, closeWait)
		}
		close(mute)
		if err := <-failed; err == nil {
			t.Error("the write has succeeded")
		}
	})
}

// muteTransport answers nothing until it is closed.
type muteTransport chan struct{}

func (m muteTransport) RoundTrip(context.Context, net.Addr, kafka.Request) (kafka.Response, error) {
	<-m
	return nil, kafka.BrokerNotAvailable
}

func messageOf(key, value int, headers ...int) kafka.Message {
	m := kafka.Message{Key: make([]byte, key), Value: make([]byte, value)}
	for _, n := range headers {
		m.Headers = append(m.Headers, kafka.Header{Key: "h", Value: make([]byte, n)})
	}
	return m
}

// box is a parcel of a size.
type box struct {
	passage
	m kafka.Message
}

func (b *box) source() *partition                         { return nil }
func (b *box) wanted() bool                               { return true }
func (b *box) target(*loop) sinkID                        { return sinkID{} }
func (b *box) message(int32) kafka.Message                { return b.m }
func (b *box) slim() bool                                 { return false }
func (b *box) arrived(*loop, time.Time)                   {}
func (b *box) oversize(*loop, *sink, time.Time)           {}
func (b *box) failed(*loop, writeFailure, time.Time) bool { return true }

func TestTakeBoundsABatch(t *testing.T) {
	small := messageOf(10, 100)
	for name, c := range map[string]struct {
		queue []kafka.Message
		want  []int // records of each batch; negative = alone
	}{
		"few":                    {[]kafka.Message{small, small, small}, []int{3}},
		"many":                   {make([]kafka.Message, 600), []int{250, 250, 100}},
		"bytes":                  {[]kafka.Message{messageOf(0, 500<<10), messageOf(0, 300<<10), messageOf(0, 300<<10)}, []int{2, 1}},
		"bytes in headers":       {[]kafka.Message{messageOf(0, 0, 500<<10), messageOf(0, 0, 500<<10)}, []int{1, 1}},
		"a large one goes alone": {[]kafka.Message{small, messageOf(0, 5<<20), small, small}, []int{1, -1, 2}},
		"a large key goes alone": {[]kafka.Message{messageOf(1<<20, 0), small}, []int{-1, 1}},
		"large headers go alone": {[]kafka.Message{messageOf(0, 0, 900<<10), small}, []int{-1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &sink{}
			for _, m := range c.queue {
				s.queue = append(s.queue, &box{m: m})
			}
			for _, want := range c.want {
				msgs, alone := s.take()
				got := len(msgs)
				if alone {
					got = -got
				}
				if got != want || len(s.batch) != len(msgs) {
					t.Fatalf("took %d (alone %v), want %d", len(msgs), alone, want)
				}
				for i := range msgs {
					if r := msgs[i].WriterData.(*receipt); r.at != i {
						t.Errorf("record %d says it is %v", i, msgs[i].WriterData)
					}
				}
			}
			if len(s.queue) != 0 {
				t.Errorf("%d are left", len(s.queue))
			}
		})
	}
}

// What the client counts is never more than what we do: it refuses nothing that
// we put into a batch.
func TestWireSizeIsAtLeastTheClients(t *testing.T) {
	for _, m := range []kafka.Message{{}, messageOf(0, 0), messageOf(1, 1, 1), messageOf(300, 70000, 0, 1, 200, 70000)} {
		n := wireSize(&m)
		w := &kafka.Writer{Addr: kafka.TCP("127.0.0.1:1"), Topic: "t", BatchBytes: int64(n), Balancer: copartition{},
			Transport: refusing{}}
		err := w.WriteMessages(t.Context(), m)
		if err == nil || strings.Contains(err.Error(), "Message Size") {
			t.Errorf("%d bytes by our count: %v", n, err)
		}
		_ = w.Close()
	}
}

// refusing is a transport without brokers.
type refusing struct{}

func (refusing) RoundTrip(context.Context, net.Addr, kafka.Request) (kafka.Response, error) {
	return nil, kafka.BrokerNotAvailable
}

// Where the client itself refuses a record, the others of its batch go on at
// once, in order, and it goes alone.
func TestTheClientsRefusalConcernsTheOffender(t *testing.T) {
	c := Config{Brokers: []string{"b:1"}, Group: "g", Topics: []string{"t"}}.withDefaults()
	topo, err := c.Topology()
	if err != nil {
		t.Fatal(err)
	}
	l := newLoop(c, topo, newCluster(c, nil), quietDeliverer{}, metrics.NewEngine(nil))
	s := &sink{sinkID: sinkID{topicPartition: topicPartition{"t.dlq", 0}}}
	boxes := []*box{{m: messageOf(1, 10)}, {m: messageOf(2, 5000)}, {m: messageOf(3, 10)}}
	for _, b := range boxes {
		s.queue = append(s.queue, b)
	}
	msgs, _ := s.take()
	w := &kafka.Writer{Addr: kafka.TCP("127.0.0.1:1"), Topic: "t.dlq", BatchBytes: 1000}
	defer w.Close()
	(&written{s: s, errs: positions(w.WriteMessages(t.Context(), msgs...), len(msgs))}).apply(l)
	if s.fails != 0 || len(s.queue) != 3 || boxes[0].alone || !boxes[1].alone || boxes[2].alone {
		t.Fatalf("%d failures, %d queued, alone: %v %v %v", s.fails, len(s.queue), boxes[0].alone, boxes[1].alone, boxes[2].alone)
	}
	for i, b := range boxes {
		msgs, alone := s.take()
		if len(msgs) != 1 || len(msgs[0].Key) != len(b.m.Key) || alone != (i == 1) {
			t.Errorf("write %d has %d records (alone %v)", i+1, len(msgs), alone)
		}
	}
}

func TestEmittedRecordsAreTheHandlersAndNamed(t *testing.T) {
	x := &emission{id: "t/0/7@5#2", rec: plugin.Record{Topic: "audit", Key: []byte{}, Headers: []plugin.Header{
		{Key: "a", Value: nil}, {Key: history.HeaderGroup, Value: []byte("g")}, {Key: headerEmitID, Value: []byte("an older one")}, {Key: "a", Value: []byte{}},
	}}}
	m := x.message(3)
	if m.Key == nil || m.Value != nil || !m.Time.IsZero() || m.Partition != 3 {
		t.Errorf("%+v", m)
	}
	want := []kafka.Header{{Key: "a"}, {Key: "a", Value: []byte{}}, {Key: "X-Emit-Id", Value: []byte("t/0/7@5#2")}}
	if len(m.Headers) != len(want) {
		t.Fatalf("headers %v", m.Headers)
	}
	for i, h := range m.Headers {
		if h.Key != want[i].Key || string(h.Value) != string(want[i].Value) || (h.Value == nil) != (want[i].Value == nil) {
			t.Errorf("header %d is %v, want %v", i, h, want[i])
		}
	}
}

func TestEmitConfiguration(t *testing.T) {
	base := Config{Brokers: []string{"b:1"}, Group: "g", Topics: []string{"t", "u"},
		Handler: plugin.HandlerFunc(func(context.Context, *plugin.Message) error { return nil })}
	for topic, c := range map[string]struct {
		policy EmitPolicy
		want   string
	}{
		"audit": {EmitOutbox, ""}, "views": {EmitDrop, ""}, "u": {EmitBuffer, ""},
		"other": {"keep", "outbox, buffer, drop"}, "t.dlq": {EmitOutbox, "kconsume's own"}, "u.retry.5s": {EmitDrop, "kconsume's own"},
		"a b": {EmitDrop, "does not allow"}, "": {EmitDrop, "no topic name"},
	} {
		base.Emit = map[string]EmitPolicy{topic: c.policy}
		err := base.Validate()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%q=%s: %v", topic, c.policy, err)
		case c.want != "" && (ClassOf(err) != ErrConfig || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%q=%s: %v, want an error that says %q", topic, c.policy, err, c.want)
		}
	}
}

func TestProblemsAreForgottenWithTheirSink(t *testing.T) {
	c := Config{Brokers: []string{"b:1"}, Group: "g", Topics: []string{"t"}}.withDefaults()
	topo, err := c.Topology()
	if err != nil {
		t.Fatal(err)
	}
	l := newLoop(c, topo, newCluster(c, nil), nil, metrics.NewEngine(nil))
	l.gen = &generation{}
	so := l.stages["t"]
	l.addPartition(so, 0, 0, 0)
	p := l.parts[0]
	slot := p.track.push(0, item{state: itemForwarding, chunk: &chunk{live: 1}})
	s := l.sinkOf(sinkID{topicPartition: topicPartition{"t.dlq", 0}})
	s.batch = []parcel{&forward{p: p, slot: slot, to: "t.dlq", decision: decision{route: routeDead}}}
	(&written{s: s, errs: []error{kafka.NotEnoughReplicas}}).apply(l)
	if w := l.snapshot().Writes; len(w) != 1 || w[0].Kind != "cluster" || w[0].Reason != "replicas" || w[0].Waiting != 1 {
		t.Errorf("status says %+v", w)
	}
	if l.problems.any() == "" {
		t.Fatal("no problem is told")
	}
	p.flying = 1 // keeps its index
	l.layout = layout{}
	l.deliver = quietDeliverer{}
	l.dropPartition(p)
	l.pumpSinks(time.Now())
	if text := l.problems.any(); text != "" || len(l.sinks) != 0 {
		t.Errorf("after the partition is lost: %q, %d sinks", text, len(l.sinks))
	}
}

// Between two generations nothing is written that a source waits for: its
// partition may be another's by now. What no source waits for is.
func TestNoWritesOfASourceBetweenGenerations(t *testing.T) {
	c := Config{Brokers: []string{"b:1"}, Group: "g", Topics: []string{"t"}, Emit: map[string]EmitPolicy{"views": EmitBuffer}}.withDefaults()
	c.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, io.ErrUnexpectedEOF }
	topo, err := c.Topology()
	if err != nil {
		t.Fatal(err)
	}
	l := newLoop(c, topo, newCluster(c, nil), quietDeliverer{}, metrics.NewEngine(nil))
	defer l.writers.close()
	defer l.tasks.Wait()
	defer l.cancel()
	for topic, written := range map[string]bool{"t.dlq": false, "views": true} {
		s := l.sinkOf(sinkID{topicPartition: topicPartition{topic, 0}})
		s.queue = []parcel{&box{m: messageOf(1, 1)}}
		l.pumpSinks(time.Now())
		if (s.batch != nil) != written {
			t.Errorf("%s is written: %v, want %v", topic, s.batch != nil, written)
		}
	}
	l.gen = &generation{}
	l.pumpSinks(time.Now())
	if l.sinkOf(sinkID{topicPartition: topicPartition{"t.dlq", 0}}).batch == nil {
		t.Error("nothing is written within a generation")
	}
}

type quietDeliverer struct{}

func (quietDeliverer) Deliver([]plugin.Delivery)      {}
func (quietDeliverer) Cancel([]uint64)                {}
func (quietDeliverer) Answers() <-chan plugin.Answers { return nil }
