package engine_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
)

// failing writes n records that fail more often than any limit, over partitions.
func (w *world) failing(topic string, n, partitions int) {
	w.t.Helper()
	for i := range n {
		w.produce(&kgo.Record{Topic: topic, Partition: int32(i % partitions), Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "fail 9 %d", i)})
	}
}

// tiers is a configuration with these retry tiers, and metrics of its own.
func (w *world) tiers(c *calls, retry ...time.Duration) engine.Config {
	cfg := w.config(probe(c))
	cfg.Retry = append([]time.Duration{}, retry...)
	cfg.Registerer = prometheus.NewRegistry()
	return cfg
}

// allDead fails unless n records of a topic are in its DLQ, each once, after
// deliveries that were neither early nor over the limit.
func (w *world) allDead(topic string, n int, c *calls) {
	w.t.Helper()
	ids := map[string]int{}
	for _, r := range w.read(topic + ".dlq") {
		ids[headersOf(r)["X-Record-Id"]]++
	}
	if len(ids) != n {
		w.t.Errorf("%d distinct ids in %s.dlq, want %d", len(ids), topic, n)
	}
	for id, k := range ids {
		if k != 1 {
			w.t.Errorf("%s is in the DLQ %d times", id, k)
		}
	}
	for _, one := range c.all() {
		if one.msg.Attempt > one.msg.MaxAttempts {
			w.t.Errorf("%s: attempt %d of %d", one.msg.ID, one.msg.Attempt, one.msg.MaxAttempts)
		}
	}
}

// notEarly fails where a record of a tier was delivered before it was due, or
// long after.
func (w *world) notEarly(c *calls, tier string, late time.Duration) {
	w.t.Helper()
	due := map[string]time.Time{}
	for _, r := range w.read(tier) {
		h := headersOf(r)
		ms, err := strconv.ParseInt(h["X-Retry-Due"], 10, 64)
		if err != nil {
			w.t.Fatal(err)
		}
		failed, _ := strconv.Atoi(h["X-Retry-Attempts"])
		due[fmt.Sprint(h["X-Record-Id"], " ", failed+1)] = time.UnixMilli(ms)
	}
	n := 0
	for _, one := range c.all() {
		at, ok := due[fmt.Sprint(one.msg.ID, " ", one.msg.Attempt)]
		if !ok {
			continue
		}
		n++
		if one.at.Before(at) || one.at.Sub(at) > late {
			w.t.Errorf("%s attempt %d came %v after it was due", one.msg.ID, one.msg.Attempt, one.at.Sub(at))
		}
	}
	if n == 0 {
		w.t.Errorf("nothing was delivered from %s", tier)
	}
}

// storm fails if members joined more generations than so many.
func (w *world) storm(cfg engine.Config, most int) {
	w.t.Helper()
	if n := counted(w.t, cfg.Registerer.(*prometheus.Registry), "kconsume_generations_total", nil); n > float64(most) {
		w.t.Errorf("a member joined %v generations, at most %d were called for", n, most)
	}
}

// A rolling deploy takes a tier away and adds another, while records wait in the
// one that goes, whichever member leads the group meanwhile.
func TestTiersChangeInARollingDeploy(t *testing.T) {
	for _, order := range []string{"an old member leads", "a new member leads"} {
		t.Run(order, func(t *testing.T) {
			inWorld(t, 4, []string{"t"}, func(w *world) {
				var c calls
				old := func() engine.Config { return w.tiers(&c, 5*time.Second, 30*time.Second) }
				young := func() engine.Config { return w.tiers(&c, 5*time.Second, 2*time.Minute) }
				w.failing("t", 40, 4)
				a, b := w.start(old()), w.start(old())
				time.Sleep(15 * time.Second)
				if n := len(w.read("t.retry.30s")); n < 40 {
					t.Fatalf("only %d records wait in the tier that goes", n)
				}
				a.end()
				cfgA, cfgB := young(), young()
				if order == "a new member leads" {
					b.end()
					a = w.start(cfgA)
					time.Sleep(2 * time.Second)
					b = w.start(old())
				} else {
					a = w.start(cfgA)
				}
				time.Sleep(5 * time.Second)
				sa := statusOf(a)
				leftovers := 0
				for _, st := range sa.Stages {
					if st.Leftover {
						leftovers++
						if st.Topic != "t.retry.30s" {
							t.Errorf("%s is drained", st.Topic)
						}
					}
				}
				if leftovers != 1 || len(sa.Unowned) != 0 {
					t.Errorf("status: %+v", sa)
				}
				w.failing("t", 40, 4) // while mixed
				time.Sleep(55 * time.Second)
				b.end()
				b = w.start(cfgB)
				time.Sleep(3 * time.Minute)
				a.end()
				b.end()
				w.allDead("t", 80, &c)
				w.notEarly(&c, "t.retry.30s", 6*time.Second)
				if lag := w.lag("g", "t", "t.retry.5s", "t.retry.30s", "t.retry.2m"); lag != 0 {
					t.Errorf("lag %d", lag)
				}
				w.storm(cfgA, 10)
				w.storm(cfgB, 10)
			})
		})
	}
}

