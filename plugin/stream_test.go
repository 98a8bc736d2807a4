package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/kconsume/kconsume/plugin/internal/wire"
)

// peer is the host's end of a real connection to a handler in this process.
type peer struct {
	grpc.BidiStreamingClient[wire.HostFrame, wire.PluginFrame]
	conn  *grpc.ClientConn
	hello *wire.Hello
	hang  context.CancelFunc // ends the stream the hard way
}

func connect(t testing.TB, c Config, h Handler) *grpc.ClientConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(nil)
	s.RegisterService(wire.ServiceDesc(), &server{config: c, handler: h})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	conn, err := grpc.NewClient("unix:"+path, append(wire.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		s.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return conn
}

func dial(t testing.TB, c Config, h Handler, concurrency uint32) *peer {
	t.Helper()
	conn := connect(t, c, h)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stream, err := wire.Deliver(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{BidiStreamingClient: stream, conn: conn, hang: cancel}
	p.send(t, &wire.HostFrame{Concurrency: concurrency})
	first := p.receive(t)
	if first.Hello == nil {
		t.Fatal("the first frame has no Hello")
	}
	p.hello = first.Hello
	return p
}

func (p *peer) send(t testing.TB, f *wire.HostFrame) {
	t.Helper()
	if err := p.SendMsg(f); err != nil {
		t.Fatal(err)
	}
}

func (p *peer) receive(t testing.TB) *wire.PluginFrame {
	t.Helper()
	f := new(wire.PluginFrame)
	if err := p.RecvMsg(f); err != nil {
		t.Fatal(err)
	}
	return f
}

// verdicts reads until n deliveries are answered with a verdict.
func (p *peer) verdicts(t *testing.T, n int) map[uint64]wire.Verdict {
	t.Helper()
	all := map[uint64]wire.Verdict{}
	for len(all) < n {
		for _, v := range p.receive(t).Verdicts {
			all[v.Handle] = v
		}
	}
	return all
}

func TestHello(t *testing.T) {
	p := dial(t, Config{Name: "orders", Version: "1.\xff", Topics: []string{"a", "b"}}, nil, 1)
	h := p.hello
	if h.SDK != sdk || h.Name != "orders" || h.Version != "1.\xff" || !slices.Equal(h.Topics, []string{"a", "b"}) || h.BeatsMayWait {
		t.Errorf("hello: %+v", h)
	}
}

// Null and empty stay apart, any bytes arrive as they are, each neighbour is
// handled, and what the handler says in bytes comes back so.
func TestBytesOnTheWire(t *testing.T) {
	got := make(chan Message, 16)
	p := dial(t, Config{Name: "hex", Version: "\xff"}, HandlerFunc(func(_ context.Context, m *Message) error {
		got <- *m
		if m.Offset == 100 {
			m.Emit(Record{Topic: "out", Key: []byte{}, Headers: []Header{{"n", nil}, {"e", []byte{}}}})
			return nil
		}
		if m.Offset >= 5 {
			return fmt.Errorf("outer \xff: %w", Permanent(errors.New("bad \xff\xfe")))
		}
		return nil
	}), 1)
	records := []wire.Record{
		{Headers: []wire.Header{{Key: "x\xff\xfe", Value: []byte("v")}}},
		{Headers: []wire.Header{{Key: "", Value: []byte{2}}, {Key: "", Value: nil}, {Key: "e", Value: []byte{}}}},
		{Key: []byte{0xFF, 0xFE}, Value: []byte{0, 0xFF}},
		{Key: []byte{}, Value: []byte{}},
		{},
		{Value: bytes.Repeat([]byte{0xFE}, 1000), TimeMS: -1},
		{TimeMS: math.MinInt64},
		{TimeMS: math.MaxInt64, Partition: -1},
	}
	for i := range records {
		r := &records[i]
		r.Handle, r.Topic, r.Offset, r.Attempt, r.MaxAttempts, r.Stage = uint64(i+1), "t\xff", int64(i), 2, 3, "retry.5s"
	}
	records = append(records, wire.Record{Handle: wire.MaxHandle, ID: "given", Topic: "t", Offset: 100})
	p.send(t, &wire.HostFrame{Records: records})

	acked, verdicts := []uint64(nil), map[uint64]wire.Verdict{}
	for len(acked)+len(verdicts) < len(records) {
		f := p.receive(t)
		acked = append(acked, f.Acked...)
		for _, v := range f.Verdicts {
			verdicts[v.Handle] = v
		}
	}
	slices.Sort(acked)
	if !slices.Equal(acked, []uint64{1, 2, 3, 4, 5}) {
		t.Errorf("acknowledged %v", acked)
	}
	for h := uint64(6); h <= 8; h++ {
		v := verdicts[h]
		if v.Class != wire.ClassPermanent || v.Message != "outer \xff: bad \xff\xfe" || !slices.Equal(v.Causes, []string{"bad \xff\xfe"}) {
			t.Errorf("verdict on %d: %+v", h, v)
		}
	}
	e := verdicts[wire.MaxHandle]
	if e.Class != wire.ClassAck || len(e.Emitted) != 1 || e.Emitted[0].Key == nil || e.Emitted[0].Value != nil ||
		e.Emitted[0].Headers[0].Value != nil || e.Emitted[0].Headers[1].Value == nil {
		t.Errorf("emitted: %+v", e)
	}
	for range records {
		m := <-got
		if m.Offset == 100 {
			if m.ID != "given" {
				t.Errorf("id %q", m.ID)
			}
			continue
		}
		r := records[m.Offset]
		if !same(m.Key, r.Key) || !same(m.Value, r.Value) || m.Topic != r.Topic || m.Stage != r.Stage || m.Time.UnixMilli() != r.TimeMS ||
			m.Partition != r.Partition || m.Attempt != 2 || m.MaxAttempts != 3 {
			t.Errorf("record %d arrived as %+v", m.Offset, m)
		}
		if want := string(AppendID(nil, r.Topic, r.Partition, r.Offset, r.TimeMS)); m.ID != want {
			t.Errorf("id %q, want %q", m.ID, want)
		}
		if len(m.Headers) != len(r.Headers) {
			t.Fatalf("record %d has %d headers, want %d", m.Offset, len(m.Headers), len(r.Headers))
		}
		for i, h := range m.Headers {
			if h.Key != r.Headers[i].Key || !same(h.Value, r.Headers[i].Value) {
				t.Errorf("record %d: header %q=%v, want %q=%v", m.Offset, h.Key, h.Value, r.Headers[i].Key, r.Headers[i].Value)
			}
		}
	}
}

// same keeps null and empty apart.
func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func TestLateOnTheWire(t *testing.T) {
	release := make(chan struct{})
	p := dial(t, Config{}, HandlerFunc(func(context.Context, *Message) error {
		<-release
		return nil
	}), 1)
	p.send(t, &wire.HostFrame{Records: []wire.Record{{Handle: 9, Topic: "t", TimeoutMS: 1}}})
	v := p.verdicts(t, 1)[9]
	if !v.Late || v.Class != wire.ClassTransient || v.Reason != string(ReasonTimeout) {
		t.Errorf("late answer: %+v", v)
	}
	close(release)
	if f := p.receive(t); !slices.Equal(f.Ended, []uint64{9}) || f.Acked != nil || f.Verdicts != nil {
		t.Errorf("after the call's end: %+v", f)
	}
}

func TestCancelOnTheWire(t *testing.T) {
	running := make(chan struct{})
	p := dial(t, Config{}, HandlerFunc(func(ctx context.Context, m *Message) error {
		close(running)
		<-ctx.Done()
		return Permanent(ctx.Err())
	}), 1)
	p.send(t, &wire.HostFrame{Records: []wire.Record{{Handle: 1, Topic: "t"}, {Handle: 2, Topic: "t"}}})
	<-running
	p.send(t, &wire.HostFrame{Cancel: []uint64{2, 1}})
	for h, v := range p.verdicts(t, 2) {
		if v.Class != wire.ClassUnspecified || v.Rule != RuleCancelled {
			t.Errorf("cancelled %d: %+v", h, v)
		}
	}
}

func TestDrainOnTheWire(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *peer, []wire.Record){
		"drain frame": func(t *testing.T, p *peer, r []wire.Record) { p.send(t, &wire.HostFrame{Records: r, Drain: true}) },
		"end of the host's side": func(t *testing.T, p *peer, r []wire.Record) {
			p.send(t, &wire.HostFrame{Records: r})
			if err := p.CloseSend(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			p := dial(t, Config{}, HandlerFunc(func(context.Context, *Message) error {
				<-release
				return nil
			}), 2)
			end(t, p, []wire.Record{{Handle: 1, Topic: "t"}, {Handle: 2, Topic: "t"}, {Handle: 3, Topic: "t"}})
			close(release)
			var acked []uint64
			for {
				f := new(wire.PluginFrame)
				err := p.RecvMsg(f)
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				acked = append(acked, f.Acked...)
			}
			if slices.Sort(acked); !slices.Equal(acked, []uint64{1, 2, 3}) {
				t.Errorf("acknowledged %v before the end", acked)
			}
		})
	}
}

// A host that is gone cancels what runs.
func TestHostGone(t *testing.T) {
	running, ended := make(chan struct{}), make(chan error, 1)
	p := dial(t, Config{}, HandlerFunc(func(ctx context.Context, _ *Message) error {
		close(running)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil
	}), 1)
	p.send(t, &wire.HostFrame{Records: []wire.Record{{Handle: 1, Topic: "t"}}})
	<-running
	p.hang()
	if err := <-ended; err != context.Canceled {
		t.Errorf("the call ended with %v", err)
	}
}

func TestControlEchoes(t *testing.T) {
	conn := connect(t, Config{}, nil)
	s, err := wire.Control(context.Background(), conn)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []uint64{1, 2, math.MaxUint64, 0} {
		if err := s.SendMsg(&wire.Beat{Seq: n}); err != nil {
			t.Fatal(err)
		}
		var b wire.Beat
		if err := s.RecvMsg(&b); err != nil || b.Seq != n {
			t.Errorf("beat %d came back as %d, %v", n, b.Seq, err)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := s.RecvMsg(new(wire.Beat)); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}

// A record far larger than gRPC's own limit passes.
func TestLargeRecord(t *testing.T) {
	size := make(chan int, 1)
	p := dial(t, Config{}, HandlerFunc(func(_ context.Context, m *Message) error {
		size <- len(m.Value)
		return nil
	}), 1)
	p.send(t, &wire.HostFrame{Records: []wire.Record{{Handle: 1, Topic: "t", Value: make([]byte, 9<<20)}}})
	if f := p.receive(t); len(f.Acked) != 1 || <-size != 9<<20 {
		t.Errorf("answer: %+v", f)
	}
}

// Many large verdicts go in frames of bounded size, each answered once.
func TestVerdictsAreSplit(t *testing.T) {
	p := dial(t, Config{}, HandlerFunc(func(_ context.Context, m *Message) error {
		m.Emit(Record{Topic: "out", Value: make([]byte, frameBytes/3)})
		return nil
	}), 4)
	const n = 20
	f := &wire.HostFrame{}
	for i := range n {
		f.Records = append(f.Records, wire.Record{Handle: uint64(i), Topic: "t"})
	}
	p.send(t, f)
	seen := map[uint64]bool{}
	for len(seen) < n {
		f := p.receive(t)
		if f.Size() > frameBytes {
			t.Errorf("a frame of %d bytes", f.Size())
		}
		for _, v := range f.Verdicts {
			if seen[v.Handle] || len(v.Emitted) != 1 {
				t.Errorf("handle %d answered twice, or without its record: %d", v.Handle, len(v.Emitted))
			}
			seen[v.Handle] = true
		}
	}
}

func TestOversizeVerdict(t *testing.T) {
	shared := make([]byte, maxVerdictBytes/2)
	w, _ := wireVerdict(&Answer{Handle: 3, Verdict: Verdict{Class: ClassAck, Emitted: []Record{{Value: shared}, {Value: shared}}}})
	if w.Handle != 3 || w.Class != wire.ClassPermanent || w.Emitted != nil || w.Message == "" {
		t.Errorf("too much emitted: class %d, %q", w.Class, w.Message)
	}
}

// A host that speaks something else ends its own stream, with a reason.
func TestBrokenFrame(t *testing.T) {
	conn := connect(t, Config{}, nil)
	s, err := conn.NewStream(context.Background(), &wire.ServiceDesc().Streams[0], "/"+wire.ServiceName+"/Deliver", grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		t.Fatal(err)
	}
	broken := []byte{0x0a, 0x7f}
	if err := s.SendMsg(&broken); err != nil {
		t.Fatal(err)
	}
	var hello []byte
	if err := s.RecvMsg(&hello); err != nil {
		t.Fatal(err)
	}
	if err := s.RecvMsg(&hello); status.Code(err) == codes.OK {
		t.Errorf("a broken frame ended the stream with %v", err)
	}
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}
