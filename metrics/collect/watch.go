package collect

import (
	"context"
	"sync"
	"time"

	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/engine"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// watchEvery is the time between two looks. Scrapes read the last one, so
	// that no broker's silence holds them up.
	watchEvery = 10 * time.Second
	// lookTimeout bounds one question to the engine or to the brokers.
	lookTimeout = 20 * time.Second
	// staleTime is how long a DLQ's figures are told on while it cannot be read.
	staleTime = 5 * time.Minute
)

// WatchConfig is what a Watch looks at. Both functions must be safe for
// concurrent use.
type WatchConfig struct {
	Status    func(context.Context) (engine.Status, error)
	Summaries func(context.Context) ([]dlq.Summary, error)
}

// Watch exports lag in time and what waits in DLQs. A DLQ is told of by one
// daemon of the group alone, the one that owns partition 0 of its main topic,
// and by that one for all its partitions: each daemon could read them all, and
// the sum over replicas would be a multiple.
type Watch struct {
	cfg                                        WatchConfig
	lag, records, unresolved, oldest, deadline *prometheus.Desc

	ages map[partition]*age // of the look's goroutine alone

	mu   sync.Mutex
	lags map[place]time.Duration // by the stage's own topic
	dlqs map[string]dead         // by the DLQ
}

type partition struct {
	place
	id int32
}

type dead struct {
	dlq.Summary
	at time.Time // of the look
}

// NewWatch makes a Watch and registers it with r. It exports nothing until Run.
func NewWatch(c WatchConfig, r prometheus.Registerer) *Watch {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kconsume_"+name, help, labels, nil)
	}
	w := &Watch{
		cfg:        c,
		lag:        desc("lag_seconds", "How long the oldest uncommitted record has been in the log, at least, of the partitions owned; 0 while there is none.", "topic", "stage"),
		records:    desc("dlq_records", "Records in a dead letter queue by what became of them. Replays end as succeeded, failed_again or uncertain. Told by the owner of partition 0 of the main topic.", "topic", "status"),
		unresolved: desc("dlq_unresolved_records", "Records in a dead letter queue that are new, claimed, replayed or uncertain. Told by the owner of partition 0 of the main topic.", "topic"),
		oldest:     desc("dlq_oldest_unresolved_age_seconds", "How long the oldest unresolved record has been in a dead letter queue; 0 while there is none. Told by the owner of partition 0 of the main topic.", "topic"),
		deadline:   desc("dlq_retention_deadline_timestamp_seconds", "When retention deletes the oldest unresolved record of a dead letter queue; left out while nothing waits or nothing is deleted. Told by the owner of partition 0 of the main topic.", "topic"),
		ages:       map[partition]*age{},
	}
	r.MustRegister(w)
	return w
}

// Run looks until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		w.look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look takes the figures anew. An engine that does not answer owns nothing.
func (w *Watch) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	s, err := w.cfg.Status(ctx)
	if err != nil {
		s = engine.Status{}
	}
	lags, owned := w.lagsOf(&s, time.Now()), leads(&s)
	w.mu.Lock()
	w.lags = lags
	for topic, d := range w.dlqs {
		if !owned[d.Of] || time.Since(d.at) > staleTime {
			delete(w.dlqs, topic)
		}
	}
	w.mu.Unlock()
	if len(owned) == 0 {
		return
	}
	sums, err := w.cfg.Summaries(ctx)
	if err != nil {
		return // who asks for them is told why; the figures go stale
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dlqs == nil {
		w.dlqs = map[string]dead{}
	}
	for _, sum := range sums {
		if owned[sum.Of] && sum.Scan.Complete {
			w.dlqs[sum.Topic] = dead{sum, time.Now()}
		}
	}
}

// leads are the main topics of which this daemon owns partition 0.
func leads(s *engine.Status) map[string]bool {
	owned := map[string]bool{}
	for _, st := range s.Stages {
		for _, p := range st.Partitions {
			if st.Topic == st.Of && p.Partition == 0 {
				owned[st.Of] = true
			}
		}
	}
	return owned
}

// lagsOf are the greatest ages of each stage. What is not owned is forgotten.
func (w *Watch) lagsOf(s *engine.Status, now time.Time) map[place]time.Duration {
	lags, ages := map[place]time.Duration{}, map[partition]*age{}
	for _, st := range s.Stages {
		at := place{st.Topic, st.Stage}
		for _, p := range st.Partitions {
			key := partition{at, p.Partition}
			a := w.ages[key]
			if a == nil {
				a = &age{}
			}
			ages[key] = a
			lags[at] = max(lags[at], a.see(p.Committed, p.HighWatermark, now))
		}
	}
	w.ages = ages
	return lags
}

// Describe names the metrics.
func (w *Watch) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{w.lag, w.records, w.unresolved, w.oldest, w.deadline} {
		ch <- d
	}
}

// Collect tells the last look's figures.
func (w *Watch) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for at, d := range w.lags {
		gauge(w.lag, d.Seconds(), at.topic, at.stage)
	}
	for topic, d := range w.dlqs {
		open := int64(0)
		for _, st := range dlq.Statuses() {
			gauge(w.records, float64(d.Counts[st]), topic, string(st))
			if st.Open() {
				open += d.Counts[st]
			}
		}
		gauge(w.unresolved, float64(open), topic)
		switch {
		case open == 0:
			gauge(w.oldest, 0, topic)
		case !d.Oldest.IsZero(): // else it has not been found yet
			gauge(w.oldest, max(0, time.Since(d.Oldest).Seconds()), topic)
		}
		if !d.Deadline.IsZero() {
			gauge(w.deadline, float64(d.Deadline.UnixMilli())/1000, topic)
		}
	}
}
