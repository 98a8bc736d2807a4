// Package dlq operates dead letter queues. It reads them partition by partition,
// never through a consumer group, and never changes a record of theirs. What
// became of each record, who did it and why, lies in a compacted topic beside
// the DLQ, its state topic (package state), so that every daemon of the group,
// and a restarted one, knows the same. Records are sent again by jobs that go on
// without whoever began them.
package dlq

import (
	"slices"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
	"github.com/kconsume/kconsume/admin/export"
)

// Status is what has become of a dead letter.
type Status = state.Status

const (
	StatusNew         = state.New         // nobody did anything about it, or it was restored
	StatusClaimed     = state.Claimed     // a job has it and is about to send it
	StatusReplayed    = state.Replayed    // it was sent again; how that ended is not known yet
	StatusSucceeded   = state.Succeeded   // it was handled
	StatusFailedAgain = state.FailedAgain // it is in the DLQ once more, as another record
	StatusResolved    = state.Resolved    // a person says that it needs nothing more
	StatusDiscarded   = state.Discarded   // a person says that it is not worth anything; can be restored
	StatusUncertain   = state.Uncertain   // whether it was sent cannot be told: for a person to decide
)

// Statuses are all of them, in the order of a record's life.
func Statuses() []Status {
	return []Status{StatusNew, StatusClaimed, StatusReplayed, StatusSucceeded, StatusFailedAgain, StatusResolved, StatusDiscarded, StatusUncertain}
}

// Position is a record's place in a DLQ. As text it is PARTITION:OFFSET.
type Position struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
}

// Message is a dead letter as it is shown.
type Message struct {
	Position
	Identity    string    `json:"identity"` // of the record at this position: see Ref
	Topic       string    `json:"topic"`    // the DLQ
	Time        time.Time `json:"time"`     // when it came into the DLQ
	ID          string    `json:"id"`       // the record's own, the same in every stage
	Group       string    `json:"group"`
	Origin      Origin    `json:"origin"`
	Attempts    int       `json:"attempts"`
	Class       string    `json:"class"` // X-Error-Class
	Code        string    `json:"code,omitempty"`
	Error       string    `json:"error,omitempty"`
	Handler     string    `json:"handler,omitempty"` // name@version
	FirstFailed time.Time `json:"first_failed,omitzero"`
	LastFailed  time.Time `json:"last_failed,omitzero"`
	Fingerprint string    `json:"fingerprint"`
	Replays     int       `json:"replays"` // X-Replay-Count: of its origin, never reset
	Size        int       `json:"size"`    // bytes of key, value and headers
	State       State     `json:"state"`
	// Payload is left out for those who may not read it.
	Payload *export.Record `json:"payload,omitempty"`
	// Traceparent is W3C's, so that the trace can be looked up.
	Traceparent string `json:"traceparent,omitempty"`
}

// Origin is where a record first was.
type Origin struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Time      time.Time `json:"time"`
}

