package wire

import (
	"bytes"
	"math"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/kconsume/kconsume/plugin/internal/wire/pb"
)

// toPB is what the generated code holds for a frame of ours.
func toPB(f *HostFrame) *pb.HostFrame {
	p := &pb.HostFrame{Drain: f.Drain, Cancel: f.Cancel}
	if f.Concurrency != 0 {
		p.Start = &pb.Start{Concurrency: f.Concurrency}
	}
	for i := range f.Records {
		r := &f.Records[i]
		id := []byte(r.ID)
		if r.ID == "" {
			id = AppendID(nil, r.Topic, r.Partition, r.Offset, r.TimeMS)
		}
		p.Records = append(p.Records, &pb.Record{
			Handle: r.Handle, Id: id, Topic: []byte(r.Topic), Partition: r.Partition, Offset: r.Offset, TimeMs: r.TimeMS,
			Key: r.Key, Value: r.Value, Headers: headersPB(r.Headers), Attempt: r.Attempt, MaxAttempts: r.MaxAttempts,
			Stage: []byte(r.Stage), DeadlineMs: r.TimeoutMS, Trace: []byte(r.Trace), TraceState: []byte(r.TraceState),
		})
	}
	return p
}

func headersPB(list []Header) (all []*pb.Header) {
	for _, h := range list {
		all = append(all, &pb.Header{Key: []byte(h.Key), Value: h.Value})
	}
	return all
}

func textsPB(list []string) (all [][]byte) {
	for _, s := range list {
		all = append(all, []byte(s))
	}
	return all
}

func pluginPB(f *PluginFrame) *pb.PluginFrame {
	p := &pb.PluginFrame{Acked: f.Acked, Ended: f.Ended}
	if h := f.Hello; h != nil {
		p.Hello = &pb.Hello{
			Concurrency: h.Concurrency,
			Sdk:         []byte(h.SDK), Name: []byte(h.Name), Version: []byte(h.Version), Topics: textsPB(h.Topics),
			MaxRecords: h.MaxRecords, MaxBytes: h.MaxBytes, BeatsMayWait: h.BeatsMayWait, Capabilities: textsPB(h.Capabilities),
		}
	}
	for i := range f.Verdicts {
		v := &f.Verdicts[i]
		q := &pb.Verdict{
			Handle: v.Handle, Class: pb.Verdict_Class(v.Class), Reason: []byte(v.Reason), Code: []byte(v.Code),
			Message: []byte(v.Message), RetryAfterMs: v.RetryAfterMS, Causes: textsPB(v.Causes), Stack: []byte(v.Stack),
			Rule: []byte(v.Rule), Late: v.Late,
		}
		for _, e := range v.Emitted {
			q.Emitted = append(q.Emitted, &pb.Emit{Topic: []byte(e.Topic), Key: e.Key, Value: e.Value, Headers: headersPB(e.Headers)})
		}
		p.Verdicts = append(p.Verdicts, q)
	}
	return p
}

var big = bytes.Repeat([]byte{0xFF, 0x00, 'x'}, 400)

func hostFrames() map[string]*HostFrame {
	return map[string]*HostFrame{
		"empty": {},
		"start": {Concurrency: math.MaxUint32},
		"drain": {Drain: true, Cancel: []uint64{0, 1, MaxHandle, math.MaxUint64}},
		"all fields": {
			Concurrency: 64, Drain: true, Cancel: []uint64{7},
			Records: []Record{
				{
					Handle: MaxHandle, ID: "an id", Topic: "orders", Partition: 3, Offset: 1 << 40, TimeMS: 1700000000000,
					Key: []byte("k"), Value: big, Headers: []Header{{"a", []byte("1")}, {"a", []byte("2")}, {"b", big}},
					Attempt: 2, MaxAttempts: 3, Stage: "retry.5s", TimeoutMS: 30000, Trace: "00-ab-cd-01", TraceState: "v=1",
				},
				{Handle: 1, Topic: "orders", Value: []byte("small")},
				{Handle: 2, Topic: "other", Value: big},
			},
		},
		"null and empty": {Records: []Record{
			{Topic: "t"},
			{Topic: "t", Key: []byte{}, Value: []byte{}},
			{Topic: "t", Headers: []Header{{"n", nil}, {"e", []byte{}}, {"", []byte("v")}, {"", nil}}},
		}},
		"extremes": {Records: []Record{
			{Topic: "t", Partition: math.MaxInt32, Offset: math.MaxInt64, TimeMS: math.MaxInt64, Attempt: math.MaxUint32, TimeoutMS: math.MaxUint32},
			{Topic: "t", Partition: math.MinInt32, Offset: math.MinInt64, TimeMS: math.MinInt64},
			{Topic: "", Partition: -1, Offset: -1, TimeMS: -1},
		}},
		"not UTF-8": {Records: []Record{
			{Topic: "t\xff", Stage: "\xc3\x28", Key: []byte{0xFF, 0xFE}, Value: []byte{0, 0xFF}, Headers: []Header{{"x\xff\xfe", []byte{2}}}},
		}},
	}
}

