package dlq

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/engine/record"
	"github.com/kconsume/kconsume/engine/topics"
	"github.com/kconsume/kconsume/plugin"
)

func deadRecord(offset int64, group, class, message string, at time.Time) *record.Record {
	return &record.Record{Offset: offset, Timestamp: at.UnixMilli(), Headers: []plugin.Header{
		{Key: history.HeaderGroup, Value: []byte(group)}, {Key: history.HeaderErrorClass, Value: []byte(class)},
		{Key: history.HeaderErrorMessage, Value: []byte(message)}, {Key: history.HeaderHandler, Value: []byte("orders@1")},
	}}
}

// word makes a word that the normaliser leaves as it is.
func word1(i int) string {
	out := ""
	for range 6 {
		out += string(rune('g' + i%16))
		i /= 16
	}
	return out
}

func TestIndexIsBounded(t *testing.T) {
	x, p := newIndex("g", topics.ID{}, 2), &printer{}
	x.bounds(0, 0, 50_000)
	for i := range 50_000 {
		x.add(p, 0, deadRecord(int64(i), "g", "transient", word1(i%5000), time.UnixMilli(1e12)))
	}
	x.read(0, 50_000)
	total := int64(0)
	for _, pr := range x.prints {
		total += pr.n
	}
	if len(x.prints) != maxPrints+1 || total != 50_000 || x.prints[other].n != 40_000 || len(p.known) > maxPrinted {
		t.Errorf("%d fingerprints, %d records, %d of others, %d remembered", len(x.prints), total, x.prints[other].n, len(p.known))
	}
	// Retention takes them all: there is room again.
	x.bounds(0, 50_000, 50_001)
	x.add(p, 0, deadRecord(50_000, "g", "transient", "something new", time.UnixMilli(1e12)))
	if pr := x.prints[Fingerprint("transient", "something new")]; pr == nil || pr.n != 1 || len(x.prints) > 2 {
		t.Errorf("%d fingerprints, %+v", len(x.prints), pr)
	}
}

// What an index counts is what counting the topic anew finds, however retention
// and new records come, and however far blocks have been joined.
func TestIndexAgainstModel(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		x, p := newIndex("g", topics.ID{}, 1), &printer{}
		x.parts[0].size = 100
		var log []*record.Record
		seen := map[int64]bool{}
		start, now := int64(0), time.UnixMilli(1e12)
		for range 60 {
			now = now.Add(time.Duration(r.IntN(3000)) * time.Second)
			for range r.IntN(400) {
				log = append(log, deadRecord(int64(len(log)), []string{"g", "h"}[r.IntN(2)], "transient", word1(r.IntN(20)), now))
			}
			if r.IntN(3) == 0 {
				start += r.Int64N(int64(len(log)) - start + 1)
			}
			end := int64(len(log))
			if from, to := x.bounds(0, start, end); from < to {
				stopped := from + r.Int64N(to-from+1)
				for _, rec := range log[from:stopped] {
					x.add(p, 0, rec)
				}
				x.skipsNothing(t, log[:to], start)
				if stopped < to { // it failed: the next pass reads it again
					if from, to = x.bounds(0, start, end); from != start {
						t.Fatalf("seed %d: [%d,%d) is not read again", seed, start, to)
					}
					for _, rec := range log[from:to] {
						x.add(p, 0, rec)
					}
				}
				x.reread(0)
			}
			for _, rec := range log[x.parts[0].next:end] {
				x.add(p, 0, rec)
				seen[rec.Offset] = true
			}
			x.read(0, end)

			want, first, others := map[string]int64{}, map[string]int64{}, int64(0)
			for _, rec := range log[start:] {
				if string(rec.Headers[0].Value) != "g" {
					others++
					continue
				}
				print := Fingerprint("transient", string(rec.Headers[2].Value))
				if want[print]++; first[print] == 0 {
					first[print] = rec.Timestamp
				}
			}
			got := map[string]int64{}
			for _, pr := range x.prints {
				if pr.n > 0 {
					got[pr.print] = pr.n
					if g := x.group(pr, &tally{}); g.First.UnixMilli() != first[pr.print] {
						t.Fatalf("seed %d: first of %s is %d, want %d", seed, pr.print, g.First.UnixMilli(), first[pr.print])
					}
				}
			}
			if !maps.Equal(got, want) || x.others != others {
				t.Fatalf("seed %d: at [%d,%d): %v and %d others, want %v and %d", seed, start, end, got, x.others, want, others)
			}
			hours := map[string]int64{}
			for _, rec := range log {
				if seen[rec.Offset] && string(rec.Headers[0].Value) == "g" && rec.Timestamp/hourMS > now.UnixMilli()/hourMS-sparkHours {
					hours[Fingerprint("transient", string(rec.Headers[2].Value))]++
				}
			}
			for _, pr := range x.prints {
				sum := int64(0)
				for _, n := range pr.lastHours(now) {
					sum += n
				}
				if sum != hours[pr.print] {
					t.Fatalf("seed %d: %d of %s came in the last day, want %d", seed, sum, pr.print, hours[pr.print])
				}
			}
			x.skipsNothing(t, log, start)
			if n := len(x.parts[0].blocks); n > maxBlocks {
				t.Fatalf("%d blocks", n)
			}
			if r.IntN(5) == 0 {
				x.parts[0].halve()
			}
		}
	}
}

