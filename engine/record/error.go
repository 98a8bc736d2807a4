package record

import "fmt"

// Class says what kind of damage a batch has. The set is closed, so it can be
// a metric label.
type Class string

const (
	// Corrupt: the checksum or the batch's own header is wrong.
	Corrupt Class = "corrupt"
	// TruncatedRecord: the checksum is right, but a record runs over the end
	// of its batch.
	TruncatedRecord Class = "truncated-record"
	// Magic: the message format is not v2.
	Magic Class = "magic"
	// Codec: the compression is unknown, or what it packed is damaged.
	Codec Class = "codec"
	// Bomb: the batch would take more memory than Options.MaxInflate.
	Bomb Class = "bomb"
)

// pass is how to get past a batch that stays unreadable.
const pass = "mend the producer, and let the batch expire or, with the group stopped, set its offset behind it (kafka-consumer-groups --reset-offsets)"

// advice is what the reader of the error can do about it.
func (c Class) advice() string {
	switch c {
	case Corrupt:
		return "fetch it again; if that does not help, the broker's log or the network is damaged"
	case TruncatedRecord:
		return "its producer wrote a malformed batch: " + pass
	case Magic:
		return "only format v2 (Kafka 0.11 and later) is read; let the old segments expire or rewrite the topic"
	case Codec:
		return "its producer packed it in a way that cannot be read: " + pass
	case Bomb:
		return "it inflates to more than a consumer should hold: " + pass
	}
	return "report it"
}

// Error is a batch that cannot be read.
type Error struct {
	Class Class
	// Offset is where the bad batch was met: the first offset that could not
	// be read, the same as the set's Next.
	Offset int64
	// Last is the offset of the batch's last record, or -1 where its header
	// cannot be believed. Reading goes on at Last+1 if it is to be skipped.
	Last int64
	Err  error
}

func (e *Error) Error() string {
	return fmt.Sprintf("decode batch at offset %d: %s: %v; %s", e.Offset, e.Class, e.Err, e.Class.advice())
}

func (e *Error) Unwrap() error { return e.Err }
