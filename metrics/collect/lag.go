package collect

import "time"

// maxMarks bounds what is remembered of a partition's growth.
const maxMarks = 128

// mark says when a partition's high watermark was first seen at a value.
type mark struct {
	high int64
	at   time.Time
}

// age tells how long the oldest uncommitted record of a partition has been
// there, by when the log was seen to grow past the committed offset. The records'
// own timestamps say nothing about that: producers may set them to anything.
// What was there already at the first look is as old as that look.
type age struct{ marks []mark } // in order; the first is past the committed offset

// see takes a look at a partition and tells the age; 0 = all is committed.
// committed is −1 where nothing is, high −1 where it is not known.
func (a *age) see(committed, high int64, now time.Time) time.Duration {
	committed = max(0, committed)
	if n := len(a.marks); high > committed && (n == 0 || a.marks[n-1].high < high) {
		a.marks = append(a.marks, mark{high, now})
	}
	for len(a.marks) > 0 && a.marks[0].high <= committed {
		a.marks = a.marks[1:]
	}
	if len(a.marks) > maxMarks {
		a.thin()
	}
	if len(a.marks) == 0 {
		return 0
	}
	return max(0, now.Sub(a.marks[0].at))
}

// thin joins each mark but the first with the next one: a record is then held
// for older than it is by at most the time between the two.
func (a *age) thin() {
	kept := a.marks[:1:1]
	for i := 1; i < len(a.marks); i += 2 {
		m := a.marks[i]
		if i+1 < len(a.marks) {
			m.high = a.marks[i+1].high
		}
		kept = append(kept, m)
	}
	a.marks = kept
}
