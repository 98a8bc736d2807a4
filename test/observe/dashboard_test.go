package observe

import (
	"encoding/json"
	"strings"
	"testing"
)

const dashboardFile = root + "/packaging/grafana/kconsume.json"

// query of a panel.
type query struct{ panel, expr string }

// queries are those of the dashboard, with values for its variables.
func queries(t *testing.T) []query {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, dashboardFile)), &board); err != nil {
		t.Fatal(err)
	}
	var all []query
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "1m", "$job", ".+").Replace(target.Expr)
			all = append(all, query{p.Title, expr})
		}
	}
	if len(all) == 0 {
		t.Fatal("the dashboard asks for nothing")
	}
	return all
}

func TestDashboardNamesMetricsThatExist(t *testing.T) {
	names := exported(t)
	for _, q := range queries(t) {
		if !strings.Contains(q.expr, `{job=~".+"`) || strings.Contains(q.expr, "$") {
			t.Errorf("%s: not of the jobs that are chosen, or with an unknown variable: %s", q.panel, q.expr)
		}
		for _, name := range unknownMetrics(names, q.expr) {
			t.Errorf("%s: there is no metric %s", q.panel, name)
		}
	}
}

// quiet are metrics that have no series while nothing is wrong.
func quiet(expr string) bool {
	for _, name := range []string{
		"kconsume_forward_failures_total", "kconsume_fetch_failures_total", "kconsume_offsets_lost_total", "kconsume_unowned_partitions",
		"kconsume_topic_problems", "kconsume_dlq_retention_deadline_timestamp_seconds",
	} {
		if strings.Contains(expr, name) {
			return true
		}
	}
	return false
}

// show asks a Prometheus all that the dashboard asks.
func (p *prometheus) show(t *testing.T) {
	for _, q := range queries(t) {
		series := p.query(t, q.expr)
		if series == 0 && !quiet(q.expr) { // a rate takes two samples
			until(t, q.panel+" shows something: "+q.expr, func() bool { series = p.query(t, q.expr); return series > 0 })
		}
		t.Logf("%s: %d series: %s", q.panel, series, q.expr)
	}
}
