package engine_test

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// requests counts what a broker is asked, by kind.
type requests struct {
	mu sync.Mutex
	n  map[kmsg.Key]int
}

func (w *world) countRequests() *requests {
	r := &requests{n: map[kmsg.Key]int{}}
	w.cluster.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.KeepControl()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.n[kmsg.Key(req.Key())]++
		return nil, nil, false
	})
	return r
}

// take is what was counted since the last time.
func (r *requests) take() map[kmsg.Key]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := maps.Clone(r.n)
	clear(r.n)
	return n
}

// An engine that has nothing to do, whatever it waits for, asks brokers little.
func TestIdleIsQuiet(t *testing.T) {
	const minutes = 3
	for _, one := range []struct {
		name   string
		before func(w *world, cfg *engine.Config)
		// at most, a minute
		fetch, metadata int
	}{
		{"nothing to read", func(*world, *engine.Config) {}, 125, 90},
		{"records wait in a tier", func(w *world, cfg *engine.Config) {
			cfg.Retry = []time.Duration{time.Hour}
			w.failing("t", 500, 100)
		}, 160, 90},
		{"a full buffer waits in a tier", func(w *world, cfg *engine.Config) {
			cfg.Retry = []time.Duration{time.Hour}
			cfg.MaxBuffer = 1 << 20
			for i := range 300 {
				w.produce(&kgo.Record{Topic: "t", Partition: int32(i % 2), Value: []byte(noise("fail 9", 10<<10))})
			}
		}, 160, 90},
		{"a transaction is open", func(w *world, _ *engine.Config) { w.openTransaction("t", 3) }, 125, 90},
		{"reading is not allowed", func(w *world, _ *engine.Config) {
			w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "t", Err: kerr.TopicAuthorizationFailed, Count: -1})
		}, 250, 90},
		{"nobody leads", func(w *world, _ *engine.Config) {
			w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.NotLeaderForPartition, Count: -1})
		}, 350, 330},
	} {
		t.Run(one.name, func(t *testing.T) {
			inWorld(t, 100, []string{"t"}, func(w *world) {
				cfg := w.config(probe(&calls{}))
				one.before(w, &cfg)
				n := w.countRequests()
				r := w.start(cfg)
				time.Sleep(time.Minute) // it has settled
				n.take()
				time.Sleep(minutes * time.Minute)
				got := n.take()
				for key, k := range got {
					most := 0
					switch key {
					case kmsg.Fetch:
						most = one.fetch
					case kmsg.Heartbeat:
						most = 61
					case kmsg.Metadata: // the client's own view is at most 2 s old
						most = one.metadata
					case kmsg.ListOffsets: // inspections: of each partition
						most = 200
					default: // inspections
						most = 20
					}
					if k > most*minutes {
						t.Errorf("%d %s requests in %d minutes, want at most %d a minute", k, key.Name(), minutes, most)
					}
				}
				r.end()
			})
		})
	}
}

// openTransaction writes n records in a transaction that stays open.
func (w *world) openTransaction(topic string, n int) *kgo.Client {
	w.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.Dialer(w.net.DialContext),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("open"), kgo.TransactionTimeout(15*time.Minute))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(client.Close)
	if err := client.BeginTransaction(); err != nil {
		w.t.Fatal(err)
	}
	for range n {
		if err := client.ProduceSync(w.t.Context(), &kgo.Record{Topic: topic, Value: []byte("ok open")}).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
	}
	return client
}

