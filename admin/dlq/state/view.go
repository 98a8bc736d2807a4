package state

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/kconsume/kconsume/engine/history"
)

// maxAudit bounds how many audit entries a view holds: the latest ones.
const maxAudit = 10_000

// maxWords bounds how many texts that repeat are kept once.
const maxWords = 10_000

// View is the log applied up to Next. Applying is all that changes it, and
// depends on nothing else: whoever has read the same has the same view, also
// where compaction has left only the last entry of a key. It is not safe for
// concurrent use.
type View struct {
	Next int64     // offset behind the last entry applied
	Time time.Time // of the latest entry, by the log's own clock

	recs   map[ID]*Record
	outs   map[string]Out // by replay id
	before map[Again]ID   // the dead letter that came again at a place
	ended  map[string]Tally
	plans  map[string]*PlanEntry
	jobs   map[string]*JobEntry
	audits []Audit // in the order of their ids
	stale  map[string]time.Time

	words map[string]string
}

// Tally counts how a job's copies ended.
type Tally struct{ Succeeded, FailedAgain int }

// chain is what is known of a key: its latest entry that counts.
type chain struct {
	Version int64 // its offset
	follows int64 // what it followed
	// sole: none that follows it has been seen. If it is the first entry that is
	// left of the key, it may be one that did not count and outlived, by
	// compaction, the one that did.
	sole bool
}

// next decides whether an entry at an offset counts, which follows another.
// known is false for a key that has no entry yet.
func (c *chain) next(known bool, offset, follows int64) bool {
	switch {
	case !known:
		*c = chain{offset, follows, true}
		return true
	case follows == c.Version:
	case c.sole && c.follows < follows && follows < c.Version:
		// Its writer saw one that counts between what the sole entry followed
		// and the sole entry itself, which therefore never counted.
	default:
		return false
	}
	*c = chain{offset, follows, false}
	return true
}

// Record is a dead letter that something was done about.
type Record struct {
	Rec
	chain
}

// PlanEntry is a plan that was made.
type PlanEntry struct {
	Plan
	chain
	Digest string
}

// JobEntry is a job.
type JobEntry struct {
	Job
	chain
	ID      string
	Renewed time.Time // by the log's clock: when its runner last wrote
}

// Audit is an audit entry as it was written.
type Audit struct {
	ID   string
	Body json.RawMessage
}

// NewView is a view of an empty log.
func NewView() *View {
	return &View{
		recs: map[ID]*Record{}, outs: map[string]Out{}, before: map[Again]ID{}, ended: map[string]Tally{},
		plans: map[string]*PlanEntry{}, jobs: map[string]*JobEntry{}, stale: map[string]time.Time{}, words: map[string]string{},
	}
}

// Apply applies the next entry of the log. What cannot be read is passed over:
// another version wrote it.
func (v *View) Apply(e Entry) {
	v.Next = max(v.Next, e.Offset+1)
	if e.Time.After(v.Time) {
		v.Time = e.Time
	}
	delete(v.stale, e.Key)
	switch rest, kind := cutPrefix(e.Key); kind {
	case prefixRec:
		v.rec(rest, e)
	case prefixOut:
		v.out(rest, e)
	case prefixPlan:
		v.plan(rest, e)
	case prefixJob:
		v.job(rest, e)
	case prefixAudit:
		v.audit(rest, e)
	}
}

func cutPrefix(key string) (rest, kind string) {
	i := strings.IndexByte(key, '/')
	if i < 0 {
		return "", ""
	}
	return key[i+1:], key[:i+1]
}

// lost notes an entry that did not count. As the last one of its key it would
// outlive the one that did: see Stale.
func (v *View) lost(e Entry) { v.stale[e.Key] = e.Time }

func (v *View) rec(key string, e Entry) {
	id, ok := ParseID(key)
	if !ok {
		return
	}
	r := v.recs[id]
	if e.Value == nil {
		delete(v.recs, id)
		return
	}
	var rec Rec
	if json.Unmarshal(e.Value, &rec) != nil || rec.V != version || !rec.sound() {
		if r != nil {
			v.lost(e)
		}
		return
	}
	if r == nil {
		r = &Record{}
		v.recs[id] = r
	} else if rec.After == r.Version && !r.allows(&rec) {
		v.lost(e)
		return
	}
	if !r.next(r.V != 0, e.Offset, rec.After) {
		v.lost(e)
		return
	}
	for _, s := range []*string{&rec.Life, &rec.Group, &rec.Print, &rec.Daemon, &rec.By, &rec.Reason, &rec.Job, &rec.Target} {
		*s = v.word(*s)
	}
	r.Rec = rec
}

