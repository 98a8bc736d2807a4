package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kconsume/kconsume/plugin/internal/wire"
)

var (
	errSlow   = errors.New("start took too long")
	errHung   = errors.New("it hangs")
	errNoWord = errors.New("it ended the stream without being asked to")
)

// Capabilities of a handler.
const (
	capDebug = "debug" // a person debugs it: it may stand still for as long as that takes
	capBatch = "batch" // one call handles many deliveries
)

// lastFrames is how long answers of a dead process are still read: they are in
// the socket already.
const lastFrames = time.Second

// process is one life of a handler: launched, said its Hello, and to be ended
// and closed by whoever launched it. After a crash another one is launched;
// nothing of a process is used twice.
type process struct {
	cfg    *Config
	child  *child
	client *goplugin.Client
	conn   *grpc.ClientConn
	hello  Hello
	pace   pace // Host.mu guards its share
	began  time.Time
	// warnings say what is odd about its file.
	warnings []string
	byItself bool // its start failed since it exited
	batches  bool // one call of it may handle many deliveries
	file     fileState

	deliver grpc.BidiStreamingClient[wire.HostFrame, wire.PluginFrame]
	control grpc.BidiStreamingClient[wire.Beat, wire.Beat]
	calls   context.Context // of both streams
	hangUp  context.CancelFunc

	// broken ends when the process cannot be used any more; its cause says why.
	// The streams go on until it has been ended, for the answers still in them.
	broken context.Context
	fail   context.CancelCauseFunc

	// weary is closed when as many calls run on past their deadline as may run
	// at once: the next ones would take the places of others.
	weary    chan struct{}
	loops    sync.WaitGroup
	received chan struct{} // closed at the end of the receiving loop
	over     chan struct{} // closed when it has ended and what it had is taken back
	wake     chan struct{} // holds one: there may be something to send
	beaten   atomic.Uint64 // the last beat that was sent
	echoed   atomic.Uint64 // the last beat that came back
	draining atomic.Bool   // it is to end its streams
	silent   atomic.Bool   // it ended its stream of beats, draining

	number  int           // guarded by Host.mu; from 1, of all processes of the host
	version int           // guarded by Host.mu; as Host.version when it was adopted
	hand    *hand         // guarded by Host.mu; as all in it
	stalled time.Duration // guarded by Host.mu; how long we, not it, stood still
	round   int           // guarded by Host.mu; the last one in which it was nudged
}

// launch starts a process and waits for its Hello, no longer than StartTimeout.
// name, unless it is empty, is what it has to call itself. The error is one line that says what is wrong with the file or the handler.
func launch(ctx context.Context, cfg *Config, name string) (*process, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.StartTimeout, errSlow)
	defer cancel()
	warnings, err := examine(cfg.Path, cfg.Trust)
	if err != nil {
		return nil, err
	}
	var certs *certificates
	if cfg.TLS {
		if certs, err = makeCertificates(); err != nil {
			return nil, err
		}
	}
	var pinned *os.File
	if cfg.SHA256 != "" {
		if pinned, err = openPinned(cfg.Path, cfg.SHA256); err != nil {
			return nil, err
		}
	}
	file := stat(cfg.Path) // before it is run: what comes later is another one
	p := newProcess(cfg, pinned, certs)
	p.file = file
	keep := context.AfterFunc(ctx, p.child.kill) // which unblocks all that follows
	if err = p.connect(); err == nil {
		err = p.open()
	}
	if !keep() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		p.byItself = status.Code(err) == codes.Unavailable && p.child.gone(min(cfg.Grace, lastFrames))
		p.close()
		return nil, fmt.Errorf("start handler %s: %w", cfg.Path, p.explain(context.Cause(ctx), err))
	}
	if err := p.answersTo(name); err != nil {
		p.dismiss()
		return nil, err
	}
	p.warnings = warnings
	return p, nil
}

func newProcess(cfg *Config, pinned *os.File, certs *certificates) *process {
	p := &process{
		cfg: cfg, child: newChild(cfg, pinned, certs), began: time.Now(), hand: newHand(),
		received: make(chan struct{}), over: make(chan struct{}), wake: make(chan struct{}, 1), weary: make(chan struct{}),
	}
	p.calls, p.hangUp = context.WithCancel(context.Background())
	p.broken, p.fail = context.WithCancelCause(context.Background())
	stdout, stderr := p.child.out.stream("stdout"), p.child.out.stream("stderr")
	p.client = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: goplugin.HandshakeConfig{
			ProtocolVersion: wire.ProtocolVersion, MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue,
		},
		VersionedPlugins: map[int]goplugin.PluginSet{wire.ProtocolVersion: {wire.PluginName: connection{}}},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		RunnerFunc: func(_ hclog.Logger, spec *exec.Cmd, socket string) (runner.Runner, error) {
			p.child.prepare(spec.Env, socket)
			return p.child, nil
		},
		SkipHostEnv:      true,
		TLSConfig:        certs.clientTLS(),
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: cfg.SocketDir},
		StartTimeout:     cfg.StartTimeout + time.Minute, // never the one that counts: see launch
		Logger:           hclog.NewNullLogger(),
		SyncStdout:       stdout,
		SyncStderr:       stderr,
		GRPCDialOptions: append(wire.DialOptions(),
			grpc.WithIdleTimeout(0), // an idle connection would be closed, and the handler with it
			grpc.WithChainStreamInterceptor(tolerateStdio)),
	})
	return p
}