// Whatever a broker answers for a while, nothing is lost and the group is not
// joined more than once a second; when the answers are good again, all goes on.
func TestBrokersAnswerWithErrors(t *testing.T) {
	group := []kmsg.Key{kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.OffsetCommit, kmsg.OffsetFetch}
	for _, one := range []struct {
		name  string
		fault kfake.Fault
	}{
		{"the coordinator loads", kfake.Fault{Keys: group, Err: kerr.CoordinatorLoadInProgress}},
		{"the coordinator is another one", kfake.Fault{Keys: group, Err: kerr.NotCoordinator}},
		{"the coordinator is not there", kfake.Fault{Keys: append(group, kmsg.FindCoordinator), Err: kerr.CoordinatorNotAvailable}},
		{"the member is unknown", kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat, kmsg.OffsetCommit, kmsg.SyncGroup}, Err: kerr.UnknownMemberID}},
		{"the generation is another one", kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat, kmsg.OffsetCommit}, Err: kerr.IllegalGeneration}},
		{"the group rebalances", kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat, kmsg.OffsetCommit, kmsg.SyncGroup}, Err: kerr.RebalanceInProgress}},
		{"the leader has moved", kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch, kmsg.Produce, kmsg.ListOffsets}, Err: kerr.NotLeaderForPartition}},
		{"there is no leader", kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch, kmsg.Produce, kmsg.Metadata}, Err: kerr.LeaderNotAvailable}},
		{"the disk is broken", kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch, kmsg.Produce}, Err: kerr.KafkaStorageError}},
		{"too few replicas", kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas}},
		{"reading and writing are not allowed", kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch, kmsg.Produce}, Err: kerr.TopicAuthorizationFailed}},
	} {
		t.Run(one.name, func(t *testing.T) {
			inWorld(t, 4, []string{"t"}, func(w *world) {
				var c calls
				cfg := w.tiers(&c, time.Second, 2*time.Second)
				cfg.SessionTimeout = 10 * time.Second
				put := func(round int) {
					for i := range 40 {
						w.produce(&kgo.Record{Topic: "t", Partition: int32(i % 4), Key: fmt.Append(nil, i), Value: fmt.Appendf(nil, "fail 1 %d/%d", round, i)})
					}
				}
				var mu sync.Mutex
				var joins []time.Time
				w.cluster.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
					w.cluster.KeepControl()
					mu.Lock()
					defer mu.Unlock()
					joins = append(joins, time.Now())
					return nil, nil, false
				})
				put(0)
				r := w.start(cfg)
				time.Sleep(5 * time.Second)
				one.fault.Count = -1
				one.fault.When = func(req kmsg.Request) bool { // our test's own writes go through
					p, ok := req.(*kmsg.ProduceRequest)
					return !ok || len(p.Topics) > 0 && strings.HasPrefix(p.Topics[0].Topic, "t.")
				}
				fault := w.cluster.Fault(one.fault)
				put(1)
				time.Sleep(20 * time.Second)
				fault.Remove()
				put(2)
				time.Sleep(30 * time.Second)
				if s := statusOf(r); s.State != engine.StateRunning || s.Problem != "" {
					t.Errorf("30 s after the last error it is %s: %s", s.State, s.Problem)
				}
				r.end()
				if fault.Hits() == 0 {
					t.Error("nothing was answered with the error")
				}
				if lag := w.lag("g", "t", "t.retry.1s", "t.retry.2s"); lag != 0 {
					t.Errorf("lag %d at the end", lag)
				}
				done := map[string]bool{}
				for _, one := range c.all() {
					if one.msg.Attempt == 2 {
						done[one.msg.ID] = true
					}
				}
				if len(done) != 120 || len(w.read("t.dlq")) != 0 {
					t.Errorf("%d of 120 records were handled", len(done))
				}
				mu.Lock()
				defer mu.Unlock()
				for i := 3; i < len(joins); i++ { // a first join is answered with an id, and sent again
					if gap := joins[i].Sub(joins[i-3]); gap < time.Second {
						t.Errorf("4 joins within %v", gap)
						break
					}
				}
				t.Logf("%d errors, %d joins, %v generations", fault.Hits(), len(joins), counted(t, cfg.Registerer.(*prometheus.Registry), "kconsume_generations_total", nil))
			})
		})
	}
}
