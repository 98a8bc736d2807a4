package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/plugin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A replica that is behind says of an offset that it does not exist. Only the
// log itself tells whether it is lost.
func TestOutOfRangeIsNotBelieved(t *testing.T) {
	for _, policy := range []engine.OffsetPolicy{engine.OffsetEarliest, engine.OffsetLatest, engine.OffsetFail} {
		t.Run(string(policy), func(t *testing.T) {
			inWorld(t, 1, []string{"t"}, func(w *world) {
				var seen calls
				c := w.config(plugin.HandlerFunc(func(_ context.Context, m *plugin.Message) error {
					seen.add(m)
					return nil
				}))
				reg := prometheus.NewRegistry()
				c.OffsetLost, c.Registerer = policy, reg
				r := w.start(c)
				time.Sleep(10 * time.Second) // it has joined
				for range 10 {
					w.produce(&kgo.Record{Topic: "t", Value: []byte("x")})
				}
				w.until(func() bool { return w.lag("g", "t") == 0 })
				fault := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "t", Err: kerr.OffsetOutOfRange, Count: 2})
				for range 10 {
					w.produce(&kgo.Record{Topic: "t", Value: []byte("x")})
				}
				w.until(func() bool { return w.lag("g", "t") == 0 })
				if fault.Hits() == 0 {
					t.Error("no broker said so")
				}
				r.end()
				if n := len(seen.all()); n != 20 {
					t.Errorf("%d deliveries of 20 records", n)
				}
				if n := counted(t, reg, "kconsume_offsets_lost_total", nil); n != 0 {
					t.Errorf("%v offsets are counted as lost", n)
				}
			})
		})
	}
}