// sound reports whether an entry's parts fit together.
func (r *Rec) sound() bool {
	return r.Act == Restatement && r.Status != "" || r.Status != "" && r.Act.after() == r.Status
}

// allows reports whether an entry may follow.
func (r *Record) allows(next *Rec) bool {
	if next.Act == Restatement {
		return next.Status == r.Status && next.Job == r.Job && next.Replay == r.Replay
	}
	if r.Status == Claimed && next.Job != r.Job {
		return false
	}
	return Legal(r.Status, next.Act)
}

// word keeps one copy of texts that many entries have in common.
func (v *View) word(s string) string {
	if w, ok := v.words[s]; ok {
		return w
	}
	if len(v.words) < maxWords {
		s = strings.Clone(s)
		v.words[s] = s
	}
	return s
}

func (v *View) out(replay string, e Entry) {
	job, id, ok := ParseReplayID(replay)
	if !ok {
		return
	}
	if old, known := v.outs[replay]; known {
		v.tally(job, old, -1)
		if old.Again != nil {
			delete(v.before, *old.Again)
		}
		delete(v.outs, replay)
	}
	var o Out
	if e.Value == nil || json.Unmarshal(e.Value, &o) != nil || o.Version != history.OutcomeVersion || o.Status != history.OutcomeSucceeded && o.Status != history.OutcomeFailedAgain {
		return
	}
	o.ReplayID, o.Handler, o.Class = replay, v.word(o.Handler), v.word(o.Class)
	v.outs[replay] = o
	v.tally(job, o, 1)
	if o.Again != nil {
		v.before[*o.Again] = id
	}
}

func (v *View) tally(job string, o Out, n int) {
	t := v.ended[job]
	if o.Status == history.OutcomeSucceeded {
		t.Succeeded += n
	} else {
		t.FailedAgain += n
	}
	if v.ended[job] = t; t == (Tally{}) {
		delete(v.ended, job)
	}
}

func (v *View) plan(digest string, e Entry) {
	p := v.plans[digest]
	if e.Value == nil {
		delete(v.plans, digest)
		return
	}
	var next Plan
	if json.Unmarshal(e.Value, &next) != nil || next.V != version {
		return
	}
	known := p != nil
	if !known {
		p = &PlanEntry{Digest: digest}
		v.plans[digest] = p
	}
	if !p.next(known, e.Offset, next.After) {
		v.lost(e)
		return
	}
	p.Plan = next
}

func (v *View) job(id string, e Entry) {
	j := v.jobs[id]
	if e.Value == nil {
		delete(v.jobs, id)
		return
	}
	var next Job
	if json.Unmarshal(e.Value, &next) != nil || next.V != version {
		return
	}
	known := j != nil
	if !known {
		j = &JobEntry{ID: id}
		v.jobs[id] = j
	} else if next.After == j.Version && !j.allows(&next, e.Time) {
		v.lost(e)
		return
	}
	if !j.next(known, e.Offset, next.After) {
		v.lost(e)
		return
	}
	if !known || next.Runner != j.Runner || next.Writer == next.Runner {
		j.Renewed = e.Time
	}
	j.Job = next
}

// allows: only its runner, or somebody who leaves the runner as it is, writes to
// a job as long as the lease holds; nothing but the end follows the end.
func (j *JobEntry) allows(next *Job, at time.Time) bool {
	if j.Ended {
		return next.Ended
	}
	return j.Runner == "" || next.Runner == j.Runner || next.Writer == j.Runner || j.Over(at)
}

// Over reports whether the runner's lease has ended by a time of the log.
func (j *JobEntry) Over(at time.Time) bool {
	return j.Runner == "" || at.Sub(j.Renewed) >= time.Duration(j.Lease)*time.Millisecond
}

func (v *View) audit(id string, e Entry) {
	i, found := slices.BinarySearchFunc(v.audits, id, func(a Audit, id string) int { return strings.Compare(a.ID, id) })
	switch {
	case e.Value == nil:
		if found {
			v.audits = slices.Delete(v.audits, i, i+1)
		}
	case found:
		v.audits[i].Body = e.Value
	default:
		v.audits = slices.Insert(v.audits, i, Audit{id, e.Value})
		if len(v.audits) > maxAudit {
			v.audits = slices.Delete(v.audits, 0, len(v.audits)-maxAudit)
		}
	}
}
