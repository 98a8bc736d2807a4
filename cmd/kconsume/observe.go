package main

import (
	"context"
	"slices"
	"sync"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/metrics/collect"
	"github.com/prometheus/client_golang/prometheus"
)

// validCritical refuses critical topics that are none of the main topics: no
// alert would ever be about them.
func validCritical(s *option.Set) error {
	for _, t := range s.List("critical") {
		if !slices.Contains(s.List("topic"), t) {
			return fail(exitConfig, "critical topic %.300q: --critical: it is none of the main topics: name it with --topic too, or remove it", t)
		}
	}
	return nil
}

// observation is what looks at a daemon for its metrics.
type observation struct {
	running sync.WaitGroup
	stop    context.CancelFunc
}

// observe exports what the daemon knows besides what its engine counts. critical
// are main topics.
func observe(d *daemon, o *operations, c engine.Config, critical []string, r prometheus.Registerer) (*observation, error) {
	topo, err := c.Topology()
	if err != nil {
		return nil, err
	}
	var marked []string
	for _, l := range topo.Lines {
		if slices.Contains(critical, l.Topic) {
			marked = append(marked, l.Topic, l.DLQ)
		}
	}
	slices.Sort(marked)
	b := readBuild()
	r.MustRegister(collect.NewBuild(b.Version, b.Commit, b.Go), collect.NewCritical(slices.Compact(marked)), collect.NewHandler(d.host.Status))
	w := collect.NewWatch(collect.WatchConfig{Status: d.engine.Status, Summaries: o.service.Summaries}, r)
	ctx, stop := context.WithCancel(context.Background())
	seen := &observation{stop: stop}
	seen.running.Go(func() { w.Run(ctx) })
	return seen, nil
}

func (o *observation) close() {
	o.stop()
	o.running.Wait()
}
