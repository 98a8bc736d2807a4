package daemon_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// producer writes transactions to one topic.
type producer struct {
	t     *testing.T
	c     *kgo.Client
	topic string
}

func (p producer) begin(keys ...string) {
	p.t.Helper()
	if err := p.c.BeginTransaction(); err != nil {
		p.t.Fatal(err)
	}
	for _, k := range keys {
		put(p.t, p.c, &kgo.Record{Topic: p.topic, Key: []byte(k), Value: []byte("ok")})
	}
}

func (p producer) end(how kgo.TransactionEndTry) {
	p.t.Helper()
	if err := p.c.EndTransaction(p.t.Context(), how); err != nil {
		p.t.Fatal(err)
	}
}

// Transactions that were committed, aborted and are open, with their markers:
// what may be read is delivered once, commits pass the rest, and an open one is
// neither lag nor a standstill.
func TestTransactions(t *testing.T) {
	for _, short := range []string{"committed", "uncommitted"} {
		isolation := "read_" + short
		t.Run(short, func(t *testing.T) {
			topic, group := "txn-"+isolation, "txn-group-"+isolation
			createTopic(t, topic, 2)
			txn := func(id string) producer {
				return producer{t, independent(t, kgo.TransactionalID(topic+id)), topic}
			}
			one, two := txn("one"), txn("two")
			one.begin("a", "b")
			two.begin("void1")
			one.end(kgo.TryCommit)
			put(t, independent(t), &kgo.Record{Topic: topic, Key: []byte("c"), Value: []byte("ok")})
			two.c.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte("void2"), Value: []byte("ok")})
			two.end(kgo.TryAbort)
			for range 3 { // nothing but what is void, and markers at the end
				two.begin("void3")
				two.end(kgo.TryAbort)
			}
			dir := t.TempDir()
			log := filepath.Join(dir, "probe.log")
			d := start(t, topic, group, log, "--retry", "1s", "--isolation", isolation, "--order", "partition")
			keys := func() (keys []string) {
				for _, one := range deliveries(t, log) {
					keys = append(keys, one.key[1:])
				}
				return keys
			}
			want := []string{"a", "b", "c"}
			if isolation == "read_uncommitted" {
				want = []string{"a", "b", "void1", "c", "void2", "void3", "void3", "void3"}
				slices.Sort(want)
			}
			sorted := func() []string { k := keys(); slices.Sort(k); return k }
			tail := end(t, topic)
			until(t, "the trailing markers are passed", func() bool { return at(t, group, topic) == tail })
			if got := sorted(); !slices.Equal(got, want) {
				t.Fatalf("delivered %v, want %v", got, want)
			}

			one.begin("open1", "open2")
			put(t, independent(t), &kgo.Record{Topic: topic, Key: []byte("behind"), Value: []byte("ok")})
			if isolation == "read_committed" {
				// Twice round by way of the other partition: the broker has told of the
				// open transaction by then, and the metrics are newer than that.
				for i := range 2 {
					put(t, independent(t), &kgo.Record{Topic: topic, Partition: 1, Key: []byte("beside"), Value: []byte("ok")})
					want = append(want, "beside")
					until(t, "the other partition goes on", func() bool { return lag(t, group, []string{topic}, 2) == 3 && len(keys()) == 3+i+1 })
				}
				slices.Sort(want)
				if n := d.metric("kconsume_lag_records", `topic="`+topic+`"`, `partition="0"`); n != 0 {
					t.Errorf("a lag of %v is told, want what may be read: 0", n)
				}
				if got := sorted(); !slices.Equal(got, want) || at(t, group, topic) != tail {
					t.Errorf("delivered %v, committed to %d, want what came before the open transaction", got, at(t, group, topic))
				}
			} else {
				until(t, "what is open is delivered", func() bool { return len(keys()) == len(want)+3 })
				until(t, "what is open is passed", func() bool { return at(t, group, topic) >= tail+3 })
			}
			one.end(kgo.TryCommit)
			want = append(want, "open1", "open2", "behind")
			slices.Sort(want)
			until(t, "the end is committed", func() bool { return at(t, group, topic) == end(t, topic) && len(keys()) == len(want) })
			if n := d.metric("kconsume_fetch_failures_total"); n > 0 {
				t.Errorf("%v fetches failed", n)
			}
			d.stop()
			if got := sorted(); !slices.Equal(got, want) {
				t.Errorf("delivered %v, want %v", got, want)
			}
			if isolation == "read_committed" {
				if got := keys(); fmt.Sprint(got[len(got)-3:]) != "[open1 open2 behind]" {
					t.Errorf("the last three came as %v", got)
				}
			}
		})
	}
}