// What waited in a tier that is gone goes on to the next longer one, which keeps
// the count of attempts, and without any tier to the DLQ.
func TestLeftoversGoOn(t *testing.T) {
	for _, next := range []struct {
		name  string
		retry []time.Duration
		max   int
		to    string
	}{
		{"to the next longer tier", []time.Duration{2 * time.Minute, time.Second, time.Hour}, 9, "t.retry.2m"},
		{"to the DLQ: no tier is longer", []time.Duration{time.Second, 2 * time.Second}, 9, "t.dlq"},
		{"to the DLQ: no retries", nil, 0, "t.dlq"},
		{"to the DLQ: no attempt is left", []time.Duration{time.Minute}, 2, "t.dlq"},
	} {
		t.Run(next.name, func(t *testing.T) {
			inWorld(t, 2, []string{"t"}, func(w *world) {
				var c calls
				w.failing("t", 10, 2)
				r := w.start(w.tiers(&c, 30*time.Second))
				time.Sleep(10 * time.Second)
				r.end()
				cfg := w.tiers(&c, next.retry...)
				cfg.MaxAttempts = next.max
				r = w.start(cfg)
				time.Sleep(40 * time.Second)
				if got := len(w.read(next.to)); got != 10 {
					t.Errorf("%d records went to %s, want 10", got, next.to)
				}
				r.end()
				if lag := w.lag("g", "t.retry.30s"); lag != 0 {
					t.Errorf("lag %d on the tier that is gone", lag)
				}
				first, waited := map[string]time.Time{}, 0
				for _, one := range c.all() {
					switch one.msg.Stage {
					case "main":
						first[one.msg.ID] = one.at
					case "retry.30s":
						waited++
						if d := one.at.Sub(first[one.msg.ID]); d < 30*time.Second || d > 31*time.Second {
							t.Errorf("%s waited for %v", one.msg.ID, d)
						}
						if want := min(2, one.msg.MaxAttempts); one.msg.Attempt != want {
							t.Errorf("attempt %d of %d, want %d", one.msg.Attempt, one.msg.MaxAttempts, want)
						}
					}
				}
				if waited != 10 {
					t.Errorf("%d deliveries from the tier that is gone, want 10", waited)
				}
				cfg.Registerer = nil
				r = w.start(cfg) // drained: it is left out
				time.Sleep(5 * time.Second)
				for _, st := range statusOf(r).Stages {
					if st.Leftover {
						t.Errorf("%s is read on, though nothing is left in it", st.Topic)
					}
				}
				r.end()
			})
		})
	}
}

// A topic is added to one member's list before the other's.
func TestTopicAddedInARollingDeploy(t *testing.T) {
	inWorld(t, 4, []string{"t", "u"}, func(w *world) {
		var c calls
		one := w.tiers(&c, time.Second)
		two := w.tiers(&c, time.Second)
		two.Topics = []string{"t", "u"}
		w.failing("t", 20, 4)
		a, b := w.start(one), w.start(w.tiers(&c, time.Second))
		time.Sleep(2 * time.Second)
		b.end()
		b = w.start(two)
		w.failing("u", 20, 4)
		time.Sleep(30 * time.Second)
		for _, r := range []*running{a, b} {
			if s := statusOf(r); s.Problem != "" || len(s.Unowned) > 0 {
				t.Errorf("status: %+v", s)
			}
		}
		a.end()
		b.end()
		w.allDead("t", 20, &c)
		w.allDead("u", 20, &c)
		w.storm(one, 8)
	})
}

