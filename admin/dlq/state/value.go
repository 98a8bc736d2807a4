package state

import (
	"encoding/json"
	"time"

	"github.com/kconsume/kconsume/engine/history"
)

// version is the "v" of every value that is written. Newer ones are passed over.
const version = 1

// Status is what has become of a dead letter.
type Status string

const (
	New         Status = "new"
	Claimed     Status = "claimed"
	Replayed    Status = "replayed"
	Succeeded   Status = history.OutcomeSucceeded
	FailedAgain Status = history.OutcomeFailedAgain
	Resolved    Status = "resolved"
	Discarded   Status = "discarded"
	Uncertain   Status = "uncertain"
)

// Open reports whether a record in this status still waits for somebody.
func (s Status) Open() bool {
	return s == New || s == Claimed || s == Replayed || s == Uncertain
}

// Act is what an entry about a dead letter does.
type Act string

const (
	Claim       Act = "claim"     // a job is about to send it
	Sent        Act = "sent"      // its copy is written
	Release     Act = "release"   // the job could not, or need not, send it: it is free again
	Unsure      Act = "uncertain" // whether its copy was written cannot be told
	Resolve     Act = "resolve"
	Discard     Act = "discard"
	Restore     Act = "restore"
	Restatement Act = "restate" // what is true already, again: see View.Stale
)

// after is the status after an act.
func (a Act) after() Status {
	switch a {
	case Claim:
		return Claimed
	case Sent:
		return Replayed
	case Unsure:
		return Uncertain
	case Resolve:
		return Resolved
	case Discard:
		return Discarded
	case Release, Restore:
		return New
	}
	return ""
}

// Legal reports whether an act may follow a status.
//
//	new          claim, resolve, discard
//	claimed      sent, release, uncertain, by the job that has it
//	replayed     resolve, discard (its outcome may never come)
//	uncertain    sent (it was found), resolve, discard, restore
//	resolved     restore
//	discarded    restore
func Legal(from Status, a Act) bool {
	switch a {
	case Claim:
		return from == New
	case Sent:
		return from == Claimed || from == Uncertain
	case Release, Unsure:
		return from == Claimed
	case Resolve, Discard:
		return from == New || from == Replayed || from == Uncertain
	case Restore:
		return from == Resolved || from == Discarded || from == Uncertain
	}
	return a == Restatement
}

// Rec is an entry about a dead letter: all that is true of it after the act.
type Rec struct {
	V      int    `json:"v"`
	Act    Act    `json:"act"`
	After  int64  `json:"after"` // offset of the entry that it follows, -1 = it is the first
	Status Status `json:"status"`
	At     int64  `json:"at"`               // unix ms, by the writer's clock
	Life   string `json:"topic,omitempty"`  // of the DLQ, see Life
	Group  string `json:"group,omitempty"`  // whose record it is
	Came   int64  `json:"came,omitempty"`   // unix ms: when the dead letter came
	Print  string `json:"print,omitempty"`  // its fingerprint
	Daemon string `json:"daemon,omitempty"` // that wrote this
	By     string `json:"by,omitempty"`     // the person
	Reason string `json:"reason,omitempty"`
	Job    string `json:"job,omitempty"`
	Replay string `json:"replay,omitempty"` // the copy's replay id
	Target string `json:"target,omitempty"` // topic of the copy; its partition is the record's
	From   int64  `json:"from,omitempty"`   // claim: where the target ended before anything was sent
	Offset int64  `json:"offset,omitempty"` // sent: where the copy lies
}

// Out is how a replayed copy ended.
type Out = history.Outcome

// Again is a place in the DLQ.
type Again = history.Place

// Plan is an entry about a plan.
type Plan struct {
	V       int             `json:"v"`
	After   int64           `json:"after"`
	Life    string          `json:"topic,omitempty"`
	Group   string          `json:"group"`
	Expires int64           `json:"expires"`           // unix ms
	Applied string          `json:"applied,omitempty"` // the job that does it
	Salt    string          `json:"salt,omitempty"`    // part of the digest
	Body    json.RawMessage `json:"body"`              // as it is shown
	Records []byte          `json:"records"`           // packed: see Pack
}

// Job is an entry about a job.
type Job struct {
	V      int             `json:"v"`
	After  int64           `json:"after"`
	Group  string          `json:"group"`
	Digest string          `json:"digest"`
	Origin string          `json:"origin"` // the process that began it
	Runner string          `json:"runner"` // the process that works on it, "" = nobody
	Writer string          `json:"writer"` // the process that wrote this entry
	Seq    int64           `json:"seq"`    // the writer's own number of it
	Lease  int64           `json:"lease"`  // ms that it stays the runner's without a renewal
	Ended  bool            `json:"ended,omitempty"`
	Cancel *Cancel         `json:"cancel,omitempty"` // somebody asked for it
	Body   json.RawMessage `json:"body"`             // as it is shown
}

// Cancel is a wish to end a job.
type Cancel struct {
	By     string `json:"by"`
	Reason string `json:"reason"`
	At     int64  `json:"at"`
}

// Entry is a record of the log.
type Entry struct {
	Offset int64
	Time   time.Time // the log's own
	Key    string
	Value  []byte // nil = a tombstone
}