func pluginFrames() map[string]*PluginFrame {
	return map[string]*PluginFrame{
		"empty": {},
		"hello": {Hello: &Hello{
			Concurrency: 3,
			SDK:         "go/1", Name: "orders", Version: "1\xff", Topics: []string{"a", "", "b"},
			MaxRecords: 1000, MaxBytes: math.MaxUint64, BeatsMayWait: true, Capabilities: []string{"x"},
		}},
		"empty hello": {Hello: &Hello{}},
		"acked":       {Acked: []uint64{0, 1, 127, 128, MaxHandle, math.MaxUint64}, Ended: []uint64{3, 2, 1}},
		"verdicts": {Verdicts: []Verdict{
			{Handle: 5, Class: ClassTransient, Reason: "timeout", Code: "\xc3\x28", Message: "bad \xff\xfe", RetryAfterMS: 1500, Late: true},
			{Handle: 6, Class: ClassPermanent, Causes: []string{"outer", "", "inner"}, Stack: "goroutine 1", Rule: "panic"},
			{Handle: 7, Class: ClassAck, Emitted: []Emit{
				{Topic: "out", Value: []byte{}, Headers: []Header{{"n", nil}, {"e", []byte{}}}},
				{Key: big, Value: nil},
			}},
			{Handle: 8, Class: math.MinInt32},
			{},
		}},
	}
}

func TestHostFrameIsProtobuf(t *testing.T) {
	for name, f := range hostFrames() {
		t.Run(name, func(t *testing.T) {
			want := toPB(f)
			got := new(pb.HostFrame)
			encoded := f.Encode()
			if err := proto.Unmarshal(encoded.Materialize(), got); err != nil {
				t.Fatalf("protobuf refuses the frame: %v", err)
			}
			if !proto.Equal(got, want) {
				t.Errorf("protobuf reads\n%v\nwant\n%v", got, want)
			}
			if n := proto.Size(want); encoded.Len() != n {
				t.Errorf("frame takes %d bytes, protobuf's %d", encoded.Len(), n)
			}
			b, err := proto.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			var decoded HostFrame
			if err := decoded.Decode(b); err != nil {
				t.Fatalf("decode protobuf's frame: %v", err)
			}
			if back := toPB(&decoded); !proto.Equal(back, want) {
				t.Errorf("decoded\n%v\nwant\n%v", back, want)
			}
		})
	}
}

func TestPluginFrameIsProtobuf(t *testing.T) {
	for name, f := range pluginFrames() {
		t.Run(name, func(t *testing.T) {
			want := pluginPB(f)
			got := new(pb.PluginFrame)
			encoded := f.Append(nil)
			if err := proto.Unmarshal(encoded, got); err != nil {
				t.Fatalf("protobuf refuses the frame: %v", err)
			}
			if !proto.Equal(got, want) {
				t.Errorf("protobuf reads\n%v\nwant\n%v", got, want)
			}
			if len(encoded) != f.Size() {
				t.Errorf("frame takes %d bytes, Size tells %d", len(encoded), f.Size())
			}
			b, err := proto.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			var decoded PluginFrame
			if err := decoded.Decode(b); err != nil {
				t.Fatalf("decode protobuf's frame: %v", err)
			}
			if back := pluginPB(&decoded); !proto.Equal(back, want) {
				t.Errorf("decoded\n%v\nwant\n%v", back, want)
			}
		})
	}
}

