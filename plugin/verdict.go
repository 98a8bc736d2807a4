package plugin

import "time"

// Class says what becomes of a delivery. The zero value is no verdict at all
// and never counts as an acknowledgement.
type Class uint8

const (
	ClassUnspecified Class = iota
	ClassAck               // done
	ClassTransient         // try again later
	ClassPermanent         // dead letter
	ClassDrop              // done on purpose without doing anything
)

// String is the class in a word.
func (c Class) String() string {
	switch c {
	case ClassAck:
		return "ack"
	case ClassTransient:
		return "transient"
	case ClassPermanent:
		return "permanent"
	case ClassDrop:
		return "drop"
	}
	return "unspecified"
}

// Reason is the bounded word of a failure: it labels metrics and is what
// X-Error-Class holds.
type Reason string

const (
	ReasonTransient    Reason = "transient"
	ReasonPermanent    Reason = "permanent"
	ReasonPoison       Reason = "poison"        // the bytes cannot be decoded
	ReasonPanic        Reason = "panic"         // the handler panicked
	ReasonHandlerCrash Reason = "handler_crash" // the record kills the handler's process
	ReasonTimeout      Reason = "timeout"       // the deadline of the delivery passed
	ReasonOversize     Reason = "oversize"      // too large to be forwarded or handed over
)

// Verdict is the typed answer to one delivery.
type Verdict struct {
	Class  Class
	Reason Reason // empty for ClassAck and ClassDrop
	// Code is a short machine-readable word: a status, an SQLSTATE.
	Code string
	// Message is the error's text, or the reason given to Drop.
	Message string
	// RetryAfter is the handler's wish, 0 = none.
	RetryAfter time.Duration
	// Causes are the texts of the wrapped errors, outermost first.
	Causes []string
	// Stack is a panic's stack.
	Stack string
	// Rule names the classification rule that fired.
	Rule string
	// Emitted are the records to send once an acknowledgement is accepted.
	Emitted []Record
}
