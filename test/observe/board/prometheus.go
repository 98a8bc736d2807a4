package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	// scrape is how often daemons are asked.
	scrape = time.Second
	// dataSource is the scrape interval that Grafana is told of: no step is
	// shorter, and a rate goes over four of them.
	dataSource = 5 * time.Second
)

// prometheus is one that runs, and the time that is looked at.
type prometheus struct {
	address  string
	from, to time.Time
}

// series is one answer's, as the page reads it: of labels, and points of a time
// in ms and a value.
type series struct {
	Labels map[string]string `json:"labels"`
	Points [][2]float64      `json:"points"`
}

// begin starts a Prometheus that scrapes daemons and stores in a folder for resume.
func begin(ctx context.Context, all *processes, s settings, daemons []daemon) (*prometheus, error) {
	if err := os.RemoveAll(filepath.Join(s.kept, "data")); err != nil {
		return nil, fmt.Errorf("delete what the last run kept: %w", err)
	}
	if err := os.MkdirAll(s.kept, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder to keep in: %w", err)
	}
	var targets []string
	for _, d := range daemons {
		// An address of this host says nothing to whoever looks at the picture.
		targets = append(targets, fmt.Sprintf("{targets: [%q], labels: {instance: %q}}", d.metrics, d.name))
	}
	return startPrometheus(ctx, all, s, fmt.Sprintf(`
global: {scrape_interval: %v, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs: [{job_name: kconsume, static_configs: [%s]}]
`, scrape, s.rules, strings.Join(targets, ", ")))
}

// resume starts a Prometheus on what the last run kept.
func resume(ctx context.Context, all *processes, s settings) (*prometheus, error) {
	text, err := os.ReadFile(filepath.Join(s.kept, "window.json"))
	if err != nil {
		return nil, fmt.Errorf("find the last run: %w; run without -again first", err)
	}
	var window [2]time.Time
	if err := json.Unmarshal(text, &window); err != nil {
		return nil, fmt.Errorf("read window.json in %s: %w", s.kept, err)
	}
	p, err := startPrometheus(ctx, all, s, "{}")
	if err != nil {
		return nil, err
	}
	p.from, p.to = window[0], window[1]
	return p, nil
}

// keep writes down what resume needs besides the data.
func (p *prometheus) keep(s settings) error {
	text, err := json.Marshal([2]time.Time{p.from, p.to})
	if err == nil {
		err = os.WriteFile(filepath.Join(s.kept, "window.json"), text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("keep the window: %w", err)
	}
	return nil
}

func startPrometheus(ctx context.Context, all *processes, s settings, config string) (*prometheus, error) {
	path := filepath.Join(all.logs, "prometheus.yml")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		return nil, fmt.Errorf("write Prometheus' configuration: %w", err)
	}
	p := &prometheus{address: loopback(9090)}
	if err := all.start("prometheus", os.Environ(), "prometheus", "--config.file="+path,
		"--web.listen-address="+p.address, "--storage.tsdb.path="+filepath.Join(s.kept, "data"), "--storage.tsdb.retention.time=10y"); err != nil {
		return nil, err
	}
	return p, until(ctx, "Prometheus answers", func() bool {
		res, err := http.Get("http://" + p.address + "/-/ready")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
}

// count is the number of series that an expression has now; 0 if it fails.
func (p *prometheus) count(ctx context.Context, expr string) int {
	found, err := p.instant(ctx, expr, time.Now())
	if err != nil {
		return 0
	}
	return len(found)
}

func (p *prometheus) instant(ctx context.Context, expr string, at time.Time) ([]series, error) {
	return p.ask(ctx, "query", url.Values{"query": {expr}, "time": {stamp(at)}})
}

// over asks for a window. Its bounds are put on whole steps, as Grafana does.
func (p *prometheus) over(ctx context.Context, expr string, from, to time.Time, step time.Duration) ([]series, error) {
	return p.ask(ctx, "query_range", url.Values{
		"query": {expr}, "start": {stamp(from.Truncate(step))}, "end": {stamp(to.Truncate(step))}, "step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)},
	})
}

func stamp(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }

func (p *prometheus) ask(ctx context.Context, what string, v url.Values) ([]series, error) {
	fail := func(err error) ([]series, error) {
		return nil, fmt.Errorf("ask Prometheus for %s: %w", v.Get("query"), err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+"/api/v1/"+what+"?"+v.Encode(), nil)
	if err != nil {
		return fail(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return fail(err)
	}
	defer res.Body.Close()
	var answer struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Value  sample
				Values []sample
			}
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return fail(err)
	}
	if answer.Error != "" {
		return fail(fmt.Errorf("it answers: %s", answer.Error))
	}
	all := []series{}
	for _, found := range answer.Data.Result {
		s := series{Labels: found.Metric}
		for _, v := range append(found.Values, found.Value) {
			if v.there {
				s.Points = append(s.Points, [2]float64{v.at * 1000, v.value})
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// sample is a time in seconds and a value.
type sample struct {
	at, value float64
	there     bool // false for what was not answered, and for what is no number
}

func (s *sample) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &[]any{&s.at, &text}); err != nil {
		return err
	}
	v, err := strconv.ParseFloat(text, 64)
	s.value, s.there = v, !math.IsNaN(v) && !math.IsInf(v, 0)
	return err
}
