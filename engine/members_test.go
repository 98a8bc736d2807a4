package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/plugin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A member that joins takes lanes over; those that stay go on untouched, and
// nothing is handled twice at once.
func TestJoinKeepsWhatStays(t *testing.T) {
	inWorld(t, 6, []string{"t"}, func(w *world) {
		var c calls
		for i := range 300 {
			w.produce(&kgo.Record{Topic: "t", Partition: int32(i % 6), Value: []byte("sleep 400")})
		}
		cfg := w.config(probe(&c))
		cfg.Concurrency = 6
		a := w.start(cfg)
		time.Sleep(5 * time.Second)
		b := w.start(cfg)
		time.Sleep(30 * time.Second)
		sa, err := a.engine.Status(w.t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sb, err := b.engine.Status(w.t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []engine.Status{sa, sb} {
			for _, st := range s.Stages {
				if len(st.Partitions) != 3 {
					t.Errorf("%s: a member owns %d of 6 partitions", st.Topic, len(st.Partitions))
				}
			}
		}
		b.end()
		a.end()
		byID := map[string][]call{}
		for _, one := range c.all() {
			byID[one.msg.ID] = append(byID[one.msg.ID], one)
		}
		if len(byID) != 300 {
			t.Errorf("%d of 300 records were handled", len(byID))
		}
		twice := 0
		for _, list := range byID {
			if len(list) > 1 {
				twice++
			}
		}
		if twice > 6 { // what flew on the lanes that moved
			t.Errorf("%d records were handled twice, at most the 6 in flight may be", twice)
		}
	})
}

// A delivery that we cancelled has no verdict, whatever the handler makes of it.
func TestCancelledDeliveriesHaveNoVerdict(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		var c calls
		answers := []func(context.Context) error{
			func(context.Context) error { return errors.New("stopped") },
			func(ctx context.Context) error { return fmt.Errorf("query: %v", ctx.Err()) },
			func(ctx context.Context) error { return ctx.Err() },
			func(context.Context) error { return nil },
		}
		h := plugin.HandlerFunc(func(ctx context.Context, m *plugin.Message) error {
			c.add(m)
			<-ctx.Done()
			return answers[m.Offset%int64(len(answers))](ctx)
		})
		for i := range 8 {
			w.produce(&kgo.Record{Topic: "t", Key: fmt.Append(nil, i), Value: []byte("v")})
		}
		cfg := w.config(h)
		cfg.DrainTimeout = 2 * time.Second
		cfg.Retry = []time.Duration{5 * time.Second}
		r := w.start(cfg)
		time.Sleep(5 * time.Second)
		r.end() // after the drain timeout
		if n := len(w.read("t.dlq")) + len(w.read("t.retry.5s")); n != 0 {
			t.Errorf("%d records were forwarded because we cancelled them", n)
		}
		if lag := w.lag("g", "t"); lag != 8 {
			t.Errorf("lag %d, want 8: a cancelled record was passed over", lag)
		}
		r = w.start(w.config(probe(&c)))
		time.Sleep(5 * time.Second)
		r.end()
		for _, one := range c.all() {
			if one.msg.Attempt != 1 {
				t.Errorf("a cancelled delivery cost an attempt: %s has attempt %d", one.msg.ID, one.msg.Attempt)
			}
		}
	})
}

// A call that outlives its deadline is a timeout; its key stays occupied until
// it has ended.
func TestLateCallKeepsItsKey(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		var c calls
		h := plugin.HandlerFunc(func(_ context.Context, m *plugin.Message) error {
			i := c.add(m)
			defer c.end(i)
			if m.Offset == 0 && m.Attempt == 1 {
				time.Sleep(20 * time.Second) // deaf to its context
			}
			return nil
		})
		for range 2 {
			w.produce(&kgo.Record{Topic: "t", Key: []byte("k"), Value: []byte("v")})
		}
		w.produce(&kgo.Record{Topic: "t", Key: []byte("other"), Value: []byte("v")})
		cfg := w.config(h)
		cfg.HandlerTimeout = 2 * time.Second
		r := w.start(cfg)
		time.Sleep(60 * time.Second)
		r.end()
		retried := w.read("t.retry.5s")
		if len(retried) != 1 || headersOf(retried[0])["X-Error-Class"] != "timeout" || headersOf(retried[0])["X-Retry-Attempts"] != "1" {
			t.Fatalf("the retry topic has %d records", len(retried))
		}
		all := c.all()
		if len(all) != 4 {
			t.Fatalf("%d deliveries, want 4", len(all))
		}
		first := slices.IndexFunc(all, func(one call) bool { return one.msg.Offset == 0 && one.msg.Attempt == 1 })
		late := all[first]
		for i, one := range all {
			if i != first && string(one.msg.Key) == "k" && one.at.Before(late.release) {
				t.Errorf("offset %d attempt %d began %v before the late call of its key had ended", one.msg.Offset, one.msg.Attempt, late.release.Sub(one.at))
			}
			if string(one.msg.Key) == "other" && one.at.Sub(late.at) > time.Second {
				t.Errorf("another key waited %v for the late call", one.at.Sub(late.at))
			}
		}
	})
}

