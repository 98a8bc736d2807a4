package wire

// Decode reads a frame into f, whatever f held. Acked, Ended and what emitted
// records hold are new or views of b: they belong to the reader and are not
// touched again.
func (f *PluginFrame) Decode(b []byte) error {
	*f = PluginFrame{}
	s := scan{rest: b}
	for s.next() {
		switch {
		case s.blob(1):
			if f.Hello == nil {
				f.Hello = new(Hello)
			}
			s.err = f.Hello.decode(s.bytes)
		case s.list(2):
			f.Acked = s.numbers(f.Acked)
		case s.blob(3):
			f.Verdicts = append(f.Verdicts, Verdict{})
			s.err = f.Verdicts[len(f.Verdicts)-1].decode(s.bytes)
		case s.list(4):
			f.Ended = s.numbers(f.Ended)
		}
	}
	return s.err
}

func (h *Hello) decode(b []byte) error {
	s := scan{rest: b}
	for s.next() {
		switch {
		case s.blob(1):
			h.SDK = string(s.bytes)
		case s.blob(2):
			h.Name = string(s.bytes)
		case s.blob(3):
			h.Version = string(s.bytes)
		case s.blob(4):
			h.Topics = append(h.Topics, string(s.bytes))
		case s.varint(5):
			h.MaxRecords = uint32(s.number)
		case s.varint(6):
			h.MaxBytes = s.number
		case s.varint(7):
			h.BeatsMayWait = s.number != 0
		case s.blob(8):
			h.Capabilities = append(h.Capabilities, string(s.bytes))
		case s.varint(9):
			h.Concurrency = uint32(s.number)
		}
	}
	return s.err
}

func (v *Verdict) decode(b []byte) error {
	s := scan{rest: b}
	for s.next() {
		switch {
		case s.varint(1):
			v.Handle = s.number
		case s.varint(2):
			v.Class = int32(s.number)
		case s.blob(3):
			v.Reason = string(s.bytes)
		case s.blob(4):
			v.Code = string(s.bytes)
		case s.blob(5):
			v.Message = string(s.bytes)
		case s.varint(6):
			v.RetryAfterMS = s.number
		case s.blob(7):
			v.Causes = append(v.Causes, string(s.bytes))
		case s.blob(8):
			v.Stack = string(s.bytes)
		case s.blob(9):
			v.Rule = string(s.bytes)
		case s.blob(10):
			v.Emitted = append(v.Emitted, Emit{})
			s.err = v.Emitted[len(v.Emitted)-1].decode(s.bytes)
		case s.varint(11):
			v.Late = s.number != 0
		}
	}
	return s.err
}

func (e *Emit) decode(b []byte) error {
	s := scan{rest: b}
	for s.next() {
		switch {
		case s.blob(1):
			e.Topic = string(s.bytes)
		case s.blob(2):
			e.Key = s.bytes
		case s.blob(3):
			e.Value = s.bytes
		case s.blob(4):
			var h Header
			s.err = h.decode(s.bytes, nil)
			e.Headers = append(e.Headers, h)
		}
	}
	return s.err
}
