package wire

import "google.golang.org/grpc/mem"

// aliasFrom is the size from which a value goes out as a buffer of its own;
// smaller ones are cheaper to copy.
const aliasFrom = 256

// Size is how many bytes r takes in a frame, next to nothing else.
func (r *Record) Size() int { return sizeField(r.size()) }

func (r *Record) sizeID() int {
	if r.ID != "" {
		return len(r.ID)
	}
	return SizeID(r.Topic, r.Partition, r.Offset, r.TimeMS)
}

func (r *Record) size() int {
	return sizeVarint(r.Handle) +
		sizeField(r.sizeID()) +
		sizeText(r.Topic) +
		sizeVarint(uint64(r.Partition)) +
		sizeVarint(uint64(r.Offset)) +
		sizeVarint(uint64(r.TimeMS)) +
		sizeBytes(r.Key) +
		sizeBytes(r.Value) +
		sizeHeaders(r.Headers) +
		sizeVarint(uint64(r.Attempt)) +
		sizeVarint(uint64(r.MaxAttempts)) +
		sizeText(r.Stage) +
		sizeVarint(uint64(r.TimeoutMS)) +
		sizeText(r.Trace) +
		sizeText(r.TraceState)
}

func (r *Record) appendID(b []byte) []byte {
	if r.ID != "" {
		return appendText(b, 2, r.ID)
	}
	b = appendLength(b, 2, r.sizeID())
	return AppendID(b, r.Topic, r.Partition, r.Offset, r.TimeMS)
}

// appendHead writes what stands before the value, size being r.size().
func (r *Record) appendHead(b []byte, size int) []byte {
	b = appendLength(b, 1, size)
	b = appendVarint(b, 1, r.Handle)
	b = r.appendID(b)
	b = appendText(b, 3, r.Topic)
	b = appendVarint(b, 4, uint64(r.Partition))
	b = appendVarint(b, 5, uint64(r.Offset))
	b = appendVarint(b, 6, uint64(r.TimeMS))
	return appendBytes(b, 7, r.Key)
}

// appendTail writes what stands behind the value.
func (r *Record) appendTail(b []byte) []byte {
	b = appendHeaders(b, 9, r.Headers)
	b = appendVarint(b, 10, uint64(r.Attempt))
	b = appendVarint(b, 11, uint64(r.MaxAttempts))
	b = appendText(b, 12, r.Stage)
	b = appendVarint(b, 13, uint64(r.TimeoutMS))
	b = appendText(b, 14, r.Trace)
	return appendText(b, 15, r.TraceState)
}

// Encode writes f. Values of aliasFrom bytes or more are not copied but become
// buffers of the result: the transport reads them after the call that sends
// the frame has returned. They may be changed or used again only when their
// record has been answered or the connection is closed. The frame itself can be
// reset and used again at once.
func (f *HostFrame) Encode() mem.BufferSlice {
	size, aliased := f.measure()
	out := pieces{
		own:     make([]byte, 0, size),
		slices:  make([]mem.SliceBuffer, 0, 2*aliased+1),
		buffers: make(mem.BufferSlice, 0, 2*aliased+1),
	}
	for i := range f.Records {
		r := &f.Records[i]
		out.own = r.appendHead(out.own, f.sizes[i])
		if len(r.Value) >= aliasFrom {
			out.own = appendLength(out.own, 8, len(r.Value))
			out.cut()
			out.add(r.Value)
		} else {
			out.own = appendBytes(out.own, 8, r.Value)
		}
		out.own = r.appendTail(out.own)
	}
	out.own = appendBool(out.own, 2, f.Drain)
	if f.Concurrency != 0 {
		out.own = appendLength(out.own, 3, sizeVarint(uint64(f.Concurrency)))
		out.own = appendVarint(out.own, 1, uint64(f.Concurrency))
	}
	out.own = appendPacked(out.own, 4, f.Cancel)
	out.cut()
	return out.buffers
}

// measure fills f.sizes and tells how many bytes of the frame are not aliased
// and how many values are.
func (f *HostFrame) measure() (size, aliased int) {
	f.sizes = f.sizes[:0]
	for i := range f.Records {
		r := &f.Records[i]
		n := r.size()
		f.sizes = append(f.sizes, n)
		size += sizeField(n)
		if len(r.Value) >= aliasFrom {
			size -= len(r.Value)
			aliased++
		}
	}
	size += sizeBool(f.Drain) + sizePacked(f.Cancel)
	if f.Concurrency != 0 {
		size += sizeField(sizeVarint(uint64(f.Concurrency)))
	}
	return size, aliased
}

// pieces joins bytes of its own with aliased ones. Its slices are made once, at
// full capacity, because buffers point into them: a pointer to a SliceBuffer is
// a Buffer without an allocation each.
type pieces struct {
	own     []byte
	from    int // where own goes on after the last cut
	slices  []mem.SliceBuffer
	buffers mem.BufferSlice
}

func (p *pieces) cut() {
	if len(p.own) > p.from {
		p.add(p.own[p.from:len(p.own):len(p.own)])
		p.from = len(p.own)
	}
}

func (p *pieces) add(b []byte) {
	p.slices = append(p.slices, b)
	p.buffers = append(p.buffers, &p.slices[len(p.slices)-1])
}
