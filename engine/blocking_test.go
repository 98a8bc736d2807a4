package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kconsume/kconsume/plugin"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A key that is slow and a key that always fails hold up nobody else, in their
// own partition or in another, in the main topic or in a tier.
func TestSlowAndFailingKeysHoldUpNobody(t *testing.T) {
	inWorld(t, 2, []string{"t"}, func(w *world) {
		var c calls
		cfg := w.tiers(&c, time.Second)
		rest := probe(&c)
		cfg.Handler = plugin.HandlerFunc(func(ctx context.Context, m *plugin.Message) error {
			if string(m.Value) != "slow" {
				return rest.Handle(ctx, m)
			}
			c.add(m)
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Second):
			}
			return ctx.Err()
		})
		for i := range 50 {
			w.produce(&kgo.Record{Topic: "t", Key: []byte("slow"), Value: []byte("slow")})
			w.produce(&kgo.Record{Topic: "t", Key: []byte("bad"), Value: []byte("fail 9")})
			w.produce(&kgo.Record{Topic: "t", Key: fmt.Append(nil, i), Value: []byte("fail 1")})
			w.produce(&kgo.Record{Topic: "t", Partition: 1, Key: []byte("slow"), Value: []byte("ok")})
		}
		begin := time.Now()
		r := w.start(cfg)
		time.Sleep(30 * time.Second)
		for _, value := range []string{"fail 9", "fail 1", "ok"} {
			want, within := 100, 10*time.Second
			if value == "ok" {
				want = 50
			}
			got := c.of(value)
			if len(got) != want {
				t.Errorf("%q: %d deliveries within 30 s, want %d", value, len(got), want)
			}
			for _, one := range got {
				if late := one.at.Sub(begin); late > within {
					t.Errorf("%q, offset %d, attempt %d: delivered after %v", value, one.msg.Offset, one.msg.Attempt, late)
				}
			}
		}
		if n := len(c.of("slow")); n > 2 {
			t.Errorf("%d calls of the slow key within 30 s", n)
		}
		r.end()
	})
}

// A partition whose buffer is full is left out of the fetches until it has room;
// the others are read as before.
func TestFullPartitionLeavesTheFetch(t *testing.T) {
	inWorld(t, 2, []string{"t"}, func(w *world) {
		var c calls
		var asked [2]atomic.Int64
		w.cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			for _, topic := range req.(*kmsg.FetchRequest).Topics {
				for _, p := range topic.Partitions {
					if topic.Topic == "t" {
						asked[p.Partition].Add(1)
					}
				}
			}
			return nil, nil, false
		})
		free := make(chan struct{})
		cfg := w.config(plugin.HandlerFunc(func(_ context.Context, m *plugin.Message) error {
			i := c.add(m)
			defer c.end(i)
			if m.Partition == 0 {
				<-free
			}
			return nil
		}))
		cfg.MaxBuffer = 1 << 20
		cfg.HandlerTimeout = time.Hour
		for range 60 {
			w.produce(&kgo.Record{Topic: "t", Key: []byte("k"), Value: []byte(noise("v", 50<<10))}) // 3 MiB
		}
		r := w.start(cfg)
		time.Sleep(10 * time.Second)
		asked[0].Store(0)
		asked[1].Store(0)
		for i := range 120 {
			now := time.Now()
			w.produce(&kgo.Record{Topic: "t", Partition: 1, Value: fmt.Append(nil, i)})
			time.Sleep(500 * time.Millisecond)
			if got := c.of(fmt.Sprint(i)); len(got) != 1 || got[0].at.Sub(now) > 200*time.Millisecond {
				t.Fatalf("record %d of the other partition: %d deliveries within half a second", i, len(got))
			}
			if s := statusOf(r); s.Buffered > cfg.MaxBuffer {
				t.Fatalf("%d bytes are held, at most %d may be", s.Buffered, cfg.MaxBuffer)
			}
		}
		if full, other := asked[0].Load(), asked[1].Load(); full > 0 || other < 100 {
			t.Errorf("the full partition was asked for %d times in a minute, the other %d times", full, other)
		}
		close(free)
		time.Sleep(10 * time.Second)
		r.end()
		if n := len(c.all()); n != 60+120 {
			t.Errorf("%d deliveries, want 180", n)
		}
		if lag := w.lag("g", "t"); lag != 0 {
			t.Errorf("lag %d", lag)
		}
	})
}