// A record without a key has no key to occupy: it is not handed out again itself
// while its late call runs.
func TestLateCallKeepsItsRecord(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		var c calls
		h := plugin.HandlerFunc(func(_ context.Context, m *plugin.Message) error {
			i := c.add(m)
			defer c.end(i)
			if m.Attempt == 1 {
				time.Sleep(20 * time.Second) // deaf to its context
			}
			return nil
		})
		w.produce(&kgo.Record{Topic: "t", Value: []byte("v")})
		cfg := w.config(h)
		cfg.HandlerTimeout = 2 * time.Second
		r := w.start(cfg)
		time.Sleep(40 * time.Second)
		r.end()
		all := c.all()
		if len(all) != 2 || all[1].msg.Attempt != 2 {
			t.Fatalf("%d deliveries, want 2", len(all))
		}
		if all[1].at.Before(all[0].release) {
			t.Errorf("the second delivery began %v before the first call had ended", all[0].release.Sub(all[1].at))
		}
	})
}

// A retry topic that refuses writes: nothing is committed past the record, it is
// tried again, and other records are not held up.
func TestForwardsNeverGiveUp(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		var c calls
		var refuse atomic.Bool
		refuse.Store(true)
		w.cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			p := req.(*kmsg.ProduceRequest)
			if !refuse.Load() || len(p.Topics) == 0 || p.Topics[0].Topic != "t.retry.5s" {
				return nil, nil, false
			}
			res := p.ResponseKind().(*kmsg.ProduceResponse)
			for _, topic := range p.Topics {
				rt := kmsg.NewProduceResponseTopic()
				rt.Topic = topic.Topic
				for _, part := range topic.Partitions {
					rp := kmsg.NewProduceResponseTopicPartition()
					rp.Partition, rp.ErrorCode = part.Partition, kerr.TopicAuthorizationFailed.Code
					rt.Partitions = append(rt.Partitions, rp)
				}
				res.Topics = append(res.Topics, rt)
			}
			return res, nil, true
		})
		w.produce(values("t", "ok", "fail 1", "ok", "perm", "ok")...)
		r := w.start(w.config(probe(&c)))
		time.Sleep(20 * time.Second)
		if n := len(c.all()); n != 5 {
			t.Errorf("%d deliveries while the retry topic refuses, want 5", n)
		}
		if lag := w.lag("g", "t"); lag != 4 {
			t.Errorf("lag %d, want 4: committed past a record that was not forwarded", lag)
		}
		s, err := r.engine.Status(w.t.Context())
		if err != nil || s.Problem == "" {
			t.Errorf("status names no problem: %+v, %v", s, err)
		}
		refuse.Store(false)
		time.Sleep(20 * time.Second)
		r.end()
		if n := len(c.of("fail 1")); n != 2 {
			t.Errorf("the refused record was delivered %d times, want 2", n)
		}
		if lag := w.lag("g", "t", "t.retry.5s"); lag != 0 {
			t.Errorf("lag %d at the end", lag)
		}
	})
}

func TestTopicsThatCannotWork(t *testing.T) {
	inWorld(t, 3, []string{"t", "u"}, func(w *world) {
		for name, change := range map[string]func(*engine.Config){
			"no such topic":     func(c *engine.Config) { c.Topics = []string{"nope"} },
			"tiers are missing": func(c *engine.Config) { c.KeepTopics = true },
		} {
			c := w.config(probe(&calls{}))
			change(&c)
			r := w.start(c)
			err := <-r.done
			if engine.ClassOf(err) != engine.ErrConfig {
				t.Errorf("%s: %v, want an error of class config", name, err)
			}
			r.stop()
		}
	})
}

func TestNoBroker(t *testing.T) {
	inWorld(t, 1, nil, func(w *world) {
		c := w.config(probe(&calls{}))
		c.Brokers = []string{"127.0.0.1:1"}
		r := w.start(c)
		time.Sleep(time.Minute)
		if err := r.engine.Alive(w.t.Context()); err != nil {
			t.Errorf("an engine without a broker is not alive: %v", err)
		}
		if err := r.engine.Ready(w.t.Context()); err == nil {
			t.Error("an engine without a broker is ready")
		}
		r.end()
		c.ExitIfUnreachable = true
		begin := time.Now()
		r = w.start(c)
		if err := <-r.done; engine.ClassOf(err) != engine.ErrUnreachable {
			t.Errorf("got %v, want an error of class unreachable", err)
		}
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("it took %v to say so", took)
		}
		r.stop()
	})
}