// State is what became of a record.
type State struct {
	Status   Status    `json:"status"`
	At       time.Time `json:"at,omitzero"` // of the last change
	By       string    `json:"by,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Job      string    `json:"job,omitempty"`
	ReplayID string    `json:"replay_id,omitempty"`
	Sent     *Place    `json:"sent,omitempty"`    // where its copy lies
	Again    *Position `json:"again,omitempty"`   // failed_again: its next dead letter
	Handler  string    `json:"handler,omitempty"` // that handled the copy
	// Earlier: it belongs to an earlier topic of the same name; nothing can be
	// done about it any more.
	Earlier bool `json:"earlier,omitempty"`
}

// Place is a record's place in any topic.
type Place struct {
	Topic string `json:"topic"`
	Position
}

// Summary is one DLQ in short.
type Summary struct {
	Topic      string           `json:"topic"`
	Of         string           `json:"of"`     // the main topic
	Target     string           `json:"target"` // where replays go by default
	Partitions int              `json:"partitions"`
	Records    int64            `json:"records"` // that can be read
	Counts     map[Status]int64 `json:"counts"`
	Oldest     time.Time        `json:"oldest_open,omitzero"` // the oldest record that is open
	// Deadline is when retention takes the oldest open record; zero = never.
	Deadline time.Time `json:"retention_deadline,omitzero"`
	Scan     Scan      `json:"scan"`
}

// Scan says how much was looked at.
type Scan struct {
	Complete bool   `json:"complete"`
	Records  int64  `json:"records"`
	Note     string `json:"note,omitempty"` // why it is not complete
}

// Group are the dead letters that failed alike.
type Group struct {
	Fingerprint string           `json:"fingerprint"` // "other": beyond the bound of how many are told apart
	Class       string           `json:"class"`
	Error       string           `json:"error"` // normalised: numbers and identifiers are taken out
	Sample      string           `json:"sample"`
	Example     Position         `json:"example"`
	Records     int64            `json:"records"`
	Open        int64            `json:"open"`
	Counts      map[Status]int64 `json:"counts"`
	First       time.Time        `json:"first"`
	Last        time.Time        `json:"last"`
	Handlers    []string         `json:"handlers"` // name@version, the latest ones
	// Spark is how many came in each of the last 24 hours, the present one last.
	Spark [24]int64 `json:"spark"`
}

// Selection says which dead letters are meant; all that is set must hold. Only
// records of the daemon's own group count, of this topic's present life.
type Selection struct {
	Positions   []Position `json:"positions,omitempty"`
	Fingerprint string     `json:"fingerprint,omitempty"`
	Key         *string    `json:"key,omitempty"`
	Class       string     `json:"class,omitempty"`
	Handler     string     `json:"handler,omitempty"` // name or name@version
	Statuses    []Status   `json:"statuses,omitempty"`
	Since       time.Time  `json:"since,omitzero"` // came into the DLQ at or after
	Until       time.Time  `json:"until,omitzero"` // and before
	Limit       int        `json:"limit,omitempty"`
}

// Action is what a plan does with records.
type Action string

const (
	ActionReplay  Action = "replay"
	ActionResolve Action = "resolve"
	ActionDiscard Action = "discard"
	ActionRestore Action = "restore"
)

// PlanRequest asks what an action would do. It does nothing.
type PlanRequest struct {
	Action    Action    `json:"action"`
	Selection Selection `json:"selection"`
	Target    string    `json:"target,omitempty"` // replay: "replay" (default) or "source"
	Rate      float64   `json:"rate,omitempty"`   // replay: records per second, 0 = the default
	Canary    bool      `json:"canary,omitempty"` // replay: one first, the rest if that is handled
	Force     bool      `json:"force,omitempty"`  // replay: also beyond the guard
	Reason    string    `json:"reason,omitempty"`
}

// Plan is what an action will do when it is applied by its digest. A digest is
// good for an hour, and as long as the DLQ and its state have not changed in
// what the plan is about.
type Plan struct {
	Digest   string           `json:"digest"`
	Topic    string           `json:"topic"`
	Request  PlanRequest      `json:"request"`
	Target   string           `json:"target,omitempty"` // the topic
	Records  int              `json:"records"`
	Bytes    int64            `json:"bytes"`
	Errors   []PlanCount      `json:"errors"` // what will be sent, by what it failed with
	Excluded []PlanCount      `json:"excluded"`
	Warnings []string         `json:"warnings"`
	First    []Position       `json:"first"` // the first ones, at most 20
	Statuses map[Status]int64 `json:"statuses"`
	Made     time.Time        `json:"made"`
	Expires  time.Time        `json:"expires"`
	By       string           `json:"by"`
}

// PlanCount is how many records of a plan have something in common.
type PlanCount struct {
	What    string `json:"what"`
	Records int    `json:"records"`
}

// JobStatus is how a job is.
type JobStatus string

const (
	JobRunning   JobStatus = "running"
	JobCanary    JobStatus = "canary" // waits for the outcome of the first record
	JobDone      JobStatus = "done"
	JobCancelled JobStatus = "cancelled"
	JobFailed    JobStatus = "failed" // it could not go on: see Note
)

// Ended reports whether nothing more happens in it.
func (s JobStatus) Ended() bool { return s == JobDone || s == JobCancelled || s == JobFailed }

// Job is an action under way, or one that has ended.
type Job struct {
	ID        string    `json:"id"`
	Topic     string    `json:"topic"`
	Action    Action    `json:"action"`
	Target    string    `json:"target,omitempty"`
	Status    JobStatus `json:"status"`
	Reason    string    `json:"reason,omitempty"`
	By        string    `json:"by"`
	Digest    string    `json:"digest,omitempty"`
	Began     time.Time `json:"began"`
	Ended     time.Time `json:"ended,omitzero"`
	Records   int       `json:"records"` // in all
	Done      int       `json:"done"`    // of them
	Succeeded int       `json:"succeeded"`
	Failed    int       `json:"failed_again"`
	Skipped   int       `json:"skipped"` // another had them, or they are gone
	Uncertain int       `json:"uncertain"`
	Rate      float64   `json:"rate"`
	Canary    bool      `json:"canary,omitempty"`
	Runner    string    `json:"runner,omitempty"` // the daemon that works on it
	Note      string    `json:"note,omitempty"`
}

// AuditEntry is written before what it tells of is done.
type AuditEntry struct {
	ID       string    `json:"id"` // sorts by time
	At       time.Time `json:"at"`
	Actor    Actor     `json:"actor"`
	Action   string    `json:"action"` // "replay", "cancel", "discard", "claim", …
	Topic    string    `json:"topic"`
	Subject  string    `json:"subject"` // a position, a digest, a job
	Reason   string    `json:"reason,omitempty"`
	Result   string    `json:"result"` // "begun", "done", "refused: …"
	Records  int       `json:"records"`
	Daemon   string    `json:"daemon"`
	Duration float64   `json:"seconds,omitempty"`
}

// Actor is who does something, and how we know.
type Actor struct {
	Name string `json:"name"` // "uid 1000 (ada)", a token's name, a certificate's subject
	Via  string `json:"via"`  // "socket", "token", "mtls", "console"
	Role Role   `json:"role"`
}

// Role is what somebody may do; each includes the ones before it.
type Role string

const (
	RoleViewer   Role = "viewer"   // numbers, groups, jobs
	RoleReader   Role = "reader"   // payloads
	RoleOperator Role = "operator" // replay, resolve, discard, restore
	RoleAdmin    Role = "admin"    // force, cancel others' jobs
)

// Includes reports whether r may do what least may.
func (r Role) Includes(least Role) bool {
	order := []Role{RoleViewer, RoleReader, RoleOperator, RoleAdmin}
	return slices.Contains(order, r) && slices.Index(order, r) >= slices.Index(order, least)
}
