package wire

// Size is how many bytes Append adds.
func (f *PluginFrame) Size() int {
	n := sizePacked(f.Acked) + sizePacked(f.Ended)
	if f.Hello != nil {
		n += sizeField(f.Hello.size())
	}
	for i := range f.Verdicts {
		n += sizeField(f.Verdicts[i].size())
	}
	return n
}

// Append writes f to b.
func (f *PluginFrame) Append(b []byte) []byte {
	if f.Hello != nil {
		b = appendLength(b, 1, f.Hello.size())
		b = f.Hello.append(b)
	}
	b = appendPacked(b, 2, f.Acked)
	for i := range f.Verdicts {
		b = appendLength(b, 3, f.Verdicts[i].size())
		b = f.Verdicts[i].append(b)
	}
	return appendPacked(b, 4, f.Ended)
}

func (h *Hello) size() int {
	return sizeText(h.SDK) +
		sizeText(h.Name) +
		sizeText(h.Version) +
		sizeTexts(h.Topics) +
		sizeVarint(uint64(h.MaxRecords)) +
		sizeVarint(h.MaxBytes) +
		sizeBool(h.BeatsMayWait) +
		sizeTexts(h.Capabilities) +
		sizeVarint(uint64(h.Concurrency))
}

func (h *Hello) append(b []byte) []byte {
	b = appendText(b, 1, h.SDK)
	b = appendText(b, 2, h.Name)
	b = appendText(b, 3, h.Version)
	b = appendTexts(b, 4, h.Topics)
	b = appendVarint(b, 5, uint64(h.MaxRecords))
	b = appendVarint(b, 6, h.MaxBytes)
	b = appendBool(b, 7, h.BeatsMayWait)
	b = appendTexts(b, 8, h.Capabilities)
	return appendVarint(b, 9, uint64(h.Concurrency))
}

func (v *Verdict) size() int {
	n := sizeVarint(v.Handle) +
		sizeVarint(uint64(v.Class)) +
		sizeText(v.Reason) +
		sizeText(v.Code) +
		sizeText(v.Message) +
		sizeVarint(v.RetryAfterMS) +
		sizeTexts(v.Causes) +
		sizeText(v.Stack) +
		sizeText(v.Rule) +
		sizeBool(v.Late)
	for i := range v.Emitted {
		n += sizeField(v.Emitted[i].size())
	}
	return n
}

func (v *Verdict) append(b []byte) []byte {
	b = appendVarint(b, 1, v.Handle)
	b = appendVarint(b, 2, uint64(v.Class))
	b = appendText(b, 3, v.Reason)
	b = appendText(b, 4, v.Code)
	b = appendText(b, 5, v.Message)
	b = appendVarint(b, 6, v.RetryAfterMS)
	b = appendTexts(b, 7, v.Causes)
	b = appendText(b, 8, v.Stack)
	b = appendText(b, 9, v.Rule)
	for i := range v.Emitted {
		b = appendLength(b, 10, v.Emitted[i].size())
		b = v.Emitted[i].append(b)
	}
	return appendBool(b, 11, v.Late)
}

func (e *Emit) size() int {
	return sizeText(e.Topic) + sizeBytes(e.Key) + sizeBytes(e.Value) + sizeHeaders(e.Headers)
}

func (e *Emit) append(b []byte) []byte {
	b = appendText(b, 1, e.Topic)
	b = appendBytes(b, 2, e.Key)
	b = appendBytes(b, 3, e.Value)
	return appendHeaders(b, 4, e.Headers)
}

// Size is how many bytes v takes in a frame.
func (v *Verdict) Size() int { return sizeField(v.size()) }
