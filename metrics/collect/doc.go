// Package collect exports what a running kconsume knows besides what its engine
// counts: how its handler does, how old the oldest records are that it has not
// settled, and what waits in its dead letter queues.
package collect

import (
	"github.com/kconsume/kconsume/metrics"
	"github.com/prometheus/client_golang/prometheus"
)

// NewBuild is kconsume_build_info: what this process was built from.
func NewBuild(version, commit, goVersion string) prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kconsume_build_info", Help: "1, labelled with what this process was built from.",
	}, []string{"version", "commit", "goversion"})
	g.WithLabelValues(metrics.Label(version), metrics.Label(commit), metrics.Label(goVersion)).Set(1)
	return g
}

// NewCritical is kconsume_topic_critical: 1 for each topic of which one failed
// record is an incident already. Alerts are joined with it by topic, so main
// topics and their DLQs must both be named.
func NewCritical(topics []string) prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kconsume_topic_critical", Help: "1 for the main topics given with --critical, and for their dead letter queues.",
	}, []string{"topic"})
	for _, t := range topics {
		g.WithLabelValues(t).Set(1)
	}
	return g
}
