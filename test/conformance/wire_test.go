package conformance

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kconsume/kconsume/plugin"
)

const serviceName = "/kconsume.handler.v1.Handler/"

// line is a handler without the host: frames go to it exactly as they are made
// here.
type line struct {
	testing.TB
	process   *exec.Cmd
	conn      *grpc.ClientConn
	handshake string
	socket    string // the folder that it was given
}

// connect starts a handler and connects to it.
func connect(t testing.TB, path string, args ...string) *line {
	t.Helper()
	l := launch(t, path, nil, args...)
	l.dial(l.address(), insecure.NewCredentials())
	return l
}

// launch starts a handler, with certificates where there are some. At the end of
// the test its lifeline ends.
func launch(t testing.TB, path string, certificates []byte, args ...string) *line {
	t.Helper()
	dir := config(t, path).SocketDir
	l := &line{TB: t, socket: dir, process: exec.CommandContext(t.Context(), path, args...)}
	l.process.Env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", cookieEnv, "PLUGIN_UNIX_SOCKET_DIR=" + dir}
	var stderr journal
	l.process.Stderr = &stderr
	end, life := pipe(t)
	l.process.ExtraFiles = []*os.File{end}
	if certificates != nil {
		r, w := pipe(t)
		if _, err := w.Write(certificates); err != nil {
			t.Fatal(err)
		}
		w.Close()
		l.process.ExtraFiles = append(l.process.ExtraFiles, r)
		l.process.Env = append(l.process.Env, "KCONSUME_TLS_FD=4")
	}
	stdout, err := l.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.process.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range l.process.ExtraFiles {
		f.Close()
	}
	t.Cleanup(func() {
		life.Close()
		l.process.Wait()
		if t.Failed() {
			t.Logf("the handler's stderr:\n%s", &stderr)
		}
	})
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if strings.Count(lines.Text(), "|") > 3 {
			l.handshake = lines.Text()
			return l
		}
	}
	t.Fatal("it ended without a handshake")
	return nil
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

// address is what the handshake tells.
func (l *line) address() string { return "unix:" + strings.Split(l.handshake, "|")[3] }

func (l *line) dial(address string, security credentials.TransportCredentials) {
	l.Helper()
	conn, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(security),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(bare{}), grpc.MaxCallRecvMsgSize(256<<20)),
		grpc.WithInitialWindowSize(4<<20), grpc.WithInitialConnWindowSize(4<<20))
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { conn.Close() })
	l.conn = conn
}

func (l *line) open(method string) grpc.ClientStream {
	l.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	l.Cleanup(cancel)
	s, err := l.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, serviceName+method)
	if err != nil {
		l.Fatal(err)
	}
	return s
}

// bare is a codec of messages that are bytes already.
type bare struct{}

func (bare) Name() string                    { return "proto" }
func (bare) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (bare) Unmarshal(b []byte, v any) error { *v.(*[]byte) = slices.Clone(b); return nil }

// replies are what a handler has answered. A plain acknowledgement is a verdict
// with the class of one.
type replies struct {
	hello  int
	answer map[uint64]plugin.Verdict
	late   map[uint64]bool
	ended  map[uint64]bool
	frames int
}

// await reads frames until enough has come.
func (l *line) await(s grpc.ClientStream, enough func(replies) bool) replies {
	l.Helper()
	got := replies{answer: map[uint64]plugin.Verdict{}, late: map[uint64]bool{}, ended: map[uint64]bool{}}
	for !enough(got) {
		if err := l.receive(s, &got); err != nil {
			l.Fatalf("the stream ended with %v, after %+v", err, got)
		}
	}
	return got
}

// awaitEnd reads on to the end of the stream.
func (l *line) awaitEnd(s grpc.ClientStream, got replies) {
	l.Helper()
	for {
		err := l.receive(s, &got)
		if err == io.EOF {
			return
		}
		if err != nil {
			l.Fatalf("the stream ended with %v, after %+v", err, got)
		}
	}
}

func (l *line) receive(s grpc.ClientStream, got *replies) error {
	l.Helper()
	var b []byte
	if err := s.RecvMsg(&b); err != nil {
		return err
	}
	got.frames++
	answer := func(h uint64, v plugin.Verdict, late bool) {
		if _, twice := got.answer[h]; twice {
			l.Errorf("%d is answered twice", h)
		}
		got.answer[h], got.late[h] = v, late
	}
	return eachField(b, func(n protowire.Number, value []byte, number uint64) error {
		list := []uint64{number}
		if value != nil && (n == 2 || n == 4) {
			list = packed(value)
		}
		switch n {
		case 1:
			got.hello++
		case 2:
			for _, h := range list {
				answer(h, plugin.Verdict{Class: plugin.ClassAck}, false)
			}
		case 3:
			h, v, late, err := readVerdict(value)
			answer(h, v, late)
			return err
		case 4:
			for _, h := range list {
				if !got.late[h] || got.ended[h] {
					l.Errorf("%d has ended, but was not late, or twice", h)
				}
				got.ended[h] = true
			}
		}
		return nil
	})
}