func TestRecordSize(t *testing.T) {
	for name, f := range hostFrames() {
		for i := range f.Records {
			alone := HostFrame{Records: f.Records[i : i+1]}
			if got, want := f.Records[i].Size(), alone.Encode().Len(); got != want {
				t.Errorf("%s, record %d: Size %d, encoded %d", name, i, got, want)
			}
		}
	}
}

// A frame that is used again must hold nothing of what was in it.
func TestHostFrameReuse(t *testing.T) {
	var f HostFrame
	for range 2 {
		for name, g := range hostFrames() {
			if err := f.Decode(g.Encode().Materialize()); err != nil {
				t.Fatal(err)
			}
			if got, want := toPB(&f), toPB(g); !proto.Equal(got, want) {
				t.Errorf("%s: decoded\n%v\nwant\n%v", name, got, want)
			}
		}
	}
	var built HostFrame
	built.Add(2).Headers[1] = Header{"k", []byte("v")}
	built.Add(1).Headers[0] = Header{"l", nil}
	built.Reset()
	if r := built.Add(2); r.Headers[1].Key != "" || len(built.Records) != 1 {
		t.Errorf("after Reset the frame holds %+v", built.Records)
	}
}

// Large values are not copied, small ones are.
func TestEncodeAliasesLargeValues(t *testing.T) {
	small, large := bytes.Repeat([]byte("s"), aliasFrom-1), bytes.Repeat([]byte("l"), aliasFrom)
	f := HostFrame{Records: []Record{{Topic: "t", Value: small}, {Topic: "t", Value: large}}}
	encoded := f.Encode()
	small[0], large[0] = 'S', 'L'
	var got HostFrame
	if err := got.Decode(encoded.Materialize()); err != nil {
		t.Fatal(err)
	}
	if got.Records[0].Value[0] != 's' {
		t.Error("a small value was not copied")
	}
	if got.Records[1].Value[0] != 'L' {
		t.Error("a large value was copied")
	}
}

// The next field's bytes must be out of reach of an append to this one's.
func TestDecodedBytesCannotBeAppendedInto(t *testing.T) {
	sent := HostFrame{Records: []Record{{Topic: "t", Key: []byte("key"), Value: []byte("value"), Headers: []Header{{"h", []byte("header")}}}}}
	var f HostFrame
	if err := f.Decode(sent.Encode().Materialize()); err != nil {
		t.Fatal(err)
	}
	r := &f.Records[0]
	_ = append(r.Key, "XXXXXXXX"...)
	_ = append(r.Value, "XXXXXXXX"...)
	if string(r.Value) != "value" || string(r.Headers[0].Value) != "header" {
		t.Errorf("an append wrote into its neighbour: value %q, header %q", r.Value, r.Headers[0].Value)
	}
}

func TestAppendID(t *testing.T) {
	for _, c := range []struct {
		topic        string
		partition    int32
		offset, time int64
		want         string
	}{
		{"orders", 3, 42, 1700000000000, "orders/3/42@1700000000000"},
		{"t", 0, 0, -1, "t/0/0@-1"},
		{"", math.MinInt32, math.MinInt64, math.MaxInt64, "/-2147483648/-9223372036854775808@9223372036854775807"},
		{"a\xff", 10, 9, 100, "a\xff/10/9@100"},
	} {
		got := string(AppendID(nil, c.topic, c.partition, c.offset, c.time))
		if got != c.want {
			t.Errorf("AppendID: %q, want %q", got, c.want)
		}
		if n := SizeID(c.topic, c.partition, c.offset, c.time); n != len(c.want) {
			t.Errorf("SizeID of %q: %d, want %d", c.want, n, len(c.want))
		}
	}
}

func TestCodecFallsBackToProtobuf(t *testing.T) {
	for _, v := range []any{&Beat{Seq: math.MaxUint64}, &Beat{}} {
		b, err := Codec{}.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var foreign pb.Beat
		if err := (Codec{}).Unmarshal(b, &foreign); err != nil {
			t.Fatal(err)
		}
		if foreign.Seq != v.(*Beat).Seq {
			t.Errorf("protobuf reads beat %d of %d", foreign.Seq, v.(*Beat).Seq)
		}
		back, err := Codec{}.Marshal(&foreign)
		if err != nil {
			t.Fatal(err)
		}
		var own Beat
		if err := (Codec{}).Unmarshal(back, &own); err != nil || own != *v.(*Beat) {
			t.Errorf("read protobuf's beat: %v, %v", own, err)
		}
	}
	if _, err := (Codec{}).Marshal(1); err == nil {
		t.Error("a number was encoded")
	}
}

