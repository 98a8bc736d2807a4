// Package test holds the suite that runs against real Apache Kafka.
package test

import (
	"os"
	"reflect"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kconsume/kconsume/engine/fetch"
	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/test/kafka"
	"github.com/kconsume/kconsume/test/kcat"
)

var broker kafka.Shared

func TestMain(m *testing.M) { os.Exit(broker.Run(m)) }

// Three programs that share no code agree on a topic: kcat writes it, Kafka
// keeps it, our fetch reads it.
func TestFetchReadsWhatKcatWrote(t *testing.T) {
	c := broker.Cluster(t)
	if err := c.CreateTopic(t.Context(), kafkago.TopicConfig{Topic: "smoke", NumPartitions: 1}); err != nil {
		t.Fatal(err)
	}
	headers := []plugin.Header{{Key: "a", Value: nil}, {Key: "a", Value: []byte{}}, {Key: "b", Value: []byte("\xff=,")}}
	want := []kcat.Record{
		{Key: nil, Value: []byte("no key")},
		{Key: []byte{}, Value: []byte("empty key")},
		{Key: []byte("k"), Value: nil},
		{Key: []byte("k"), Value: []byte{}, Headers: headers},
	}
	kcat.Produce(t, c.Bootstrap(), "smoke", 0, want)

	transport := &kafkago.Transport{}
	defer transport.CloseIdleConnections()
	answer, err := fetch.Do(t.Context(), transport, kafkago.TCP(c.Bootstrap()), fetch.Request{
		Broker: 1, MaxWait: time.Second, MinBytes: 1, MaxBytes: 1 << 20, ReadCommitted: true,
		Wants: []fetch.Want{{Topic: "smoke", MaxBytes: 1 << 20, LeaderEpoch: -1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	part := answer.Parts[0]
	if part.Err != nil {
		t.Fatal(part.Err)
	}
	var got []kcat.Record
	for _, r := range part.Set.Records {
		got = append(got, kcat.Record{Key: r.Key, Value: r.Value, Headers: r.Headers})
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %#v\nwant %#v", got, want)
	}
}
