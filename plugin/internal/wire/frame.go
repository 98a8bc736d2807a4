package wire

// HostFrame is what the host sends. A frame is reused by whoever owns it: Reset
// keeps its memory. It must not be copied once used.
type HostFrame struct {
	Records []Record
	// Drain marks the last frame: answer what you have, then end the stream.
	Drain bool
	// Concurrency bounds the handler's calls that run at once; it is told in the
	// first frame, 0 = not told.
	Concurrency uint32
	// Cancel are the handles whose calls are to be cancelled, and still answered.
	Cancel []uint64

	headers      []Header // backs the headers of all records
	ids          []byte   // of all records while they are decoded
	sizes        []int    // of the records while they are encoded
	topic, stage string   // the last ones, to share one string among records
	names        []string // of the last headers, by position, to the same end
}

// Record is one delivery. Key, Value and a header's value keep null (nil) and
// empty apart.
type Record struct {
	Handle uint64
	// ID may be left empty: then AppendID writes it straight into the frame.
	ID                   string
	Topic                string
	Partition            int32
	Offset               int64
	TimeMS               int64 // unix ms; -1 = none
	Key, Value           []byte
	Headers              []Header
	Attempt, MaxAttempts uint32
	Stage                string
	TimeoutMS            uint32 // from the start of the handler's call; 0 = none
	Trace, TraceState    string // W3C traceparent and tracestate; empty = none
}

// Header is one header of a record, its name any bytes.
type Header struct {
	Key   string
	Value []byte
}

// PluginFrame is what the handler sends.
type PluginFrame struct {
	// Hello is set in the first frame only.
	Hello    *Hello
	Acked    []uint64
	Verdicts []Verdict
	Ended    []uint64
}

// Hello is what a handler says of itself. Its texts are any bytes.
type Hello struct {
	SDK, Name, Version string
	Topics             []string
	MaxRecords         uint32 // in flight; 0 = no limit of the handler's own
	MaxBytes           uint64 // in flight; 0 = no limit of the handler's own
	BeatsMayWait       bool   // one thread: a busy handler delays beats
	Capabilities       []string
	Concurrency        uint32 // calls that it runs at once at most; 0 = as many as Start says
}

// Classes of a verdict. Any other number is no verdict at all.
const (
	ClassUnspecified = 0
	ClassAck         = 1
	ClassTransient   = 2
	ClassPermanent   = 3
	ClassDrop        = 4
)

// Verdict is the answer to one record that is not a plain acknowledgement. Its
// texts are any bytes.
type Verdict struct {
	Handle                uint64
	Class                 int32
	Reason, Code, Message string
	RetryAfterMS          uint64
	Causes                []string
	Stack, Rule           string
	Emitted               []Emit
	Late                  bool
}

// Emit is a record that a handler sends along with its acknowledgement.
type Emit struct {
	Topic      string
	Key, Value []byte
	Headers    []Header
}

// Beat is one heartbeat.
type Beat struct{ Seq uint64 }

// Reset empties f for its next use and lets go of all it pointed to.
func (f *HostFrame) Reset() {
	clear(f.Records)
	clear(f.headers)
	f.Records, f.headers, f.Cancel, f.ids = f.Records[:0], f.headers[:0], f.Cancel[:0], f.ids[:0]
	f.Drain, f.Concurrency = false, 0
}

// Add appends an empty record with room for n headers and returns it. It stays
// valid until the next Add.
func (f *HostFrame) Add(n int) *Record {
	f.Records = append(f.Records, Record{})
	r := &f.Records[len(f.Records)-1]
	if n > 0 {
		h := len(f.headers)
		f.headers = append(f.headers, make([]Header, n)...)
		r.Headers = f.headers[h : h+n : h+n]
	}
	return r
}
