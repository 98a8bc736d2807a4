package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// printTable writes a line for each run and one for the medians of each program.
// The ratio is to the first program of the same pair.
func printTable(out io.Writer, results []result, spans bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "program\trecords/s\tratio\tCPU µs/record\tpeak RSS MiB\tfirst commit s\ttotal s\t")
	if spans {
		fmt.Fprint(w, "spans sent\tdropped\t")
	}
	fmt.Fprintln(w)
	row := func(name string, r result, base float64) {
		fmt.Fprintf(w, "%s\t%.0f\t%.2f\t%.2f\t%.0f\t%.2f\t%.2f\t", name, r.rate, r.rate/base,
			float64(r.cpu)/float64(time.Microsecond), float64(r.peakRSS)/(1<<20), r.first.Seconds(), r.total.Seconds())
		if spans {
			fmt.Fprintf(w, "%.0f\t%.0f\t", r.spans.sent, r.spans.dropped)
		}
		fmt.Fprintln(w)
	}
	var base float64
	var names []string
	for _, r := range results {
		if r.name == results[0].name {
			base = r.rate
		}
		if !slices.Contains(names, r.name) {
			names = append(names, r.name)
		}
		row(r.name, r, base)
	}
	for i, name := range names {
		m := medians(name, results)
		if i == 0 {
			base = m.rate
		}
		row(name+" median", m, base)
	}
	return w.Flush()
}

// medians are those of each column by itself.
func medians(name string, results []result) result {
	var own []result
	for _, r := range results {
		if r.name == name {
			own = append(own, r)
		}
	}
	return result{
		rate:    median(own, func(r result) float64 { return r.rate }),
		cpu:     median(own, func(r result) time.Duration { return r.cpu }),
		peakRSS: median(own, func(r result) int64 { return r.peakRSS }),
		first:   median(own, func(r result) time.Duration { return r.first }),
		total:   median(own, func(r result) time.Duration { return r.total }),
		spans: spans{
			sent:    median(own, func(r result) float64 { return r.spans.sent }),
			dropped: median(own, func(r result) float64 { return r.spans.dropped }),
		},
	}
}

func median[T float64 | int64 | time.Duration](results []result, of func(result) T) T {
	var all []T
	for _, r := range results {
		all = append(all, of(r))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
