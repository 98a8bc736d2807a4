package otlp

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Tree draws traces for people: each trace with its spans below one another,
// times from the first span on, attributes and links.
func Tree(spans []Span) string {
	if len(spans) == 0 {
		return "no spans"
	}
	d := drawing{spans: spans, began: spans[0].Start, names: map[string]string{}}
	for _, s := range spans {
		if s.Start.Before(d.began) {
			d.began = s.Start
		}
		d.names[s.ID] = fmt.Sprintf("%s, %s", s.ID, s.Name)
	}
	var traces []string
	for _, s := range spans {
		if !slices.Contains(traces, s.Trace) {
			traces = append(traces, s.Trace)
		}
	}
	for _, trace := range traces {
		fmt.Fprintf(&d.out, "trace %s\n", trace)
		for _, s := range spans {
			if s.Trace == trace && d.names[s.Parent] == "" {
				d.draw(s, "  ")
			}
		}
	}
	return d.out.String()
}

type drawing struct {
	spans []Span
	began time.Time
	names map[string]string // by span id
	out   strings.Builder
}

func (d *drawing) draw(s Span, indent string) {
	status := "ok"
	if s.Error {
		status = "error: " + s.Status
	}
	fmt.Fprintf(&d.out, "%s%s  [%s]  +%.3fs %.1fms  %s  %s  %s\n", indent, s.Name, s.Service, s.Start.Sub(d.began).Seconds(),
		float64(s.End.Sub(s.Start))/float64(time.Millisecond), strings.ToLower(strings.TrimPrefix(s.Kind, "SPAN_KIND_")), status, s.ID)
	if s.Parent != "" && d.names[s.Parent] == "" {
		fmt.Fprintf(&d.out, "%s  · below %s, which was not received\n", indent, s.Parent)
	}
	for _, k := range slices.Sorted(maps.Keys(s.Attributes)) {
		fmt.Fprintf(&d.out, "%s  · %s = %s\n", indent, k, s.Attributes[k])
	}
	for _, l := range s.Links {
		name := d.names[l.ID]
		if name == "" {
			name = l.ID
		}
		fmt.Fprintf(&d.out, "%s  → %s: %s\n", indent, l.Kind, name)
	}
	for _, child := range d.spans {
		if child.Trace == s.Trace && child.Parent == s.ID {
			d.draw(child, indent+"    ")
		}
	}
}
