package observe

import (
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	schema "github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"

	"github.com/kconsume/kconsume/test/observe/board/grafana"
)

const dashboardFile = root + "/packaging/grafana/kconsume.json"

// query of a panel or of an annotation.
type query struct{ panel, expr string }

// queries are those of the dashboard, with values for its variables.
func queries(t *testing.T) (panels, annotations []query) {
	t.Helper()
	board, err := grafana.Read(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	// Rates go over the whole test, however slow the machine is: what failed at
	// its beginning is still asked for above 0 at its end.
	v := grafana.Variables{Job: ".+", Interval: 30 * time.Minute, Scrape: 15 * time.Second}
	expand := func(title, expr string) query {
		q, err := v.Expand(strings.ReplaceAll(expr, "[2m]", "[$__rate_interval]"))
		if err != nil {
			t.Errorf("%s: %v", title, err)
		}
		return query{title, q}
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			panels = append(panels, expand(p.Title, target.Expr))
		}
	}
	for _, a := range board.Annotations.List {
		annotations = append(annotations, expand(a.Name, a.Expr))
	}
	if len(panels) == 0 || len(annotations) == 0 {
		t.Fatal("the dashboard asks for nothing")
	}
	return panels, annotations
}

// strict reads a dashboard by the schema that Grafana publishes: each field must
// be known to it, of its type, and there if it is not optional.
func strict(text string) error {
	runtime := cog.NewRuntime()
	runtime.RegisterPanelcfgVariant(heatmap.VariantConfig())
	runtime.RegisterPanelcfgVariant(stat.VariantConfig())
	runtime.RegisterPanelcfgVariant(statetimeline.VariantConfig())
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	runtime.RegisterDataqueryVariant(schema.VariantConfig())
	//lint:ignore SA1019 every Grafana imports this schema, its successor the newest alone
	var d dashboard.Dashboard
	for _, err := range []error{d.UnmarshalJSONStrict([]byte(text)), d.Validate()} {
		if err != nil && err.Error() != "" { // where all is well it may be an error of no text
			return err
		}
	}
	return nil
}

func TestDashboardIsOfGrafanasSchema(t *testing.T) {
	text := read(t, dashboardFile)
	if err := strict(text); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ old, new string }{
		{`"legendFormat"`, `"legend_format"`},
		{`"cellGap": 1`, `"cellGap": "1"`},
		{`"rowHeight": 0.85,`, ``},
	} {
		if !strings.Contains(text, c.old) || strict(strings.Replace(text, c.old, c.new, 1)) == nil {
			t.Errorf("the dashboard does not hold %s, or the schema takes %s for it", c.old, c.new)
		}
	}
}

// Panels stand beside and below one another, each with a number of its own and
// inside the grid.
func TestDashboardsPanelsDoNotOverlap(t *testing.T) {
	board, err := grafana.Read(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range board.Panels {
		if p.Title == "" || ids[p.ID] || p.GridPos.W < 1 || p.GridPos.H < 1 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q: at %+v", p.ID, p.Title, p.GridPos)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := taken[at]; other != "" {
					t.Fatalf("%s lies on %s", p.Title, other)
				}
				taken[at] = p.Title
			}
		}
	}
}

func TestDashboardNamesMetricsThatExist(t *testing.T) {
	names := exported(t)
	panels, annotations := queries(t)
	for _, q := range panels {
		if !strings.Contains(q.expr, `{job=~".+"`) {
			t.Errorf("%s: not of the jobs that are chosen: %s", q.panel, q.expr)
		}
	}
	for _, q := range append(panels, annotations...) {
		for _, name := range unknownMetrics(names, q.expr) {
			t.Errorf("%s: there is no metric %s", q.panel, name)
		}
	}
}

// quiet are queries without an answer while nothing is wrong: of metrics that
// have no series then, or that are asked for above 0, so that a panel lists what
// happens and not all that could.
func quiet(expr string) bool {
	for _, name := range []string{
		"kconsume_forward_failures_total", "kconsume_fetch_failures_total", "kconsume_offsets_lost_total", "kconsume_unowned_partitions",
		"kconsume_topic_problems", "kconsume_dlq_retention_deadline_timestamp_seconds",
		"kconsume_writer_retries_total", "kconsume_handler_restarts_total", "kconsume_handler_upgrades_total",
	} {
		if strings.Contains(expr, name) {
			return true
		}
	}
	return false
}

// show asks a Prometheus all that the dashboard asks.
func (p *prometheus) show(t *testing.T) {
	panels, annotations := queries(t)
	for _, q := range panels {
		series := p.query(t, q.expr)
		if series == 0 && !quiet(q.expr) { // a rate takes two samples
			until(t, q.panel+" shows something: "+q.expr, func() bool { series = p.query(t, q.expr); return series > 0 })
		}
		t.Logf("%s: %d series: %s", q.panel, series, q.expr)
	}
	for _, q := range annotations { // of one moment they may say nothing
		t.Logf("%s: %d series: %s", q.panel, p.query(t, q.expr), q.expr)
	}
}
