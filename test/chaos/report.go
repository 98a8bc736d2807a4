package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// report prints what happened.
func (c *run) report(out io.Writer, f *findings, took time.Duration) {
	fmt.Fprintf(out, "\n%d records acknowledged (%d tasks twice in the topic, %d batches sent again), %d deliveries, %d handled, %d dead, %d forwards to tiers, %d snapshots of offsets, %v in all\n\n",
		f.acked, f.again, c.producer.again.Load(), f.deliveries, f.handled, f.dead, f.parked, len(c.snapshots.all), took.Round(time.Second))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "fault\ttimes\tprogress: median\tworst\tof it the producer: median\tworst")
	groups := byKind(c.recoveries)
	for _, k := range rows() {
		rs := groups[string(k)]
		if len(rs) == 0 {
			continue
		}
		times := fmt.Sprint(len(rs))
		if k == rolling {
			times = fmt.Sprintf("%d × %d", c.counts[k], len(c.members))
		}
		mid, worst := rs[len(rs)/2], rs[len(rs)-1]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", k, times, seconds(mid.took), seconds(worst.took), seconds(mid.producer), seconds(worst.producer))
	}
	fmt.Fprintln(w)
	fmt.Fprintln(w, "promise\tbroken")
	for _, b := range f.promises {
		note := ""
		if b.lenient {
			note = "\t(told; broken only with -strict)"
		}
		fmt.Fprintf(w, "%s\t%d%s\n", b.promise, b.count, note)
	}
	fmt.Fprintf(w, "out of order by a frozen member\t%d\t(apart: it had passed its check)\n", f.apart)
	d := &f.duplicates
	fmt.Fprintln(w)
	fmt.Fprintf(w, "duplicates\t%d\tof at most %d\n", d.total, d.bound())
	fmt.Fprintf(w, "  with a member or handler that was struck\t%d\tof %d in flight or settled since the last commit\n", d.struck, d.inHand)
	fmt.Fprintf(w, "  by a frozen member that went on\t%d\t(in the same bound)\n", d.frozen)
	fmt.Fprintf(w, "  twice in a tier\t%d\tof %d written again with an unknown outcome and %d after a repeated failure\n", d.copies, d.resent, d.cascade)
	fmt.Fprintf(w, "  behind a forward not yet acknowledged when a partition moved\t%d\t(no commit could pass it)\n", d.held)
	fmt.Fprintf(w, "  moved to another member\t%d\tof 0\n", d.moved)
	fmt.Fprintf(w, "  again by the same member\t%d\tof 0\n", d.same)
	fmt.Fprintf(w, "twice in the DLQ\t%d\n", d.dead)
	_ = w.Flush() // to standard output
	for _, b := range f.promises {
		for _, x := range b.examples {
			fmt.Fprintf(out, "%s: %s\n", b.promise, x)
		}
	}
	for _, t := range c.troubles {
		fmt.Fprintln(out, "trouble:", t)
	}
}

// rows are the kinds of faults with what follows some of them.
func rows() []kind {
	return []kind{
		killMember, freezeMember, "member thawed", killHandler, stopBroker, killBroker, "broker back",
		rolling, moveLeaders, forbidTier, "retry topic open", "its next retries",
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// leastRate is how many records a run of a quarter of an hour must have gone through.
const leastRate = 1_000_000

// short reports, and says, that a run had too few faults or records to prove much.
func (c *run) short(out io.Writer, f *findings) bool {
	short := false
	for k, n := range quarter() {
		if want := int(float64(n) * 0.9 * c.duration.Minutes() / 15); c.counts[k] < want {
			fmt.Fprintf(out, "too few: %s %d times, want %d\n", k, c.counts[k], want)
			short = true
		}
	}
	if want := int64(leastRate * c.duration.Minutes() / 15 * c.rate / 1250); f.acked < want {
		fmt.Fprintf(out, "too few: %d records, want %d\n", f.acked, want)
		short = true
	}
	return short
}
