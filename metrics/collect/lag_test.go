package collect

import (
	"testing"
	"time"
)

func TestAge(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type look struct {
		after           time.Duration // the first look
		committed, high int64
		want            time.Duration
	}
	for name, looks := range map[string][]look{
		"nothing there":                 {{0, -1, 0, 0}, {time.Minute, -1, 0, 0}},
		"not known yet":                 {{0, -1, -1, 0}},
		"all committed":                 {{0, 5, 5, 0}, {time.Minute, 9, 9, 0}},
		"stuck":                         {{0, 5, 6, 0}, {time.Minute, 5, 6, time.Minute}, {time.Hour, 5, 100, time.Hour}},
		"a backlog at the first look":   {{0, -1, 1000, 0}, {time.Minute, 10, 1000, time.Minute}},
		"keeps up, one behind":          {{0, 5, 6, 0}, {time.Minute, 6, 7, 0}, {2 * time.Minute, 7, 8, 0}},
		"one committed, one later left": {{0, 5, 6, 0}, {time.Minute, 5, 7, time.Minute}, {2 * time.Minute, 6, 7, time.Minute}},
		"drained, then new":             {{0, 0, 9, 0}, {time.Minute, 9, 9, 0}, {time.Hour, 9, 10, 0}, {2 * time.Hour, 9, 10, time.Hour}},
		"the clock is set back":         {{0, 5, 6, 0}, {-time.Hour, 5, 6, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var a age
			for i, l := range looks {
				if got := a.see(l.committed, l.high, start.Add(l.after)); got != l.want {
					t.Errorf("look %d: %v, want %v", i, got, l.want)
				}
			}
		})
	}
}

// Against a model that remembers everything: never younger than the record
// stuck the longest by more than what thinning may lose, and bounded.
func TestAgeIsBounded(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var a age
	for i := range int64(10_000) {
		now := start.Add(time.Duration(i) * watchEvery)
		if got := a.see(0, i+1, now); got != now.Sub(start) {
			t.Fatalf("look %d: the oldest is %v old, want %v", i, got, now.Sub(start))
		}
		if len(a.marks) > maxMarks {
			t.Fatalf("%d marks", len(a.marks))
		}
	}
	// Committed up to the middle: the age is at most what it is, and older than
	// a younger half would be.
	now := start.Add(10_000 * watchEvery)
	got, exact := a.see(5000, 10_000, now), 5000*watchEvery
	if got < exact || got > 2*exact {
		t.Errorf("%v, exactly %v", got, exact)
	}
}