// skipsNothing: no record of a fingerprint lies where it is said that none does.
func (x *index) skipsNothing(t *testing.T, log []*record.Record, start int64) {
	t.Helper()
	sel := &Selection{Fingerprint: Fingerprint("transient", word1(3))}
	s := sel.compile()
	var p printer
	for at := start; at < int64(len(log)); at++ {
		to, ok := x.skip(0, at, sel)
		if !ok {
			continue
		}
		for _, rec := range log[at:to] {
			if s.matches(&p, "g", rec) {
				t.Fatalf("a record at %d is skipped from %d to %d", rec.Offset, at, to)
			}
		}
		at = to - 1
	}
}

func TestSpark(t *testing.T) {
	x, p := newIndex("g", topics.ID{}, 1), &printer{}
	now := time.UnixMilli(1e12).Truncate(time.Hour)
	offset := int64(0)
	for hours := 60; hours >= 0; hours-- {
		for range hours%3 + 1 {
			x.add(p, 0, deadRecord(offset, "g", "transient", "down", now.Add(-time.Duration(hours)*time.Hour)))
			offset++
			x.read(0, offset)
		}
	}
	pr := x.prints[Fingerprint("transient", "down")]
	got := pr.lastHours(now.Add(time.Minute))
	for i, n := range got {
		if want := int64((sparkHours-1-i)%3 + 1); n != want {
			t.Errorf("hour %d: %d, want %d", i, n, want)
		}
	}
	if len(pr.hours) > 2*sparkHours {
		t.Errorf("%d hours are kept", len(pr.hours))
	}
}

