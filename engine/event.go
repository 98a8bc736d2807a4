package engine

import "time"

// EventKind is a step of a record's way.
type EventKind uint8

const (
	EventDelivered EventKind = iota + 1 // sent to the handler
	EventAcked                          // the handler is done with it
	EventDropped                        // the handler dropped it on purpose
	EventRetried                        // the broker acknowledged its forward to a retry tier
	EventDead                           // the broker acknowledged its forward to the DLQ
	EventSkipped                        // on a shared tier: another group's record
)

// Event is one step of one record's way, as the Observer is told it.
type Event struct {
	Kind      EventKind
	At        time.Time
	ID        string // the record's stable id
	Topic     string // origin
	Partition int32
	Offset    int64
	Key       []byte
	Stage     string    // where it was read: "main", "retry.5s"
	Attempt   int       // the delivery's number
	Due       time.Time // EventRetried: not before; EventDelivered from a tier: when it was due
	To        string    // EventRetried, EventDead: the topic it went to
	Class     string    // EventRetried, EventDead: X-Error-Class
	Code      string
	Message   string
}
