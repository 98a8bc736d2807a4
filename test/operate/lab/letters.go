package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kconsume/kconsume/engine/history"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Failure is a way in which records failed.
type Failure struct {
	Class, Code, Message string // of which %d is the record's number
	Handler              string
	Value                string // what the probe does with a copy
	Hours                float64
	Key, Header          string // "" = a customer's, and none
}

// Failures are twelve groups of dead letters. The first line of each value is
// what the probe does when it is sent again: most are handled then.
func Failures() []Failure {
	return []Failure{
		{"transient", "503", "gateway payments answered 503 after %d ms: busy", "orders@1.4.2", "ok", 6, "", ""},
		{"permanent", "validation", "order %d: total_cents does not match the sum of its items", "orders@1.4.2", "ok", 20, "", ""},
		{"poison", "json", "decode JSON: unexpected end of input at byte %d", "orders@1.4.1", "perm", 23, "", ""},
		{"permanent", "404", "customer %d is not known", "orders@1.4.2", "perm", 12, "", ""},
		{"timeout", "timeout", "the handler took longer than 30s on record %d", "orders@1.4.2", "ok", 3, "", ""},
		{"transient", "ECONNREFUSED", "dial tcp 10.20.30.%d:5432: connect: connection refused", "orders@1.4.2", "ok", 2, "", ""},
		{"permanent", "23505", "duplicate key value violates unique constraint \"orders_pkey\" (order %d)", "orders@1.4.0", "ok", 22, "", ""},
		{"panic", "panic", "runtime error: index out of range [%d] with length 3", "orders@1.4.1", "ok", 15, "", ""},
		{"permanent", "currency", "currency \"<script>alert(%d)</script>\" is not supported", "orders@1.4.2", "perm", 9, "", ""},
		{"handler_crash", "handler_crash", "the handler died of this record %d times: killed by SIGSEGV", "orders@1.4.1", "ok", 8, "", ""},
		{"transient", "57P01", "terminating connection due to administrator command (session %d)", "orders@1.4.2", "ok", 1, "", ""},
		{"permanent", "schema", "schema id %d is not registered", "orders@1.4.2", "perm", 5, "", ""},
	}
}

// Letters are dead letters of a group to be written.
type Letters struct {
	Topic      string // the main one
	Group      string
	Partitions int32
	First, N   int       // their numbers, which are their origins' offsets too
	Failures   []Failure // nil = Failures()
	Size       int       // bytes of each value at least
}

// Write writes them to the DLQ, spread over the last hours and over its
// partitions.
func (l Letters) Write(ctx context.Context, bootstrap string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(50*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	if l.Failures == nil {
		l.Failures = Failures()
	}
	now := time.Now()
	var failed error
	var once sync.Once
	for i := l.First; i < l.First+l.N; i++ {
		client.Produce(ctx, l.record(i, now), func(_ *kgo.Record, err error) {
			if err != nil {
				once.Do(func() { failed = err })
			}
		})
	}
	return errors.Join(client.Flush(ctx), failed)
}

func (l *Letters) record(i int, now time.Time) *kgo.Record {
	f := l.Failures[(i*i+i/7)%len(l.Failures)]
	age := time.Duration(f.Hours * float64(time.Hour) * float64(l.First+l.N-i) / float64(l.N))
	at := now.Add(-age)
	m := history.Meta{
		Group: l.Group, Failed: 3, Origin: history.Origin{Topic: l.Topic, Partition: int32(i) % l.Partitions, Offset: int64(i), Timestamp: at.Add(-time.Minute).UnixMilli()},
		FirstFailure: at.Add(-40 * time.Second).UnixMilli(), Class: f.Class, Code: f.Code, Message: fmt.Sprintf(f.Message, i), ErrorTime: at.UnixMilli(), Handler: f.Handler,
	}
	if f.Class != "transient" && f.Class != "timeout" {
		m.Failed = 1
	}
	value := fmt.Appendf(nil, "%s\n{\"order\":%d,\"customer\":\"<b>Ada</b>\",\"items\":[{\"sku\":\"A-%d\",\"cents\":1299}],\"total_cents\":2598}", f.Value, 100000+i, i%31)
	noise := rand.New(rand.NewPCG(uint64(i), 1)) // what no compression makes smaller
	for len(value) < l.Size {
		value = append(value, byte(' '+noise.IntN(95)))
	}
	r := &kgo.Record{
		Topic: l.Topic + ".dlq", Partition: int32(i) % l.Partitions, Timestamp: at, Key: fmt.Appendf(nil, "customer-%d", i%97), Value: value,
		Headers: []kgo.RecordHeader{
			{Key: "traceparent", Value: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")},
			{Key: "source", Value: []byte("shop")}, {Key: "empty", Value: []byte{}}, {Key: "nothing"},
		},
	}
	if f.Key != "" {
		r.Key = []byte(f.Key)
	}
	if f.Header != "" {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: f.Header, Value: []byte(f.Header)})
	}
	for _, h := range m.Headers(nil, false) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return r
}

// DLQ is the DLQ of a main topic whose records keep the times they are written
// with, as those of a DLQ that somebody made by hand.
func DLQ(topic string, partitions int) kafka.TopicConfig {
	return kafka.TopicConfig{Topic: topic + ".dlq", NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: []kafka.ConfigEntry{
		{ConfigName: "retention.ms", ConfigValue: "-1"}, {ConfigName: "message.timestamp.type", ConfigValue: "CreateTime"},
	}}
}
