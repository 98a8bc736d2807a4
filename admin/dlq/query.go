package dlq

import (
	"strconv"
	"time"
)

// Bounds of one request.
const (
	DefaultReplay = 10 // records of a simple replay
	MaxReplay     = 100
	DefaultPage   = 50 // messages, groups, jobs, audit entries of a page
	MaxPage       = 500
	MaxPlan       = 10_000 // records of a plan
	DefaultRate   = 100    // records per second of a replay job
	MaxRate       = 10_000
	MaxReplays    = 2    // of one origin record, unless forced
	MaxReason     = 1000 // bytes
)

// ParseReplayLimit reads the limit of a simple replay; "" is the default.
func ParseReplayLimit(text string) (int, error) {
	if text == "" {
		return DefaultReplay, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > MaxReplay {
		return 0, refuse(KindInvalid, "limit %q: use a whole number from 1 to %d", text, MaxReplay)
	}
	return n, nil
}

// ParsePosition reads PARTITION:OFFSET.
func ParsePosition(text string) (Position, error) {
	p, ok := parsePosition(text)
	if !ok {
		return p, refuse(KindInvalid, "position %q: use PARTITION:OFFSET, such as 0:17", text)
	}
	return p, nil
}

// Filter narrows a list of groups.
type Filter struct {
	Statuses []Status // groups with a record in one of them; none = all
	Limit    int      // 0 = DefaultPage
	Cursor   string
}

// GroupPage is a page of groups, those with the most open records first.
type GroupPage struct {
	Groups []Group `json:"groups"`
	Cursor string  `json:"cursor,omitempty"` // of the next page, "" = the last
	Scan   Scan    `json:"scan"`
}

// Query asks for messages.
type Query struct {
	Selection Selection // its Limit is not used
	Limit     int       // 0 = DefaultPage
	Cursor    string    // of the page before; it belongs to one selection and order
	Payload   bool      // with key, value and headers
	// Oldest orders by partition and offset; otherwise the newest come first,
	// whatever their partition.
	Oldest bool
	// Earlier adds what is known of dead letters of earlier topics of the name.
	Earlier bool
}

// MessagePage is a page of messages. A page may hold fewer than were asked for,
// even none, and a cursor all the same: as much was read as one request may.
type MessagePage struct {
	Messages []Message `json:"messages"`
	Earlier  []Message `json:"earlier,omitempty"` // on the first page
	Cursor   string    `json:"cursor,omitempty"`  // "" = the last page
	Scan     Scan      `json:"scan"`
}

// Detail is one message with all that is known of it.
type Detail struct {
	Message
	Timeline []TimelineEntry `json:"timeline"` // in the order of time
}

// TimelineEntry is something that happened to a record.
type TimelineEntry struct {
	At time.Time `json:"at"`
	// What: "first_failed", "dead" (it came into the DLQ), "claim", "sent",
	// "succeeded", "failed_again", "resolve", "discard", "restore", "release",
	// "uncertain", "earlier" (the dead letter that it was before a replay),
	// "incomplete" (older entries are not kept any more).
	What     string `json:"what"`
	By       string `json:"by,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Job      string `json:"job,omitempty"`
	Handler  string `json:"handler,omitempty"`
	Attempts int    `json:"attempts,omitempty"`
	Place    *Place `json:"place,omitempty"` // of the copy, or of the other dead letter
}

// Ref names a dead letter. Identity, if given, must be the record's own: a DLQ
// that was made anew has other records at the same positions.
type Ref struct {
	Position
	Identity string `json:"identity,omitempty"`
}

// JobQuery narrows a list of jobs.
type JobQuery struct {
	Topic  string // the DLQ, "" = all
	Limit  int
	Cursor string
}

// JobPage is a page of jobs, the latest first.
type JobPage struct {
	Jobs   []Job  `json:"jobs"`
	Cursor string `json:"cursor,omitempty"`
}

// AuditQuery narrows the audit.
type AuditQuery struct {
	Topic  string // the DLQ, "" = all
	Actor  string // its name
	Action string
	Since  time.Time
	Until  time.Time
	Limit  int
	Cursor string
}

// AuditPage is a page of audit entries, the latest first.
type AuditPage struct {
	Entries []AuditEntry `json:"entries"`
	Cursor  string       `json:"cursor,omitempty"`
}

func parsePosition(text string) (Position, bool) {
	for i := range len(text) {
		if text[i] != ':' {
			continue
		}
		p, err1 := strconv.ParseInt(text[:i], 10, 32)
		o, err2 := strconv.ParseInt(text[i+1:], 10, 64)
		return Position{int32(p), o}, err1 == nil && err2 == nil && p >= 0 && o >= 0
	}
	return Position{}, false
}

func (p Position) String() string {
	return strconv.Itoa(int(p.Partition)) + ":" + strconv.FormatInt(p.Offset, 10)
}
