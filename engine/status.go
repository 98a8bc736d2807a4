package engine

import "time"

// State is what an engine is doing as a whole.
type State string

const (
	StateStarting State = "starting" // waiting for a broker or for topics
	StateJoining  State = "joining"  // between two generations of the group
	StateRunning  State = "running"
	StateDraining State = "draining" // stopping: finishing what was begun
	StateStopped  State = "stopped"
)

// Status is a snapshot of an engine.
type Status struct {
	State      State         `json:"state"`
	Since      time.Time     `json:"since"`
	Problem    string        `json:"problem,omitempty"` // what it is waiting for, or the last repeated error
	Group      string        `json:"group"`
	Member     string        `json:"member,omitempty"`
	Generation int32         `json:"generation"`
	Stages     []StageStatus `json:"stages"`
	// TopicProblems are what keeps topics from working, Unowned the partitions
	// with unread records that no member of the group reads, and Orphans the
	// groups without members for which records wait on our topics.
	TopicProblems []TopicProblem  `json:"topic_problems,omitempty"`
	Unowned       []UnownedStatus `json:"unowned,omitempty"`
	Orphans       []OrphanStatus  `json:"orphans,omitempty"`
	InFlight      int             `json:"in_flight"`    // deliveries not yet answered
	Buffered      int             `json:"buffer_bytes"` // bytes fetched and not settled
	// EmitBuffered are the bytes of emitted records that wait in memory alone.
	EmitBuffered int           `json:"emit_buffer_bytes"`
	Writes       []WriteStatus `json:"writes,omitempty"` // those that fail
}

// WriteStatus is a partition to which writes fail at present.
type WriteStatus struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"` // −1 = not known: the topic is not there
	Waiting   int    `json:"waiting"`   // records
	Kind      string `json:"kind"`      // "temporary", "configuration", "cluster"
	Reason    string `json:"reason"`
}

// TopicProblem is why a topic cannot work.
type TopicProblem struct {
	Topic   string `json:"topic"`
	Problem string `json:"problem"` // "missing", "name_taken", "compacted", "retention", "partitions"
	Text    string `json:"text"`    // with the command that mends it
}

// UnownedStatus are partitions that nobody reads.
type UnownedStatus struct {
	Topic      string `json:"topic"`
	Partitions []int  `json:"partitions"`
}

// OrphanStatus is a group that is gone while records wait for it.
type OrphanStatus struct {
	Group   string `json:"group"`
	Records int    `json:"records"`
	Partial bool   `json:"partial,omitempty"` // not all were counted: there may be more
}

// StageStatus sums up the partitions of one stage that this member owns.
type StageStatus struct {
	Topic      string            `json:"topic"`              // the stage's own topic
	Stage      string            `json:"stage"`              // "main", "retry.5s", "replay"
	Of         string            `json:"of"`                 // the main topic
	Leftover   bool              `json:"leftover,omitempty"` // a tier of earlier settings that is drained
	Lag        int64             `json:"lag"`                // records up to the high watermark that are not committed
	Waiting    int               `json:"waiting"`
	InFlight   int               `json:"in_flight"`
	Partitions []PartitionStatus `json:"partitions"`
}

// PartitionStatus is one partition of a stage.
type PartitionStatus struct {
	Partition     int32     `json:"partition"`
	Committed     int64     `json:"committed"`      // −1 = nothing committed yet
	Position      int64     `json:"position"`       // next offset to fetch
	HighWatermark int64     `json:"high_watermark"` // −1 = not known yet
	Waiting       int       `json:"waiting"`        // read, not yet due
	InFlight      int       `json:"in_flight"`
	NextDue       time.Time `json:"next_due,omitzero"`
	// OpenSince is since when an open transaction of a producer holds the
	// partition up, with the lag that can be read at zero.
	OpenSince time.Time `json:"open_transaction_since,omitzero"`
	Problem   string    `json:"problem,omitempty"` // why it does not go on
}