func TestDecodeRefusesBrokenFrames(t *testing.T) {
	sent := HostFrame{Records: []Record{{Topic: "t", Value: []byte("value")}}}
	whole := sent.Encode().Materialize()
	for n := 1; n < len(whole); n++ {
		var f HostFrame
		if err := f.Decode(whole[:n]); err == nil {
			t.Errorf("a frame cut to %d of %d bytes was accepted", n, len(whole))
		}
	}
}

func FuzzHostFrame(f *testing.F) {
	for _, frame := range hostFrames() {
		f.Add(frame.Encode().Materialize())
	}
	f.Add([]byte{0x22, 0x02, 0x80})             // packed number cut short
	f.Add([]byte{0x1a, 0, 0x1a, 2, 8, 5, 0x20}) // start twice, a tag without value
	f.Fuzz(func(t *testing.T, b []byte) {
		var ours HostFrame
		theirs := new(pb.HostFrame)
		err, theirErr := ours.Decode(b), proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, theirs)
		if (err == nil) != (theirErr == nil) {
			t.Fatalf("we say %v, protobuf says %v", err, theirErr)
		}
		if err != nil {
			return
		}
		mirror := toPB(&ours)
		for i := range mirror.Records {
			mirror.Records[i].Id = []byte(ours.Records[i].ID) // toPB makes one up for an empty id
		}
		if theirs.Start.GetConcurrency() == 0 {
			theirs.Start = nil
		}
		got, err := proto.MarshalOptions{Deterministic: true}.Marshal(mirror)
		if err != nil {
			t.Fatal(err)
		}
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(theirs)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("we read\n%x\nprotobuf reads\n%x", got, want)
		}
	})
}

func FuzzPluginFrame(f *testing.F) {
	for _, frame := range pluginFrames() {
		f.Add(frame.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var ours PluginFrame
		theirs := new(pb.PluginFrame)
		err, theirErr := ours.Decode(b), proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, theirs)
		if (err == nil) != (theirErr == nil) {
			t.Fatalf("we say %v, protobuf says %v", err, theirErr)
		}
		if err != nil {
			return
		}
		got, err := proto.MarshalOptions{Deterministic: true}.Marshal(pluginPB(&ours))
		if err != nil {
			t.Fatal(err)
		}
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(theirs)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("we read\n%x\nprotobuf reads\n%x", got, want)
		}
	})
}

// transported cuts b into pieces of 16 KiB, as the transport hands them over.
func transported(b []byte) (s mem.BufferSlice) {
	for len(b) > 0 {
		n := min(len(b), 16<<10)
		s = append(s, mem.SliceBuffer(b[:n]))
		b = b[n:]
	}
	return s
}

// BenchmarkWire is one frame of 100 records of 1 KiB, and of its answer.
func BenchmarkWire(b *testing.B) {
	const records = 100
	value := bytes.Repeat([]byte("x"), 1024)
	key, trace := []byte("customer-0123456"), []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	fill := func(f *HostFrame) {
		f.Reset()
		for i := range records {
			r := f.Add(1)
			r.Handle, r.Topic, r.Partition, r.Offset, r.TimeMS = uint64(1<<20+i), "orders.confirmed", 3, int64(i), 1700000000000
			r.Key, r.Value = key, value
			r.Headers[0] = Header{"traceparent", trace}
			r.Attempt, r.MaxAttempts, r.Stage, r.TimeoutMS = 1, 3, "main", 30000
		}
	}
	var f HostFrame
	fill(&f)
	encoded := f.Encode().Materialize()
	var acked PluginFrame
	for i := range records {
		acked.Acked = append(acked.Acked, uint64(1<<20+i))
	}
	answer := acked.Append(nil)

	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			fill(&f)
			f.Encode()
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := f.Decode(transported(encoded).Materialize()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encode answer", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = acked.Append(make([]byte, 0, acked.Size()))
		}
	})
	b.Run("decode answer", func(b *testing.B) {
		var g PluginFrame
		b.ReportAllocs()
		for b.Loop() {
			if err := g.Decode(answer); err != nil {
				b.Fatal(err)
			}
		}
	})
}
