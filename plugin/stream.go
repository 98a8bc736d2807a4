package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/kconsume/kconsume/plugin/internal/wire"
)

const (
	sdk = "go/1"
	// frameBytes is about the most that goes into one frame of verdicts; a larger
	// verdict goes alone.
	frameBytes = 1 << 20
	// maxVerdictBytes is the most that one verdict may take, its emitted records
	// included.
	maxVerdictBytes = wire.MaxFrameBytes / 2
)

// server is the handler's end of the wire. Each Deliver stream has a pool of
// its own.
type server struct {
	config  Config
	handler Handler
	debug   bool // hold the records back for a debugger, and forget deadlines
	closing sync.Once
}

// Deliver answers what the host sends, until the host asks for a drain, ends
// its side, or is gone. One goroutine receives, another sends.
func (s *server) Deliver(stream grpc.BidiStreamingServer[wire.HostFrame, wire.PluginFrame]) error {
	if err := stream.SendMsg(&wire.PluginFrame{Hello: s.hello()}); err != nil {
		return fmt.Errorf("send hello: %w", err)
	}
	var frame wire.HostFrame
	if err := stream.RecvMsg(&frame); err != nil {
		return endOfStream(err)
	}
	if s.debug {
		awaitDebugger(stream.Context(), s.config.Name)
	}
	pool := NewPool(s.handler, PoolConfig{
		Handler:     s.config.Name + "@" + s.config.Version,
		Concurrency: int(frame.Concurrency),
		Classifiers: s.config.Classifiers,
	})
	// When the host is gone nobody waits for answers, whatever else goes on.
	closed := make(chan struct{})
	stop := context.AfterFunc(stream.Context(), func() {
		defer close(closed)
		pool.Close()
	})
	sent := make(chan error, 1)
	go func() { sent <- send(stream, pool.Answers()) }()

	err := s.receive(stream, pool, &frame)
	if err == nil {
		pool.drain()
	} else {
		pool.Close()
	}
	err = errors.Join(err, <-sent)
	if !stop() {
		<-closed
	}
	pool.Close()
	if err == nil {
		s.closing.Do(func() { goodbye(s.config, closeBound) })
	}
	return err
}

// Control echoes beats.
func (s *server) Control(stream grpc.BidiStreamingServer[wire.Beat, wire.Beat]) error {
	var beat wire.Beat
	for {
		if err := stream.RecvMsg(&beat); err != nil {
			return endOfStream(err)
		}
		if err := stream.SendMsg(&beat); err != nil {
			return fmt.Errorf("send beat: %w", err)
		}
	}
}

func (s *server) hello() *wire.Hello {
	h := &wire.Hello{SDK: sdk, Name: s.config.Name, Version: s.config.Version, Topics: s.config.Topics}
	if b, ok := s.handler.(*batches); ok {
		h.Capabilities, h.Concurrency = append(h.Capabilities, "batch"), uint32(b.config.Concurrency)
	}
	if s.debug {
		h.Capabilities, h.BeatsMayWait = append(h.Capabilities, "debug"), true
	}
	return h
}

// receive hands frames to the pool, the one at hand first. nil means that no
// more will come and what came is to be answered.
func (s *server) receive(stream grpc.ServerStream, pool *Pool, frame *wire.HostFrame) error {
	for {
		pool.Deliver(s.deliveries(frame))
		if len(frame.Cancel) > 0 {
			pool.Cancel(frame.Cancel)
		}
		drain := frame.Drain
		frame.Reset() // or an idle stream keeps the last frame's bytes
		if drain {
			return nil
		}
		if err := stream.RecvMsg(frame); err != nil {
			return endOfStream(err)
		}
	}
}

// endOfStream: the host ending its side is no error.
func endOfStream(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("receive frame: %w", err)
}

