package plugin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/kconsume/kconsume/plugin/internal/wire"
)

// Exit codes of a handler's process, as in sysexits.h.
const (
	exitUsage    = 64
	exitSoftware = 70
)

// Config says what a handler is.
type Config struct {
	// Name is what --handler calls it, and its file is named kconsume-handler-NAME.
	Name    string
	Version string
	// Topics are those it is made for; for people to read.
	Topics []string
	// Classifiers tell what the handler's own errors mean; see Classify.
	Classifiers []Classifier
	// Close, if set, is called once, when kconsume has asked for the end and the
	// last record is answered: to flush and to say goodbye. It has closeBound, 3 s.
	// It is not called where the process is cut off, so nothing may depend on it.
	Close func()
}

const closeBound = 3 * time.Second

// Serve runs h for the kconsume that started this process. It is main's last
// call: it ends the process, at the latest when kconsume has ended. Whatever
// the process writes to os.Stdout or os.Stderr from here on goes to kconsume's
// log. Interrupts and SIGTERM are left to kconsume, which drains the handler
// before it stops it.
//
// Unless the environment sets them, GOGC becomes 400 and GOMEMLIMIT a quarter
// of the memory there is: the heap of most handlers is tiny, and collecting it
// all the time is what costs most.
//
// Given the argument --debug, or KCONSUME_HANDLER_DEBUG=1, it waits for a
// debugger before it takes the first record, tells on stderr how to attach one,
// and runs calls without a deadline. From kconsume that is --handler-arg --debug.
func Serve(c Config, h Handler) {
	if os.Getenv(wire.CookieKey) != wire.CookieValue {
		fmt.Fprint(os.Stderr, usage(c, os.Args[0]))
		os.Exit(exitUsage)
	}
	handshake := os.Stdout
	os.Stdout = os.Stderr // or a stray print would stand between the host and the handshake
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM)
	tuneMemory()
	lifeline, err := openLifeline()
	var secure *tls.Config
	if err == nil {
		secure, err = openTLS()
	}
	if err == nil {
		err = serve(c, h, lifeline, handshake, secure)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "serve handler %q: %v\n", c.Name, err)
		os.Exit(exitSoftware)
	}
	os.Exit(0)
}

// usage is what a person reads who starts a handler by hand.
func usage(c Config, file string) string {
	topics := "TOPIC"
	about := ""
	if len(c.Topics) > 0 {
		topics = c.Topics[0]
		about = " for " + strings.Join(c.Topics, ", ")
	}
	if !strings.ContainsRune(file, filepath.Separator) {
		file = "./" + file
	}
	return fmt.Sprintf(`%[1]s %[2]s is a kconsume handler%[3]s. It does nothing by itself: kconsume starts it.

Install it:   install -m 0755 %[4]s /usr/local/libexec/kconsume/handlers/kconsume-handler-%[1]s
Run it:       kconsume run --brokers HOST:9092 --group GROUP --topic %[5]s --handler %[1]s
Try it out:   kconsume dev --handler %[4]s
Inspect it:   kconsume plugin inspect %[4]s
Debug it:     kconsume dev --handler %[4]s --handler-arg --debug
`, c.Name, c.Version, about, file, topics)
}

// serve tells the host where to connect and serves until the lifeline ends or
// the host asks for the end.
//
// go-plugin's test mode is its mode without side effects: outside it, go-plugin
// replaces os.Stdout and os.Stderr by pipes that nobody reads before the host
// connects, so that a handler that prints much stands still. All that the mode
// leaves out is here: the cookie, the handshake, the signals.
func serve(c Config, h Handler, lifeline, handshake *os.File, secure *tls.Config) error {
	if h == nil || c.Name == "" {
		return errors.New("check what plugin.Serve was given: Config.Name and the handler are needed")
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	listening := make(chan *goplugin.ReattachConfig, 1)
	ended := make(chan struct{})
	go goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: goplugin.HandshakeConfig{
			ProtocolVersion:  wire.ProtocolVersion,
			MagicCookieKey:   wire.CookieKey,
			MagicCookieValue: wire.CookieValue,
		},
		Plugins:     goplugin.PluginSet{wire.PluginName: &service{server: &server{config: c, handler: h, debug: debugWanted()}}},
		GRPCServer:  newServer,
		TLSProvider: func() (*tls.Config, error) { return secure, nil },
		Logger:      hclog.NewNullLogger(),
		Test:        &goplugin.ServeTestConfig{Context: ctx, ReattachConfigCh: listening, CloseCh: ended},
	})
	select {
	case at := <-listening:
		go watchLifeline(lifeline, at.Addr)
		if _, err := fmt.Fprintln(handshake, handshakeLine(at.Addr)); err != nil {
			return fmt.Errorf("tell the host where to connect: %w", err)
		}
	case <-ended:
		return fmt.Errorf("listen on a socket in %q: see whether the folder exists and may be written", os.Getenv(goplugin.EnvUnixSocketDir))
	}
	<-ended
	return nil
}

// handshakeLine is go-plugin's: its own protocol's version, ours, the address
// and the kind of RPC.
func handshakeLine(at net.Addr) string {
	return fmt.Sprintf("%d|%d|%s|%s|%s|", goplugin.CoreProtocolVersion, wire.ProtocolVersion, at.Network(), at, goplugin.ProtocolGRPC)
}

// openLifeline comes before anything else is opened: without a lifeline its
// descriptor would be somebody else's.
func openLifeline() (*os.File, error) {
	var stat syscall.Stat_t
	if err := syscall.Fstat(wire.LifelineFD, &stat); err != nil || stat.Mode&syscall.S_IFMT != syscall.S_IFIFO {
		return nil, fmt.Errorf("find the lifeline: descriptor %d is not a pipe; start the handler with kconsume", wire.LifelineFD)
	}
	syscall.CloseOnExec(wire.LifelineFD)
	return os.NewFile(wire.LifelineFD, "lifeline"), nil
}

// watchLifeline ends the process when the host closes its end of the pipe, or
// has ended, whatever the handler is doing.
func watchLifeline(lifeline *os.File, socket net.Addr) {
	_, _ = io.Copy(io.Discard, lifeline) // however it ends, the host is gone
	_ = os.Remove(socket.String())
	endGroup()
	os.Exit(0)
}

// endGroup asks what this process has started to end, where the group is its
// own. A host that lives kills the group; one that was killed cannot. Serve has
// made SIGTERM harmless for this process itself.
func endGroup() {
	if pid := os.Getpid(); syscall.Getpgrp() == pid {
		_ = syscall.Kill(-pid, syscall.SIGTERM) // whether or not there is anybody
	}
}

// NewServer is the gRPC server that Serve runs, for whoever brings a listener
// and a host of their own: package plugintest does. It serves one host.
func NewServer(c Config, h Handler, options ...grpc.ServerOption) *grpc.Server {
	g := newServer(options)
	g.RegisterService(wire.ServiceDesc(), &server{config: c, handler: h})
	return g
}

func newServer(options []grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append(options, wire.ServerOptions()...)...)
}

// service is the handler's service as go-plugin wants it.
type service struct {
	goplugin.NetRPCUnsupportedPlugin
	server *server
}

// GRPCServer registers the service.
func (s *service) GRPCServer(_ *goplugin.GRPCBroker, r *grpc.Server) error {
	r.RegisterService(wire.ServiceDesc(), s.server)
	return nil
}

// GRPCClient is the host's side, which is not here.
func (s *service) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("connect to a handler: this is the handler's side")
}
