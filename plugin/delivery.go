package plugin

import "time"

// Delivery is one record on its way to a handler.
type Delivery struct {
	// Handle names the delivery in its answer; below 2^53, never reused while
	// the delivery is unanswered or late.
	Handle uint64
	// Message.ID may be empty: whoever shows the message to a person's code
	// fills it with AppendID.
	Message Message
	// Timeout counts from the start of the handler's call; 0 = none.
	Timeout time.Duration
}

// Answer is a verdict that is not a plain acknowledgement.
type Answer struct {
	Handle  uint64
	Verdict Verdict
	// Late: the deadline passed and the handler's call still runs. Its handle
	// comes once more in Answers.Ended when the call, or its process, has ended.
	Late bool
}

// Answers is a batch of what has been answered. Every delivery is answered
// exactly once, in Acked or in Verdicts.
type Answers struct {
	// Handler is name@version of who answered.
	Handler  string
	Acked    []uint64
	Verdicts []Answer
	Ended    []uint64
}