// readVerdict reads what the tests look at.
func readVerdict(b []byte) (handle uint64, v plugin.Verdict, late bool, err error) {
	err = eachField(b, func(n protowire.Number, value []byte, number uint64) error {
		switch n {
		case 1:
			handle = number
		case 2:
			v.Class = plugin.Class(number)
		case 3:
			v.Reason = plugin.Reason(value)
		case 4:
			v.Code = string(value)
		case 5:
			v.Message = string(value)
		case 6:
			v.RetryAfter = time.Duration(number) * time.Millisecond
		case 9:
			v.Rule = string(value)
		case 10:
			v.Emitted = append(v.Emitted, plugin.Record{})
			return eachField(value, func(n protowire.Number, value []byte, _ uint64) error {
				if n == 3 {
					v.Emitted[len(v.Emitted)-1].Value = value
				}
				return nil
			})
		case 11:
			late = number != 0
		}
		return nil
	})
	return handle, v, late, err
}

// eachField calls visit with a field's bytes, or with its number and nil.
func eachField(b []byte, visit func(protowire.Number, []byte, uint64) error) error {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		var value []byte
		var number uint64
		switch kind {
		case protowire.VarintType:
			number, size = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			value, size = protowire.ConsumeBytes(b)
		default:
			return fmt.Errorf("field %d has the wire type %d", n, kind)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		if err := visit(n, value, number); err != nil {
			return err
		}
	}
	return nil
}

func packed(b []byte) (list []uint64) {
	for len(b) > 0 {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return nil
		}
		list, b = append(list, v), b[n:]
	}
	return list
}

func send(t testing.TB, s grpc.ClientStream, frame []byte) {
	t.Helper()
	if err := s.SendMsg(&frame); err != nil {
		t.Fatal(err)
	}
}

// handshake is one line, and tells where it listens.
func handshake(t *testing.T, path string) {
	l := connect(t, path)
	f := strings.Split(l.handshake, "|")
	if len(f) < 5 || f[0] != "1" || f[1] != "1" || f[2] != "unix" || f[4] != "grpc" || strings.Join(f[5:], "") != "" {
		t.Errorf("the handshake is %q", l.handshake)
	}
	if dir := filepath.Dir(f[3]); dir != l.socket && filepath.Dir(dir) != l.socket {
		t.Errorf("the socket %s is not in %s", f[3], l.socket)
	}
}

// frames: Hello comes unasked, unknown handles are passed over, a drain is
// answered and ends the stream.
func frames(t *testing.T, path string) {
	l := connect(t, path)
	s := l.open("Deliver")
	got := l.await(s, func(got replies) bool { return got.hello == 1 })
	send(t, s, appendStart(nil, 8))
	send(t, s, appendCancel(nil, 99))
	var frame []byte
	const n = 300
	first := uint64(1<<53 - n)
	for i := range uint64(n) {
		frame = appendRecord(frame, first+i, nil, fmt.Appendf(nil, "%s", []string{"ack", "drop x"}[i%2]))
	}
	send(t, s, appendDrain(frame))
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	l.awaitEnd(s, got)
	for i := range uint64(n) {
		want := []plugin.Class{plugin.ClassAck, plugin.ClassDrop}[i%2]
		if v, ok := got.answer[first+i]; !ok || v.Class != want {
			t.Errorf("%d: %+v", first+i, v)
		}
	}
	if len(got.answer) != n || got.hello != 1 || len(got.ended) > 0 {
		t.Errorf("%d answers, %d hellos, %d ends", len(got.answer), got.hello, len(got.ended))
	}
}

// halfClosed: a host that ends its side without a drain gets its answers.
func halfClosed(t *testing.T, path string) {
	l := connect(t, path)
	s := l.open("Deliver")
	send(t, s, appendRecord(appendRecord(appendStart(nil, 0), 1, []byte("x"), []byte("ack")), 2, nil, []byte("echo")))
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	got := l.await(s, func(got replies) bool { return got.hello == 1 })
	l.awaitEnd(s, got)
	if len(got.answer) != 2 || got.answer[1].Class != plugin.ClassAck || got.answer[2].Class != plugin.ClassAck {
		t.Errorf("answers %+v", got.answer)
	}
}

// beats come back as they are, also while a call runs.
func beats(t *testing.T, path string) {
	l := connect(t, path)
	deliver, control := l.open("Deliver"), l.open("Control")
	begun := t.TempDir() + "/begun"
	send(t, deliver, appendRecord(appendStart(nil, 1), 1, nil, []byte("block "+begun)))
	awaitFile(t, begun)
	for _, seq := range []uint64{1, 2, 1 << 63} {
		beat := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), seq)
		send(t, control, beat)
		var echo []byte
		if err := control.RecvMsg(&echo); err != nil || !bytes.Equal(echo, beat) {
			t.Fatalf("the beat %x comes back as %x, %v", beat, echo, err)
		}
	}
}