// A newer version made a tier, left records in it and is gone (a deploy rolled
// back): a member that ran all the time finds the tier and drains it.
func TestTierFoundWhileRunning(t *testing.T) {
	inWorld(t, 2, []string{"t"}, func(w *world) {
		var c calls
		w.failing("t", 10, 2)
		newer := w.start(w.tiers(&c, 2*time.Minute))
		time.Sleep(5 * time.Second)
		cfg := w.tiers(&c, 5*time.Second, 30*time.Second)
		r := w.start(cfg) // it drains the tier that it finds now
		time.Sleep(5 * time.Second)
		newer.end()
		w.topic("t.retry.10m", 2, 1<<20) // and does not know this one
		time.Sleep(30 * time.Second)
		late := &kgo.Record{Topic: "t.retry.10m", Partition: 1, Value: []byte("ok"), Headers: []kgo.RecordHeader{
			{Key: "X-Retry-Group", Value: []byte("g")}, {Key: "X-Retry-Attempts", Value: []byte("1")},
		}}
		w.produce(late)
		time.Sleep(3*time.Minute + 30*time.Second)
		s := statusOf(r)
		found := false
		for _, st := range s.Stages {
			found = found || st.Topic == "t.retry.10m" && len(st.Partitions) == 2 && st.Leftover
		}
		if !found {
			t.Errorf("the tier was not found: %+v", s)
		}
		time.Sleep(11 * time.Minute)
		r.end()
		if n := len(c.of("ok")); n != 1 {
			t.Errorf("the record in it was delivered %d times", n)
		}
		w.allDead("t", 10, &c)
		if lag := w.lag("g", "t", "t.retry.10m", "t.retry.2m", "t.retry.5s", "t.retry.30s"); lag != 0 {
			t.Errorf("lag %d", lag)
		}
		w.storm(cfg, 8)
	})
}

// More leftover tiers turn up under a running member than it can subscribe to:
// the rest is named, and read after the next start.
func TestUnownedPartitionsAreNamed(t *testing.T) {
	inWorld(t, 1, []string{"t"}, func(w *world) {
		var c calls
		cfg := w.tiers(&c, 5*time.Second)
		r := w.start(cfg)
		time.Sleep(10 * time.Second)
		const made = 18
		for i := range made {
			topic := fmt.Sprintf("t.retry.%dms", 101+i)
			w.topic(topic, 1, 1<<20)
			w.produce(&kgo.Record{Topic: topic, Value: []byte("ok"), Headers: []kgo.RecordHeader{{Key: "X-Retry-Group", Value: []byte("g")}}})
		}
		time.Sleep(5 * time.Minute)
		s := statusOf(r)
		if len(s.Unowned) != 2 || s.Unowned[0].Topic != "t.retry.117ms" || len(s.Unowned[0].Partitions) != 1 {
			t.Errorf("status names %+v as unowned", s.Unowned)
		}
		for _, u := range s.Unowned {
			if n := counted(t, cfg.Registerer.(*prometheus.Registry), "kconsume_unowned_partitions", map[string]string{"topic": u.Topic}); n != 1 {
				t.Errorf("the metric for %s is %v", u.Topic, n)
			}
		}
		r.end()
		w.storm(cfg, 6)
		cfg.Registerer = nil
		r = w.start(cfg)
		time.Sleep(time.Minute)
		if s := statusOf(r); len(s.Unowned) != 0 || s.Problem != "" {
			t.Errorf("after a restart: %+v", s)
		}
		r.end()
		if n := len(c.of("ok")); n != made {
			t.Errorf("%d records were handled, want %d", n, made)
		}
	})
}

// Records of a group that was renamed are passed over, counted and named.
func TestRecordsOfARenamedGroup(t *testing.T) {
	inWorld(t, 2, []string{"t"}, func(w *world) {
		var c calls
		old := w.tiers(&c, time.Hour)
		old.Group = "billing"
		w.failing("t", 7, 2)
		r := w.start(old)
		time.Sleep(10 * time.Second)
		cfg := w.tiers(&calls{}, time.Hour)
		other := w.start(cfg)
		time.Sleep(4 * time.Minute)
		if s := statusOf(other); len(s.Orphans) != 0 {
			t.Errorf("a group that is there is called gone: %+v", s.Orphans)
		}
		r.end()
		other.end()
		cfg.Registerer = prometheus.NewRegistry()
		other = w.start(cfg) // it has read past them, and looks anew
		time.Sleep(time.Minute)
		s := statusOf(other)
		if len(s.Orphans) != 1 || s.Orphans[0].Group != "billing" || s.Orphans[0].Records != 7 {
			t.Errorf("status names %+v", s.Orphans)
		}
		if !strings.Contains(s.Problem, "kconsume retries adopt --from") {
			t.Errorf("status says %q", s.Problem)
		}
		if n := counted(t, cfg.Registerer.(*prometheus.Registry), "kconsume_orphaned_records", nil); n != 7 {
			t.Errorf("the metric is %v", n)
		}
		other.end()
	})
}
