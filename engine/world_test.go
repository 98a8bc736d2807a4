package engine_test

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/plugin"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// world is an embedded broker in a virtual network and in virtual time: an
// hour's delay takes no time, and every timing is exact. Records are written
// and read by another client than the engine's.
type world struct {
	t       *testing.T
	net     *kfake.VirtualNetwork
	cluster *kfake.Cluster
	client  *kgo.Client
}

// inWorld runs a test in a world of its own, with topics of n partitions.
func inWorld(t *testing.T, n int, topics []string, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, net: &kfake.VirtualNetwork{}}
		var err error
		w.cluster, err = kfake.NewCluster(kfake.Ports(9092), kfake.ListenFn(w.net.Listen))
		if err != nil {
			t.Fatal(err)
		}
		for _, topic := range topics {
			if err := w.cluster.CreateTopic(topic, int32(n), nil); err != nil {
				t.Fatal(err)
			}
		}
		w.client, err = kgo.NewClient(kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.Dialer(w.net.DialContext),
			kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			w.client.Close()
			w.cluster.Close()
			synctest.Wait()
		}()
		f(w)
	})
}

func (w *world) produce(rs ...*kgo.Record) {
	w.t.Helper()
	if err := w.client.ProduceSync(w.t.Context(), rs...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

// config is an engine's configuration in this world.
func (w *world) config(h plugin.Handler) engine.Config {
	out := io.Discard
	if os.Getenv("KCONSUME_TEST_LOG") != "" {
		out = os.Stderr
	}
	return engine.Config{
		Brokers: w.cluster.ListenAddrs(), Group: "g", Topics: []string{"t"}, Handler: h,
		Logger: slog.New(slog.NewTextHandler(out, nil)), Dial: w.net.DialContext,
		RebalanceTimeout: 2 * time.Second,
	}
}

// running is an engine at work.
type running struct {
	w      *world
	engine *engine.Engine
	stop   context.CancelFunc
	done   chan error
}

func (w *world) start(c engine.Config) *running {
	w.t.Helper()
	e, err := engine.New(c)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{w: w, engine: e, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- e.Run(ctx) }()
	return r
}

// end stops the engine and waits for it.
func (r *running) end() {
	r.w.t.Helper()
	r.stop()
	if err := <-r.done; err != nil {
		r.w.t.Fatal(err)
	}
}

// read is everything that a topic holds, by partition and offset.
func (w *world) read(topic string) []*kgo.Record {
	w.t.Helper()
	adm := kadm.NewClient(w.client)
	ends, err := adm.ListEndOffsets(w.t.Context(), topic)
	if err != nil {
		w.t.Fatal(err)
	}
	left := map[int32]int64{}
	from := map[string]map[int32]kgo.Offset{topic: {}}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
			from[topic][o.Partition] = kgo.NewOffset().At(0)
		}
	})
	if len(left) == 0 {
		return nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.Dialer(w.net.DialContext), kgo.ConsumePartitions(from))
	if err != nil {
		w.t.Fatal(err)
	}
	defer client.Close()
	var out []*kgo.Record
	for len(left) > 0 {
		client.PollFetches(w.t.Context()).EachRecord(func(r *kgo.Record) {
			out = append(out, r)
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	slices.SortFunc(out, func(a, b *kgo.Record) int {
		if a.Partition != b.Partition {
			return int(a.Partition - b.Partition)
		}
		return int(a.Offset - b.Offset)
	})
	return out
}

// lag is how many records of a topic a group has not committed.
func (w *world) lag(group string, topics ...string) int64 {
	w.t.Helper()
	adm := kadm.NewClient(w.client)
	ends, err := adm.ListEndOffsets(w.t.Context(), topics...)
	if err != nil {
		w.t.Fatal(err)
	}
	done, err := adm.FetchOffsets(w.t.Context(), group)
	if err != nil {
		w.t.Fatal(err)
	}
	var lag int64
	ends.Each(func(o kadm.ListedOffset) {
		at := int64(0)
		if c, ok := done.Lookup(o.Topic, o.Partition); ok {
			at = c.At
		}
		lag += o.Offset - at
	})
	return lag
}

// calls records what a handler was called with.
type calls struct {
	mu   sync.Mutex
	list []call
}

type call struct {
	at      time.Time
	msg     plugin.Message
	release time.Time // when the call ended
}

func (c *calls) add(m *plugin.Message) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, call{at: time.Now(), msg: *m})
	return len(c.list) - 1
}

func (c *calls) end(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list[i].release = time.Now()
}

// of are the calls for the records with a value.
func (c *calls) of(value string) []call {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []call
	for _, one := range c.list {
		if string(one.msg.Value) == value {
			out = append(out, one)
		}
	}
	return out
}

func (c *calls) all() []call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list)
}

func headersOf(r *kgo.Record) map[string]string {
	m := map[string]string{}
	for _, h := range r.Headers {
		m[h.Key] = string(h.Value)
	}
	return m
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