func TestGroups(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		w.bury(30, func(i int, d *dead) {
			d.message = fmt.Sprintf("%s %d", strings.Repeat("x", i%3+1), i)
			if i >= 28 {
				d.group = "other"
			}
			d.handler = fmt.Sprintf("orders@%d", i/10)
		})
		a, b := w.daemon("a"), w.daemon("b")
		defer a.end()
		defer b.end()
		page, err := a.Groups(w.t.Context(), "t.dlq", Filter{Limit: 2})
		if err != nil || len(page.Groups) != 2 || page.Cursor == "" || !page.Scan.Complete || page.Scan.Records != 28 || !strings.Contains(page.Scan.Note, "2 records of other groups") {
			w.t.Fatalf("%+v, %v", page, err)
		}
		g := page.Groups[0]
		if g.Error != "x #" || g.Records != 10 || g.Open != 10 || g.Counts[StatusNew] != 10 || g.Spark[23] != 10 || g.Sample != "x 0" || fmt.Sprint(g.Handlers) != "[orders@2 orders@1 orders@0]" {
			w.t.Errorf("%+v", g)
		}
		rest, err := a.Groups(w.t.Context(), "t.dlq", Filter{Limit: 2, Cursor: page.Cursor})
		if err != nil || len(rest.Groups) != 1 || rest.Cursor != "" {
			w.t.Errorf("%+v, %v", rest, err)
		}
		_, err = a.Groups(w.t.Context(), "t.dlq", Filter{Cursor: "x"})
		wantErr(w.t, err, KindInvalid, "begin without one")
		_, err = a.Groups(w.t.Context(), "t.dlq", Filter{Limit: 1000})
		wantErr(w.t, err, KindInvalid, "use 1 to 500")
		// What is done at one daemon is seen at the other.
		j := a.wait(a.apply(a.plan(PlanRequest{Action: ActionReplay, Selection: Selection{Fingerprint: g.Fingerprint, Limit: 4}}, ada).Digest).ID)
		if _, err := b.Act(w.t.Context(), "t.dlq", Ref{Position: Position{1, 1}}, ActionDiscard, "x", ada); err != nil {
			w.t.Error(err)
		}
		w.handle("t.replay", all)
		for _, d := range []*daemon{a, b} {
			d.sync()
			page, err := d.Groups(w.t.Context(), "t.dlq", Filter{Statuses: []Status{StatusSucceeded}})
			if err != nil || len(page.Groups) != 1 || page.Groups[0].Counts[StatusSucceeded] != 4 || page.Groups[0].Open != page.Groups[0].Records-page.Groups[0].Counts[StatusDiscarded]-4 {
				w.t.Errorf("%+v, %v", page.Groups, err)
			}
			if got, _ := d.Job(w.t.Context(), j.ID); got.Succeeded != 4 {
				w.t.Errorf("%+v", got)
			}
		}
	})
}

// Groups that share a DLQ share its state topic; what one does is not counted
// for the other.
func TestGroupsShareADLQ(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.bury(6, func(i int, d *dead) { d.group = []string{"g", "h"}[i%2] })
		g, h := w.daemon("a"), w.daemon("b", func(c *Config) { c.Group = "h" })
		defer g.end()
		defer h.end()
		j := h.wait(h.apply(h.plan(PlanRequest{Action: ActionResolve, Reason: "x"}, ada).Digest).ID)
		if j.Done != 3 {
			w.t.Errorf("%+v", j)
		}
		_, err := g.Act(w.t.Context(), "t.dlq", Ref{Position: Position{0, 1}}, ActionRestore, "x", ada)
		wantErr(w.t, err, KindNotFound, "of group g")
		_, err = g.Job(w.t.Context(), j.ID)
		wantErr(w.t, err, KindNotFound, "no job")
		for d, want := range map[*daemon]map[Status]int64{g: {StatusNew: 3}, h: {StatusResolved: 3}} {
			d.sync()
			s, err := d.Summaries(w.t.Context())
			if err != nil || s[0].Records != 3 || s[0].Counts[StatusNew] != want[StatusNew] || s[0].Counts[StatusResolved] != want[StatusResolved] {
				w.t.Errorf("%+v, %v", s, err)
			}
		}
	})
}

func TestSummaryOldest(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		var came []time.Time
		for range 4 {
			came = append(came, time.Now())
			w.bury(2, nil)
			time.Sleep(time.Hour)
		}
		d := w.daemon("a")
		defer d.end()
		oldest := func(want time.Time) {
			w.t.Helper()
			d.sync()
			s, err := d.Summaries(w.t.Context())
			if err != nil || s[0].Oldest.Sub(want).Abs() > time.Second && !(want.IsZero() && s[0].Oldest.IsZero()) {
				w.t.Errorf("oldest %v, want %v (%+v, %v)", s[0].Oldest, want, s, err)
			}
		}
		oldest(came[0])
		act := func(a Action, ps ...Position) {
			w.t.Helper()
			d.wait(d.apply(d.plan(PlanRequest{Action: a, Reason: "x", Selection: Selection{Positions: ps}}, ada).Digest).ID)
		}
		act(ActionResolve, Position{0, 0})
		oldest(came[0])
		act(ActionResolve, Position{1, 0}, Position{0, 1}, Position{1, 1})
		oldest(came[2])
		act(ActionRestore, Position{1, 1})
		oldest(came[1])
		act(ActionDiscard, Position{1, 1}, Position{0, 2}, Position{1, 2}, Position{0, 3}, Position{1, 3})
		oldest(time.Time{})
		w.bury(1, nil)
		oldest(time.Now())
	})
}

