// Package plugintest runs a handler in a test the way kconsume runs it: by the
// server that plugin.Serve runs, over a gRPC connection, which is in memory.
// Records go out, verdicts come back, deadlines and cancelling and the drain at
// the end are the real ones. There is no Kafka, no process and no network.
//
//	func TestOrders(t *testing.T) {
//		h := plugintest.New(t, handler)
//		h.Deliver(h.JSON(order{ID: "1001"})).WantAck()
//		h.Deliver(h.Record("{")).WantPoison()
//	}
//
// It works in a testing/synctest bubble: there a deadline of 30 s takes no time.
package plugintest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/internal/wire"
)

// TB is what is needed of a *testing.T.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Option changes how a handler is run.
type Option func(*settings)

type settings struct {
	config      plugin.Config
	concurrency int
	timeout     time.Duration
}

// WithConfig gives the handler what main gives to plugin.Serve: classifiers,
// topics, a name, Close.
func WithConfig(c plugin.Config) Option { return func(s *settings) { s.config = c } }

// WithConcurrency bounds the calls that run at once, as --concurrency does;
// default 64.
func WithConcurrency(n int) Option { return func(s *settings) { s.concurrency = n } }

// WithTimeout sets the deadline of a delivery, as --handler-timeout does; default
// 30 s.
func WithTimeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

const (
	defaultConcurrency = 64
	defaultTimeout     = 30 * time.Second
	// patience is how much longer than every deadline an answer may take.
	patience = 10 * time.Second
	// pipeBytes is how much is under way on the connection at most.
	pipeBytes = 1 << 20
)

// Handler is a handler that runs, seen from kconsume's side. It is for the
// test's goroutine; a Delivery's methods too.
type Handler struct {
	t        TB
	settings settings
	stream   grpc.BidiStreamingClient[wire.HostFrame, wire.PluginFrame]
	stop     func() // ends all that New started, once
	received chan struct{}
	offset   int64  // of the next record
	handle   uint64 // of the last delivery
	drained  bool

	mu      sync.Mutex
	pending map[uint64]*Delivery // guarded by mu; without an answer
	late    map[uint64]*Delivery // guarded by mu; answered, and running on
	broken  []error              // guarded by mu; what the handler's end did wrong
}

// New runs h until the test ends. Then it is drained, as by kconsume, if all is
// answered, and else cut off.
func New(t TB, h plugin.Handler, options ...Option) *Handler {
	t.Helper()
	s := settings{concurrency: defaultConcurrency, timeout: defaultTimeout}
	for _, o := range options {
		o(&s)
	}
	if s.config.Name == "" {
		s.config.Name = "test"
	}
	n := &Handler{
		t: t, settings: s, received: make(chan struct{}),
		pending: make(map[uint64]*Delivery), late: make(map[uint64]*Delivery),
	}
	if err := n.connect(h); err != nil {
		t.Fatalf("run the handler: %v", err)
	}
	t.Cleanup(n.end)
	return n
}

// connect starts the server, opens the stream and reads the Hello.
func (h *Handler) connect(handler plugin.Handler) error {
	listener := bufconn.Listen(pipeBytes)
	server := plugin.NewServer(h.settings.config, handler, grpc.WaitForHandlers(true))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///handler", append(wire.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
	)...)
	if err != nil {
		server.Stop()
		<-served
		return err
	}
	ctx, hangUp := context.WithCancel(context.Background())
	h.stop = sync.OnceFunc(func() {
		hangUp()
		conn.Close()
		server.Stop()
		<-served
	})
	if err := h.open(ctx, conn); err != nil {
		h.stop()
		return err
	}
	go h.receive()
	return nil
}

func (h *Handler) open(ctx context.Context, conn *grpc.ClientConn) (err error) {
	if h.stream, err = wire.Deliver(ctx, conn); err != nil {
		return err
	}
	if err := h.stream.SendMsg(&wire.HostFrame{Concurrency: uint32(h.settings.concurrency)}); err != nil {
		return err
	}
	var f wire.PluginFrame
	if err := h.stream.RecvMsg(&f); err != nil {
		return err
	}
	if f.Hello == nil {
		return errors.New("its first frame is no Hello")
	}
	return nil
}

// receive takes answers until the stream ends.
func (h *Handler) receive() {
	defer close(h.received)
	for {
		var f wire.PluginFrame
		err := h.stream.RecvMsg(&f)
		h.mu.Lock()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				h.broken = append(h.broken, fmt.Errorf("the stream ended: %w", err))
			}
			h.mu.Unlock()
			return
		}
		h.take(&f)
		h.mu.Unlock()
	}
}

// take is for whoever holds h.mu.
func (h *Handler) take(f *wire.PluginFrame) {
	for _, handle := range f.Acked {
		h.answer(handle, plugin.Verdict{Class: plugin.ClassAck}, false)
	}
	for i := range f.Verdicts {
		v := &f.Verdicts[i]
		h.answer(v.Handle, verdictOf(v), v.Late)
	}
	for _, handle := range f.Ended {
		d, ok := h.late[handle]
		if !ok {
			h.broken = append(h.broken, fmt.Errorf("delivery %d ended and was not late", handle))
			continue
		}
		delete(h.late, handle)
		close(d.ended)
	}
}

func (h *Handler) answer(handle uint64, v plugin.Verdict, late bool) {
	d, ok := h.pending[handle]
	if !ok {
		h.broken = append(h.broken, fmt.Errorf("delivery %d answered twice, or never made", handle))
		return
	}
	delete(h.pending, handle)
	d.verdict = Verdict{Verdict: v, Late: late, record: d.record, t: h.t}
	close(d.answered)
	if late {
		h.late[handle] = d
	} else {
		close(d.ended)
	}
}

// Drain asks for the end, as kconsume does before a stop and after an upgrade,
// and waits for it: all that was delivered is answered, and plugin.Config.Close
// has been called. Nothing can be delivered any more.
func (h *Handler) Drain() {
	h.t.Helper()
	h.StartDrain()
	if !within(h.received, h.bound()) {
		h.t.Fatalf("the drain did not end: %d deliveries are unanswered", h.unanswered())
	}
	h.check()
}

// StartDrain asks for the end and does not wait for it.
func (h *Handler) StartDrain() {
	h.t.Helper()
	if h.drained {
		return
	}
	h.drained = true
	if err := h.stream.SendMsg(&wire.HostFrame{Drain: true}); err != nil {
		h.t.Fatalf("drain the handler: %v", err)
	}
}

// end is the test's.
func (h *Handler) end() {
	h.t.Helper()
	if h.unanswered() == 0 && !within(h.received, 0) {
		h.Drain()
	}
	h.stop()
	<-h.received
}

func (h *Handler) unanswered() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.pending)
}

// check reports what the handler's end did wrong, once.
func (h *Handler) check() {
	h.t.Helper()
	h.mu.Lock()
	broken := h.broken
	h.broken = nil
	h.mu.Unlock()
	for _, err := range broken {
		h.t.Errorf("handler: %v", err)
	}
}

// bound is when every answer should be there: the calls one after the other, as
// many at once as may be.
func (h *Handler) bound() time.Duration {
	rounds := 1 + h.unanswered()/max(h.settings.concurrency, 1)
	return time.Duration(rounds)*h.settings.timeout + patience
}

// within reports whether done is closed before d has passed.
func within(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return true
	default:
	}
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-done:
		return true
	case <-late.C:
		return false
	}
}
