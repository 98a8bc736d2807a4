package kcat_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/test/kafka"
	"github.com/kconsume/kconsume/test/kcat"
)

var broker kafka.Shared

func TestMain(m *testing.M) { os.Exit(broker.Run(m)) }

var (
	null    []byte
	empty   = []byte{}
	binary  = []byte("\x00\x01\n\r\t\"\\\x7f\x80\xff\xfe\xc3\xa9 \xc3 \xf0\x9f\x98\x80 NULL null")
	someKey = []byte("k")
)

func TestNullEmptyAndBytesSurvive(t *testing.T) {
	large := make([]byte, 900<<10)
	rand.NewChaCha8([32]byte{}).Read(large)
	repeated := []plugin.Header{
		{Key: "a", Value: []byte("x,b=c")},
		{Key: "null", Value: null},
		{Key: "empty", Value: empty},
		{Key: "a", Value: bytes.ReplaceAll(binary, []byte{0}, nil)},
		{Key: "\xff\n\"", Value: []byte("NULL")},
	}
	want := []kcat.Record{
		{Key: someKey, Value: []byte("v")},
		{Key: someKey, Value: empty},
		{Key: someKey, Value: null},
		{Key: empty, Value: []byte("v")},
		{Key: empty, Value: empty},
		{Key: empty, Value: null},
		{Key: null, Value: []byte("v")},
		{Key: null, Value: null},
		{Key: binary, Value: binary},
		{Key: null, Value: binary, Headers: repeated},
		{Key: someKey, Value: []byte("after"), Headers: repeated[:1]},
		{Key: []byte("NULL"), Value: []byte("NULL")},
		{Key: someKey, Value: large},
	}
	c := broker.Cluster(t)
	topic(t, c, "bytes", nil)
	kcat.Produce(t, c.Bootstrap(), "bytes", 1, want)

	got := kcat.Consume(t, c.Bootstrap(), "bytes")
	if len(got) != len(want) {
		t.Fatalf("read %d records, want %d", len(got), len(want))
	}
	for i, g := range got {
		w := want[i]
		w.Partition, w.Offset, w.Time = 1, int64(i), g.Time
		if !reflect.DeepEqual(g, w) {
			t.Errorf("record %d:\ngot  %s\nwant %s", i, show(g), show(w))
		}
		if age := time.Since(g.Time); age < 0 || age > time.Hour {
			t.Errorf("record %d is of %v", i, g.Time)
		}
	}
}

func TestPartitionsAreReadInOrder(t *testing.T) {
	c := broker.Cluster(t)
	topic(t, c, "order", map[string]string{"message.timestamp.type": "LogAppendTime"})
	for p := range int32(3) {
		kcat.Produce(t, c.Bootstrap(), "order", 2-p, []kcat.Record{{Value: []byte("a")}, {Value: []byte("b")}}, "-z", "gzip")
	}
	var got []string
	for _, r := range kcat.Consume(t, c.Bootstrap(), "order") {
		if !r.AppendTime {
			t.Errorf("partition %d offset %d has no append time", r.Partition, r.Offset)
		}
		got = append(got, string('0'+rune(r.Partition))+string(r.Value))
	}
	if want := []string{"0a", "0b", "1a", "1b", "2a", "2b"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if one := kcat.Consume(t, c.Bootstrap(), "order", "-p", "1"); len(one) != 2 {
		t.Errorf("partition 1 has %d records, want 2", len(one))
	}
}

func TestTransactionLeavesAMarker(t *testing.T) {
	c := broker.Cluster(t)
	topic(t, c, "txn", nil)
	for range 2 {
		kcat.Produce(t, c.Bootstrap(), "txn", 0, []kcat.Record{{Value: []byte("v")}}, "-X", "transactional.id=one")
	}
	got := kcat.Consume(t, c.Bootstrap(), "txn")
	if len(got) != 2 || got[0].Offset != 0 || got[1].Offset != 2 {
		t.Errorf("got %v, want offsets 0 and 2 with a marker between", got)
	}
}

func TestEmptyTopic(t *testing.T) {
	c := broker.Cluster(t)
	topic(t, c, "empty", nil)
	if got := kcat.Consume(t, c.Bootstrap(), "empty"); len(got) != 0 {
		t.Errorf("an empty topic holds %v", got)
	}
}

// show tells null from empty, which a test's %q would not.
func show(r kcat.Record) string {
	return fmt.Sprintf("%d/%d key %#.60v value %#.60v headers %#v", r.Partition, r.Offset, r.Key, r.Value, r.Headers)
}

// topic makes a topic of three partitions.
func topic(t *testing.T, c *kafka.Cluster, name string, config map[string]string) {
	t.Helper()
	tc := kafkago.TopicConfig{Topic: name, NumPartitions: 3}
	for k, v := range config {
		tc.ConfigEntries = append(tc.ConfigEntries, kafkago.ConfigEntry{ConfigName: k, ConfigValue: v})
	}
	if err := c.CreateTopic(t.Context(), tc); err != nil {
		t.Fatal(err)
	}
}