func TestMessagePages(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		var want []Position
		for i := range 40 {
			want = append(want, w.bury(1, func(_ int, d *dead) {
				d.partition = int32(i*i) % 3
				d.message = []string{"odd", "even"}[i%2]
			})...)
			time.Sleep(time.Second)
		}
		d := w.daemon("a")
		defer d.end()
		walk := func(q Query) (got []Position, pages int) {
			for {
				page, err := d.Messages(w.t.Context(), "t.dlq", q)
				if err != nil {
					w.t.Fatal(err)
				}
				for _, m := range page.Messages {
					got = append(got, m.Position)
					if q.Payload != (m.Payload != nil) {
						w.t.Errorf("payload %v", m.Payload)
					}
				}
				if pages++; page.Cursor == "" {
					return got, pages
				}
				q.Cursor = page.Cursor
			}
		}
		newest := slices.Clone(want)
		slices.Reverse(newest)
		if got, n := walk(Query{Limit: 7}); !slices.Equal(got, newest) || n < 6 {
			w.t.Errorf("newest first in %d pages: %v\nwant %v", n, got, newest)
		}
		if got, _ := walk(Query{Limit: 7, Oldest: true, Payload: true}); !slices.Equal(got, order(want)) {
			w.t.Errorf("oldest first: %v\nwant %v", got, order(want))
		}
		if _, err := d.Groups(w.t.Context(), "t.dlq", Filter{}); err != nil {
			w.t.Error(err)
		}
		odd := Selection{Fingerprint: Fingerprint("transient", "odd"), Statuses: []Status{StatusNew}}
		if got, _ := walk(Query{Limit: 3, Selection: odd, Payload: true}); len(got) != 20 || got[0] != want[38] {
			w.t.Errorf("odd ones: %v", got)
		}
		if got, _ := walk(Query{Selection: Selection{Positions: []Position{want[5], want[3], {2, 99}}}}); !slices.Equal(got, order([]Position{want[3], want[5]})) {
			w.t.Errorf("positions: %v", got)
		}
		page, err := d.Messages(w.t.Context(), "t.dlq", Query{Limit: 1})
		if err != nil {
			w.t.Fatal(err)
		}
		_, err = d.Messages(w.t.Context(), "t.dlq", Query{Cursor: page.Cursor, Oldest: true})
		wantErr(w.t, err, KindInvalid, "another selection or order")
		w.anew("t.dlq", 3)
		_, err = d.Messages(w.t.Context(), "t.dlq", Query{Cursor: page.Cursor})
		wantErr(w.t, err, KindGone, "made anew")
	})
}

// Paging while new dead letters come shows each of the old ones once.
func TestMessagePagesWhileItGrows(t *testing.T) {
	for _, oldest := range []bool{true, false} {
		inWorld(t, 3, func(w *world) {
			w.bury(60, nil)
			d := w.daemon("a")
			defer d.end()
			seen := map[Position]int{}
			for cursor := ""; ; {
				page, err := d.Messages(w.t.Context(), "t.dlq", Query{Cursor: cursor, Oldest: oldest, Limit: 5})
				if err != nil {
					w.t.Fatal(err)
				}
				for _, m := range page.Messages {
					seen[m.Position]++
				}
				if cursor = page.Cursor; cursor == "" {
					break
				}
				if len(seen) < 60 {
					w.bury(3, nil)
				}
			}
			old := 0
			for p, n := range seen {
				if n != 1 {
					w.t.Errorf("%v was shown %d times", p, n)
				}
				if p.Offset < 20 {
					old++
				}
			}
			if old != 60 {
				w.t.Errorf("%d of 60 were shown", old)
			}
		})
	}
}
