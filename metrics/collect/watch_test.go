package collect

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/engine"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// world is what a Watch looks at. It is changed between two looks; where Run
// looks, with mu held.
type world struct {
	mu     sync.Mutex
	status engine.Status
	sums   []dlq.Summary
	broken error
	asked  int
}

func (w *world) config() WatchConfig {
	return WatchConfig{
		Status: func(context.Context) (engine.Status, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.status, w.broken
		},
		Summaries: func(context.Context) ([]dlq.Summary, error) { w.asked++; return w.sums, w.broken },
	}
}

// owns is a status with these partitions of the main topic.
func owns(ids ...int32) engine.Status {
	st := engine.StageStatus{Topic: "orders", Stage: "main", Of: "orders"}
	tier := engine.StageStatus{Topic: "orders.retry.5s", Stage: "retry.5s", Of: "orders"}
	for _, id := range ids {
		st.Partitions = append(st.Partitions, engine.PartitionStatus{Partition: id, Committed: 7, HighWatermark: 7})
		tier.Partitions = append(tier.Partitions, engine.PartitionStatus{Partition: id, Committed: -1, HighWatermark: 0})
	}
	return engine.Status{Stages: []engine.StageStatus{st, tier}}
}

func summary(open int64, oldest, deadline time.Time) dlq.Summary {
	return dlq.Summary{
		Topic: "orders.dlq", Of: "orders", Counts: map[dlq.Status]int64{dlq.StatusNew: open, dlq.StatusSucceeded: 4},
		Oldest: oldest, Deadline: deadline, Scan: dlq.Scan{Complete: true},
	}
}

// exposed is the text of /metrics.
func exposed(r *prometheus.Registry) string {
	res := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).ServeHTTP(res, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return res.Body.String()
}

// value is a series' value, "" if there is none.
func value(t *testing.T, r *prometheus.Registry, series string) string {
	t.Helper()
	for line := range strings.Lines(exposed(r)) {
		if v, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

const (
	unresolvedSeries = `kconsume_dlq_unresolved_records{topic="orders.dlq"}`
	oldestSeries     = `kconsume_dlq_oldest_unresolved_age_seconds{topic="orders.dlq"}`
	deadlineSeries   = `kconsume_dlq_retention_deadline_timestamp_seconds{topic="orders.dlq"}`
)

func TestOnlyTheOwnerTellsOfTheDLQ(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		sum := summary(3, now.Add(-time.Hour), now.Add(time.Hour))
		replicas := []*world{{status: owns(0, 2), sums: []dlq.Summary{sum}}, {status: owns(1, 3), sums: []dlq.Summary{sum}}}
		var registries []*prometheus.Registry
		var watches []*Watch
		for _, w := range replicas {
			r := prometheus.NewRegistry()
			registries, watches = append(registries, r), append(watches, NewWatch(w.config(), r))
		}
		want := func(step string, told ...string) {
			t.Helper()
			for i, w := range watches {
				w.look(t.Context())
				if got := value(t, registries[i], unresolvedSeries); got != told[i] {
					t.Errorf("%s: replica %d tells %q, want %q", step, i, got, told[i])
				}
			}
		}
		want("at first", "3", "")
		if replicas[1].asked != 0 {
			t.Error("a replica that tells nothing reads the DLQ for it")
		}
		replicas[0].status, replicas[1].status = owns(2), owns(0, 1, 3)
		want("after a rebalance", "", "3")
		replicas[1].broken = errors.New("it is stopped")
		want("the engine does not answer", "", "")
	})
}

func TestDLQFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		w := &world{status: owns(0)}
		r := prometheus.NewRegistry()
		watch := NewWatch(w.config(), r)
		for _, c := range []struct {
			name                         string
			sum                          dlq.Summary
			unresolved, oldest, deadline string
		}{
			{"nothing waits", summary(0, time.Time{}, time.Time{}), "0", "0", ""},
			{"kept for ever", summary(2, now.Add(-90*time.Second), time.Time{}), "2", "90", ""},
			{"with retention", summary(2, now.Add(-90*time.Second), time.Unix(2e9, 0)), "2", "90", "2e+09"},
			{"the oldest is not found yet", summary(2, time.Time{}, time.Time{}), "2", "", ""},
			{"a stamp of the future", summary(2, now.Add(time.Hour), time.Time{}), "2", "0", ""},
		} {
			w.sums = []dlq.Summary{c.sum}
			watch.look(t.Context())
			if u, o, d := value(t, r, unresolvedSeries), value(t, r, oldestSeries), value(t, r, deadlineSeries); u != c.unresolved || o != c.oldest || d != c.deadline {
				t.Errorf("%s: %q %q %q, want %q %q %q", c.name, u, o, d, c.unresolved, c.oldest, c.deadline)
			}
		}
		if got := value(t, r, `kconsume_dlq_records{status="succeeded",topic="orders.dlq"}`); got != "4" {
			t.Errorf("replays that succeeded: %q", got)
		}

		// One that is being read tells its last whole figures, for a while.
		part := summary(1, time.Time{}, time.Time{})
		part.Scan.Complete = false
		w.sums = []dlq.Summary{part}
		watch.look(t.Context())
		if got := value(t, r, unresolvedSeries); got != "2" {
			t.Errorf("half read: %q", got)
		}
		time.Sleep(staleTime + time.Second)
		watch.look(t.Context())
		if got := value(t, r, unresolvedSeries); got != "" {
			t.Errorf("stale: %q", got)
		}
	})
}

func TestLagSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{status: owns(0, 1)}
		r := prometheus.NewRegistry()
		watch := NewWatch(w.config(), r)
		var ended bool
		ctx, cancel := context.WithCancel(t.Context())
		go func() { watch.Run(ctx); ended = true }()
		synctest.Wait()
		const series = `kconsume_lag_seconds{stage="main",topic="orders"}`
		if got := value(t, r, series); got != "0" {
			t.Errorf("with nothing left: %q", got)
		}
		set := func(s engine.Status) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.status = s
		}
		behind := owns(0, 1)
		behind.Stages[0].Partitions[1].HighWatermark = 9
		set(behind)
		time.Sleep(watchEvery + time.Second) // seen at the next look
		time.Sleep(6 * watchEvery)
		if got := value(t, r, series); got != "60" {
			t.Errorf("a minute behind: %q", got)
		}
		set(engine.Status{})
		time.Sleep(watchEvery)
		if got := value(t, r, series); got != "" {
			t.Errorf("owns nothing any more: %q", got)
		}
		cancel()
		synctest.Wait()
		if !ended || len(watch.ages) != 0 {
			t.Errorf("Run has ended: %v; %d partitions are remembered", ended, len(watch.ages))
		}
	})
}
