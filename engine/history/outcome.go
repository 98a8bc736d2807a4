package history

// OutcomeKey is what the keys of outcomes in a state topic begin with; the
// replay id follows.
const OutcomeKey = "out/"

// OutcomeVersion is the Version of outcomes that are written.
const OutcomeVersion = 1

// How a replay ended: an Outcome's Status.
const (
	OutcomeSucceeded   = "succeeded"    // handled, or dropped on purpose
	OutcomeFailedAgain = "failed_again" // in the DLQ once more
)

// Outcome is how a replayed record ended: the value of an entry in the state
// topic of its DLQ, as JSON. The engine writes it, and whoever sent the copy
// reads it.
type Outcome struct {
	Version  int    `json:"v"`
	ReplayID string `json:"replay_id"`
	Status   string `json:"status"`
	At       int64  `json:"at"`                // unix ms
	Handler  string `json:"handler,omitempty"` // name@version
	Attempts int    `json:"attempts"`          // deliveries that it took
	Class    string `json:"class,omitempty"`   // OutcomeFailedAgain: X-Error-Class
	Again    *Place `json:"again,omitempty"`   // OutcomeFailedAgain: where it lies now
}

// Place is a place in the DLQ.
type Place struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
}
