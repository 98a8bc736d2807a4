// Package grafana reads what a Grafana dashboard asks a Prometheus.
package grafana

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Dashboard is a dashboard's questions.
type Dashboard struct {
	Panels      []Panel
	Annotations struct{ List []Annotation }
	// Text is the whole of it, for whoever draws it.
	Text json.RawMessage `json:"-"`
}

// Panel is a panel, or a row of them.
type Panel struct {
	ID       int
	Type     string
	Title    string
	Interval string // least step; "" = the data source's
	GridPos  struct{ X, Y, W, H int }
	Targets  []Target
	Panels   []Panel // of a row that is folded
}

// Target is one query of a panel.
type Target struct {
	RefID        string `json:"refId"`
	Expr         string
	LegendFormat string
	Format       string // "", time_series, heatmap or table
	Instant      bool
	Hide         bool
}

// Annotation is a query whose answers are events.
type Annotation struct {
	Name        string
	Enable      bool
	IconColor   string
	Expr        string
	Step        string
	TitleFormat string
}

// Read reads a dashboard's file.
func Read(path string) (*Dashboard, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read dashboard: %w", err)
	}
	d := &Dashboard{Text: text}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("read dashboard %s: %w", path, err)
	}
	var all []Panel
	for _, p := range d.Panels {
		all = append(append(all, p), p.Panels...)
	}
	d.Panels = all
	return d, nil
}

// Variables are what a query's variables stand for.
type Variables struct {
	Job      string // a regular expression
	Interval time.Duration
	Scrape   time.Duration
}

// Expand puts the variables' values in place of their names, as Grafana does.
// A name that is not known stays, and is an error.
func (v Variables) Expand(expr string) (string, error) {
	// A rate needs two samples in each interval and must miss none between two.
	rate := max(v.Interval+v.Scrape, 4*v.Scrape)
	s := strings.NewReplacer("$__rate_interval", seconds(rate), "$__interval", seconds(v.Interval), "$job", v.Job).Replace(expr)
	if strings.Contains(s, "$") {
		return "", fmt.Errorf("expand %q: it has a variable that is not known here", s)
	}
	return s, nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%ds", int(max(d, time.Second).Seconds())) }

// steps are the widths that Grafana rounds an interval up to, as far as a
// window of minutes or hours needs them.
var steps = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 20 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 20 * time.Minute, 30 * time.Minute, time.Hour,
}

// Step is the interval of a panel that is so many pixels wide and shows window:
// one that leaves a point a pixel at most, and never below least.
func Step(window time.Duration, pixels int, least time.Duration) time.Duration {
	want := max(least, window/time.Duration(max(pixels, 1)))
	if i := slices.IndexFunc(steps, func(d time.Duration) bool { return d >= want }); i >= 0 {
		return steps[i]
	}
	return steps[len(steps)-1]
}

// Legend is a series' name, made of its labels by a format such as
// "{{topic}} {{stage}}".
func Legend(format string, labels map[string]string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(format, "{{")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, after, closed := strings.Cut(rest, "}}")
		if !closed {
			return b.String() + "{{" + rest
		}
		b.WriteString(labels[strings.TrimSpace(name)])
		format = after
	}
}
