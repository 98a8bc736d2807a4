package wire

// Decode reads a frame into f, which it resets first. Keys, values and headers
// are views of b, which then belongs to them; ids of one frame share a string.
func (f *HostFrame) Decode(b []byte) error {
	f.Reset()
	s := scan{rest: b}
	for s.next() {
		switch {
		case s.blob(1):
			f.Records = append(f.Records, Record{})
			s.err = f.decodeRecord(&f.Records[len(f.Records)-1], s.bytes)
		case s.varint(2):
			f.Drain = s.number != 0
		case s.blob(3):
			s.err = f.decodeStart(s.bytes)
		case s.list(4):
			f.Cancel = s.numbers(f.Cancel)
		}
	}
	f.cutIDs()
	return s.err
}

func (f *HostFrame) decodeStart(b []byte) error {
	s := scan{rest: b}
	for s.next() {
		if s.varint(1) {
			f.Concurrency = uint32(s.number)
		}
	}
	return s.err
}

// decodeRecord leaves the id's bytes in f.ids, and its end in f.sizes.
func (f *HostFrame) decodeRecord(r *Record, b []byte) error {
	headers, ids := len(f.headers), len(f.ids)
	s := scan{rest: b}
	for s.next() {
		switch {
		case s.varint(1):
			r.Handle = s.number
		case s.blob(2):
			f.ids = append(f.ids[:ids], s.bytes...)
		case s.blob(3):
			r.Topic = same(&f.topic, s.bytes)
		case s.varint(4):
			r.Partition = int32(s.number)
		case s.varint(5):
			r.Offset = int64(s.number)
		case s.varint(6):
			r.TimeMS = int64(s.number)
		case s.blob(7):
			r.Key = s.bytes
		case s.blob(8):
			r.Value = s.bytes
		case s.blob(9):
			var h Header
			s.err = h.decode(s.bytes, f.name(len(f.headers)-headers))
			f.headers = append(f.headers, h)
		case s.varint(10):
			r.Attempt = uint32(s.number)
		case s.varint(11):
			r.MaxAttempts = uint32(s.number)
		case s.blob(12):
			r.Stage = same(&f.stage, s.bytes)
		case s.varint(13):
			r.TimeoutMS = uint32(s.number)
		case s.blob(14):
			r.Trace = string(s.bytes)
		case s.blob(15):
			r.TraceState = string(s.bytes)
		}
	}
	if n := len(f.headers); n > headers {
		r.Headers = f.headers[headers:n:n]
	}
	if len(f.Records) == 1 {
		f.sizes = f.sizes[:0]
	}
	f.sizes = append(f.sizes, len(f.ids))
	return s.err
}

// cutIDs gives each record its part of the frame's ids, as one string.
func (f *HostFrame) cutIDs() {
	all, from := string(f.ids), 0
	for i := range f.Records {
		to := f.sizes[i]
		f.Records[i].ID, from = all[from:to], to
	}
}

// sharedNames bounds the names that are remembered.
const sharedNames = 32

// name is where the name of a record's i-th header is remembered; nil = nowhere.
func (f *HostFrame) name(i int) *string {
	if i >= sharedNames {
		return nil
	}
	if i == len(f.names) {
		f.names = append(f.names, "")
	}
	return &f.names[i]
}

// same is b as a string, the last one where they are equal: the records of a
// frame mostly share their topic and stage.
func same(last *string, b []byte) string {
	if last == nil {
		return string(b)
	}
	if string(b) != *last {
		*last = string(b)
	}
	return *last
}