// send sends answers until there are no more. After an error it only reads on,
// so that the pool can end.
func send(stream grpc.ServerStream, answers <-chan Answers) error {
	var failed error
	for a := range answers {
		if failed == nil {
			failed = sendAnswers(stream, &a)
		}
	}
	return failed
}

// sendAnswers sends what was answered, in more than one frame where it is much.
// Verdicts go before ended: a handle is never in ended before its answer.
func sendAnswers(stream grpc.ServerStream, a *Answers) error {
	frame := wire.PluginFrame{Acked: a.Acked}
	size := 0
	for i := range a.Verdicts {
		v, n := wireVerdict(&a.Verdicts[i])
		if size += n; size > frameBytes && len(frame.Verdicts) > 0 {
			if err := stream.SendMsg(&frame); err != nil {
				return fmt.Errorf("send answers: %w", err)
			}
			frame, size = wire.PluginFrame{}, n
		}
		frame.Verdicts = append(frame.Verdicts, v)
	}
	frame.Ended = a.Ended
	if err := stream.SendMsg(&frame); err != nil {
		return fmt.Errorf("send answers: %w", err)
	}
	return nil
}

// deliveries are a frame's records. Their bytes are the frame's buffer's.
func (s *server) deliveries(f *wire.HostFrame) []Delivery {
	if len(f.Records) == 0 {
		return nil
	}
	list := make([]Delivery, len(f.Records))
	headers := headerRoom(f)
	for i := range f.Records {
		r := &f.Records[i]
		d := &list[i]
		d.Handle = r.Handle
		if !s.debug {
			d.Timeout = time.Duration(r.TimeoutMS) * time.Millisecond
		}
		m := &d.Message
		m.ID = r.ID
		m.Topic, m.Partition, m.Offset = r.Topic, r.Partition, r.Offset
		m.Key, m.Value = r.Key, r.Value
		m.Time = time.UnixMilli(r.TimeMS).UTC()
		m.Attempt, m.MaxAttempts = int(r.Attempt), int(r.MaxAttempts)
		m.Stage = r.Stage
		m.Trace = Trace{r.Trace, r.TraceState}
		if n := len(r.Headers); n > 0 {
			from := len(headers)
			for _, h := range r.Headers {
				headers = append(headers, Header(h))
			}
			m.Headers = headers[from : from+n : from+n]
		}
	}
	return list
}

func headerRoom(f *wire.HostFrame) []Header {
	n := 0
	for i := range f.Records {
		n += len(f.Records[i].Headers)
	}
	return make([]Header, 0, n)
}

// wireVerdict is an answer on the wire, and its size there. One too large for
// any frame becomes a verdict about that.
func wireVerdict(a *Answer) (wire.Verdict, int) {
	v := &a.Verdict
	w := wire.Verdict{
		Handle:       a.Handle,
		Class:        int32(v.Class),
		Reason:       string(v.Reason),
		Code:         v.Code,
		Message:      v.Message,
		RetryAfterMS: uint64(v.RetryAfter.Milliseconds()),
		Causes:       v.Causes,
		Stack:        v.Stack,
		Rule:         v.Rule,
		Emitted:      wireEmitted(v.Emitted),
		Late:         a.Late,
	}
	n := w.Size()
	if n <= maxVerdictBytes {
		return w, n
	}
	w = wire.Verdict{
		Handle:  a.Handle,
		Class:   wire.ClassPermanent,
		Reason:  string(ReasonPermanent),
		Message: fmt.Sprintf("emitted records take %d bytes, at most %d fit; emit less for one record", n, maxVerdictBytes),
		Rule:    "emitted-size",
		Late:    a.Late,
	}
	return w, w.Size()
}

func wireEmitted(records []Record) []wire.Emit {
	if len(records) == 0 {
		return nil
	}
	list := make([]wire.Emit, len(records))
	for i, r := range records {
		list[i] = wire.Emit{Topic: r.Topic, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			list[i].Headers = append(list[i].Headers, wire.Header(h))
		}
	}
	return list
}