// connection is what go-plugin dispenses: the bare connection.
type connection struct {
	goplugin.NetRPCUnsupportedPlugin
}

func (connection) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error {
	return errors.New("the host serves nothing")
}

func (connection) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, c *grpc.ClientConn) (any, error) {
	return c, nil
}

// tolerateStdio lets no failure of go-plugin's stdio stream end the start: it
// would forget to close the connection. A handler without it writes to its
// pipes, which we read anyway.
func tolerateStdio(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil && method == "/plugin.GRPCStdio/StreamStdio" {
		return nil, status.Error(codes.Unimplemented, err.Error())
	}
	return s, err
}

func (p *process) connect() error {
	protocol, err := p.client.Client()
	if err != nil {
		return err
	}
	conn, err := protocol.Dispense(wire.PluginName)
	if err != nil {
		return err
	}
	p.conn = conn.(*grpc.ClientConn)
	return nil
}

// open begins both streams and reads the Hello.
func (p *process) open() (err error) {
	if p.deliver, err = wire.Deliver(p.calls, p.conn); err != nil {
		return err
	}
	if p.control, err = wire.Control(p.calls, p.conn); err != nil {
		return err
	}
	// The error of a send is only that the stream has ended: receiving tells why.
	if err := p.deliver.SendMsg(&wire.HostFrame{Concurrency: uint32(p.cfg.each())}); err != nil && err != io.EOF {
		return err
	}
	var f wire.PluginFrame
	if err := p.deliver.RecvMsg(&f); err != nil {
		return err
	}
	if f.Hello == nil {
		return errors.New("its first frame is not a Hello: use a kconsume SDK")
	}
	p.hello = helloOf(f.Hello)
	if p.hello.Name == "" {
		p.hello.Name = p.cfg.Name
	}
	p.batches = slices.Contains(p.hello.Capabilities, capBatch)
	p.pace = pace{concurrency: p.cfg.each(), calls: p.hello.calls(p.cfg.each()), grace: p.cfg.Grace, maxRecords: p.hello.MaxRecords, maxBytes: p.hello.MaxBytes, debugged: slices.Contains(p.hello.Capabilities, capDebug)}
	return nil
}

// ending is how a process ended.
type ending struct {
	why    error
	cause  Cause
	killed bool // it did not end by itself
	// recalled: it was told to end since too many of its calls are late.
	recalled bool
}

// end makes sure that the process is gone, gently unless it hangs, and frees
// all it had.
func (p *process) end() ending {
	cause := context.Cause(p.broken)
	hung := errors.Is(cause, errHung)
	// A crash breaks the streams a moment before the exit is known.
	crashed := cause != nil && !hung && p.child.gone(min(p.cfg.Grace, time.Second))
	killed := hung || !crashed && !p.leave()
	p.child.kill()
	<-p.child.exited
	wait := time.NewTimer(lastFrames)
	select {
	case <-p.received:
	case <-wait.C:
	}
	wait.Stop()
	p.close()
	e := ending{why: errors.New(p.child.exit()), cause: p.child.cause(), killed: killed}
	if words, ok := strings.CutPrefix(e.why.Error(), exitText(0)); ok && crashed && !p.draining.Load() {
		e.why = errors.New(exitText(0) + " without being asked to" + words)
	}
	switch {
	case hung:
		e.cause = CauseHang
	case cause != nil && (!crashed || errors.Is(cause, errNoWord)):
		e.cause = CauseProtocol
	}
	if cause != nil && (!crashed || errors.Is(cause, errNoWord)) {
		e.why = fmt.Errorf("%w (%s)", cause, p.child.exit())
	}
	return e
}

// leave lets the process exit by itself and reports whether it did.
func (p *process) leave() bool {
	p.child.release()
	return p.child.gone(p.cfg.Grace)
}

// answersTo refuses a process of another handler: its file stands in the wrong
// place. An empty name is anybody's.
func (p *process) answersTo(name string) error {
	if name == "" || p.hello.Name == name {
		return nil
	}
	return fmt.Errorf("start handler %s: it calls itself %q, not %q: it is another handler's file", p.cfg.Path, p.hello.Name, name)
}

// dismiss ends a process that was never used.
func (p *process) dismiss() {
	p.leave()
	p.close()
}

// close frees everything; a process that still runs is killed.
func (p *process) close() {
	p.child.kill()
	if p.child.ID() != "" {
		<-p.child.exited
	}
	p.hangUp()
	p.loops.Wait()
	p.fail(nil)
	p.client.Kill() // else go-plugin keeps goroutines
	p.child.close()
}
