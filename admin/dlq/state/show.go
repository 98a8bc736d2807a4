package state

import (
	"maps"
	"time"
)

// Record is what is known of a dead letter, its outcome included; false =
// nothing was done about it.
func (v *View) Record(id ID) (Record, bool) {
	r, ok := v.recs[id]
	if !ok {
		return Record{chain: chain{Version: -1}}, false
	}
	out := *r
	out.Status = v.joined(r)
	return out, true
}

// joined is a record's status with its copy's outcome.
func (v *View) joined(r *Record) Status {
	if r.Replay == "" || r.Status == Resolved || r.Status == Discarded {
		return r.Status
	}
	if o, ok := v.outs[r.Replay]; ok {
		return Status(o.Status)
	}
	return r.Status
}

// Free reports whether a claim of a dead letter would count, and what it follows.
func (v *View) Free(id ID) (after int64, free bool) {
	r, ok := v.recs[id]
	if !ok {
		return -1, true
	}
	return r.Version, v.joined(r) == New
}

// Records are all that something was done about, with their outcomes, in no order.
func (v *View) Records(yield func(ID, *Record) bool) {
	for id, r := range v.recs {
		joined := *r
		joined.Status = v.joined(r)
		if !yield(id, &joined) {
			return
		}
	}
}

// Outcome is how a copy ended.
func (v *View) Outcome(replay string) (Out, bool) { o, ok := v.outs[replay]; return o, ok }

// Outcomes are all of them, in no order.
func (v *View) Outcomes(yield func(string, Out) bool) { maps.All(v.outs)(yield) }

// Before is the dead letter whose copy failed again at a place, if one did.
func (v *View) Before(p Again) (ID, bool) { id, ok := v.before[p]; return id, ok }

// Tally counts how the copies of a job ended.
func (v *View) Tally(job string) Tally { return v.ended[job] }

// Plan is a plan by its digest.
func (v *View) Plan(digest string) (PlanEntry, bool) {
	if p, ok := v.plans[digest]; ok {
		return *p, true
	}
	return PlanEntry{chain: chain{Version: -1}}, false
}

// Plans are all of them, in no order.
func (v *View) Plans(yield func(*PlanEntry) bool) {
	for _, p := range v.plans {
		if !yield(p) {
			return
		}
	}
}

// Job is a job by its id.
func (v *View) Job(id string) (JobEntry, bool) {
	if j, ok := v.jobs[id]; ok {
		return *j, true
	}
	return JobEntry{chain: chain{Version: -1}}, false
}

// Jobs are all of them, in no order.
func (v *View) Jobs(yield func(*JobEntry) bool) {
	for _, j := range v.jobs {
		if !yield(j) {
			return
		}
	}
}

// Audits are the latest audit entries, in the order of time. The caller must
// not change them.
func (v *View) Audits() []Audit { return v.audits }

// Stale are the keys whose last entry did not count and was written before a
// time, each with an entry to write that says again what is true. Compaction
// would keep the last entry only.
func (v *View) Stale(before time.Time) map[string]any {
	out := map[string]any{}
	for key, at := range v.stale {
		if !at.Before(before) {
			continue
		}
		switch rest, kind := cutPrefix(key); kind {
		case prefixRec:
			id, _ := ParseID(rest)
			if r, ok := v.recs[id]; ok && r.Status != Claimed { // a claim is followed anyway
				again := r.Rec
				again.Act, again.After = Restatement, r.Version
				out[key] = again
			}
		case prefixPlan:
			if p, ok := v.plans[rest]; ok {
				again := p.Plan
				again.After = p.Version
				out[key] = again
			}
		case prefixJob:
			if j, ok := v.jobs[rest]; ok && j.Ended {
				again := j.Job
				again.After = j.Version
				out[key] = again
			}
		}
	}
	return out
}
