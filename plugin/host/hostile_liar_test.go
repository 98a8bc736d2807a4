package host_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/internal/wire"
)

// lie is what a handler without an SDK does wrong on the wire. The zero value
// is a handler that does everything right.
type lie struct {
	certificate string             // sixth field of the handshake
	hello       func() *wire.Hello // instead of a plain one
	frame       bool               // the first frame is no Hello
	silent      bool               // there is no first frame
	ends        bool               // the stream ends before a first frame
	stranger    bool               // the service is another one
	impostor    bool               // serves TLS with a certificate of its own making
	stubborn    bool               // knows no lifeline, no drain and no signal
	mute        bool               // beats have no echo
	echo        uint64             // of every beat, instead of the beat
	// bad answers a bad record, the first time, instead of acknowledging it.
	// An error ends the stream.
	bad func(s *stage, r *wire.Record) error
}

// stage is where a lie is told.
type stage struct {
	actor  *actor
	stream grpc.ServerStream
	server *grpc.Server
	before []uint64 // handles that were acknowledged
}

func (s *stage) acknowledge(r *wire.Record) error {
	s.actor.acknowledges(r.Offset)
	s.before = append(s.before, r.Handle)
	return s.stream.SendMsg(&wire.PluginFrame{Acked: []uint64{r.Handle}})
}

func (s *stage) verdict(v wire.Verdict) error {
	return s.stream.SendMsg(&wire.PluginFrame{Verdicts: []wire.Verdict{v}})
}

const notUTF8 = "\xff\xfe\x80\u202e\x1b]0;\x07\n"

// lies are the modes without an SDK.
func lies() map[string]lie {
	return map[string]lie{
		"certificate":    {certificate: strings.Repeat("A", 600)},
		"takes one byte": {hello: func() *wire.Hello { return &wire.Hello{Name: "hostile", Version: "1", MaxRecords: 1, MaxBytes: 1} }},
		"boasts": {hello: func() *wire.Hello {
			return &wire.Hello{Name: "hostile", Version: "1", MaxRecords: math.MaxUint32, MaxBytes: math.MaxUint64, BeatsMayWait: true}
		}},
		"enormous Hello": {hello: func() *wire.Hello {
			return &wire.Hello{SDK: strings.Repeat("s", 32<<20), Name: strings.Repeat("n", 32<<20), Topics: slices.Repeat([]string{"t"}, 1<<20)}
		}},
		"mute":               {mute: true},
		"echoes of no beats": {echo: 1000},
		"ignores all":        {stubborn: true},
		"unknown handles": {bad: func(s *stage, r *wire.Record) error {
			unknown := []uint64{0, r.Handle + 1<<24, 1 << 60, math.MaxUint64}
			f := &wire.PluginFrame{Acked: unknown, Ended: unknown}
			for _, h := range unknown {
				f.Verdicts = append(f.Verdicts, wire.Verdict{Handle: h, Class: wire.ClassAck})
			}
			if err := s.stream.SendMsg(f); err != nil {
				return err
			}
			return s.acknowledge(r)
		}},
		"answers twice": {bad: func(s *stage, r *wire.Record) error {
			s.actor.acknowledges(r.Offset)
			return s.stream.SendMsg(&wire.PluginFrame{
				Acked:    []uint64{r.Handle, r.Handle},
				Verdicts: []wire.Verdict{{Handle: r.Handle, Class: wire.ClassPermanent}, {Handle: r.Handle, Late: true}},
				Ended:    []uint64{r.Handle},
			})
		}},
		"answers twice, later": {bad: func(s *stage, r *wire.Record) error {
			for range 2 {
				if err := s.acknowledge(r); err != nil {
					return err
				}
			}
			return nil
		}},
		"answers by an old handle": {bad: func(s *stage, r *wire.Record) error {
			if err := s.stream.SendMsg(&wire.PluginFrame{Acked: s.before}); err != nil {
				return err
			}
			return s.verdict(wire.Verdict{Handle: r.Handle, Class: wire.ClassPermanent})
		}},
		"answers all at once": {hello: patient, bad: func(s *stage, r *wire.Record) error {
			f := &wire.PluginFrame{Acked: make([]uint64, 8<<20)} // 64 MiB on the wire
			for i := range f.Acked {
				f.Acked[i] = 1<<56 + uint64(i)
			}
			if err := s.stream.SendMsg(f); err != nil {
				return err
			}
			return s.acknowledge(r)
		}},
		"answers 64 MiB": {hello: patient, bad: func(s *stage, r *wire.Record) error {
			return s.verdict(wire.Verdict{Handle: r.Handle, Class: wire.ClassPermanent, Message: strings.Repeat("m", 64<<20)})
		}},
		"answers too much": {hello: patient, bad: func(s *stage, r *wire.Record) error {
			return s.verdict(wire.Verdict{Handle: r.Handle, Class: wire.ClassPermanent, Message: strings.Repeat("m", wire.MaxFrameBytes)})
		}},
		"unknown class": {bad: func(s *stage, r *wire.Record) error {
			return s.verdict(wire.Verdict{Handle: r.Handle, Class: 99, Reason: "oversize"})
		}},
		"no class": {bad: func(s *stage, r *wire.Record) error { return s.verdict(wire.Verdict{Handle: r.Handle}) }},
		"the host's reasons": {bad: func(s *stage, r *wire.Record) error {
			return s.verdict(wire.Verdict{Handle: r.Handle, Class: wire.ClassPermanent, Reason: "handler_crash"})
		}},
		"not UTF-8": {
			hello: func() *wire.Hello {
				return &wire.Hello{SDK: notUTF8, Name: notUTF8, Version: notUTF8, Topics: []string{notUTF8}, Capabilities: []string{notUTF8}}
			},
			bad: func(s *stage, r *wire.Record) error {
				fmt.Fprint(s.actor.stdout, notUTF8)
				fmt.Fprint(os.Stderr, notUTF8)
				return s.verdict(wire.Verdict{
					Handle: r.Handle, Class: wire.ClassTransient, Reason: notUTF8, Code: notUTF8, Message: notUTF8,
					Causes: []string{notUTF8}, Stack: notUTF8, Rule: notUTF8,
				})
			},
		},
		"no frame": {bad: func(s *stage, _ *wire.Record) error {
			return s.stream.SendMsg(wrapperspb.Bytes([]byte{0xff, 0xff, 0xff})) // read as a Hello that is none
		}},
		"empty frames": {bad: func(s *stage, r *wire.Record) error {
			for range 100_000 {
				if err := s.stream.SendMsg(&wire.PluginFrame{}); err != nil {
					return err
				}
			}
			return s.acknowledge(r)
		}},
		"another Hello": {bad: func(s *stage, r *wire.Record) error {
			if err := s.stream.SendMsg(&wire.PluginFrame{Hello: &wire.Hello{Name: "somebody else", MaxRecords: 1}}); err != nil {
				return err
			}
			return s.acknowledge(r)
		}},
		"calls it cancelled": {bad: func(s *stage, r *wire.Record) error {
			return s.verdict(wire.Verdict{Handle: r.Handle, Rule: plugin.RuleCancelled})
		}},
		"freezes, and may": {
			hello: patient,
			bad:   func(*stage, *wire.Record) error { die(unix.SIGSTOP); return nil },
		},
		"never answers":   {bad: func(*stage, *wire.Record) error { return nil }},
		"stops reading":   {bad: func(*stage, *wire.Record) error { select {} }},
		"ends the stream": {bad: func(*stage, *wire.Record) error { return io.EOF }},
		"hangs up": {bad: func(s *stage, _ *wire.Record) error {
			go s.server.Stop()
			select {}
		}},
	}
}

// liar serves a lie.
type liar struct {
	lie
	actor  *actor
	server *grpc.Server
}

func socketPath() string { return filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "s") }

func listenAt(path string) net.Listener {
	l, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	return l
}

func (a *actor) lie(l lie) {
	if l.stubborn {
		obeyNothing()
	} else {
		go func() {
			io.Copy(io.Discard, os.NewFile(wire.LifelineFD, "lifeline"))
			os.Exit(0)
		}()
	}
	options := append(wire.ServerOptions(), grpc.MaxSendMsgSize(math.MaxInt))
	if l.impostor {
		options = append(options, grpc.Creds(credentials.NewServerTLSFromCert(ownCertificate())))
	}
	s := grpc.NewServer(options...)
	if !l.stranger {
		s.RegisterService(wire.ServiceDesc(), &liar{lie: l, actor: a, server: s})
	}
	at := listenAt(socketPath())
	fmt.Fprintln(a.stdout, a.line("1", socketPath())+l.certificate)
	s.Serve(at)
	select {} // the process stays when its server does not
}

// ownCertificate is like the one that the host would have given it.
func ownCertificate() *tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{wire.TLSServerName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Deliver answers records one by one.
func (l *liar) Deliver(s grpc.BidiStreamingServer[wire.HostFrame, wire.PluginFrame]) error {
	st := &stage{actor: l.actor, stream: s, server: l.server}
	switch {
	case l.silent:
		<-s.Context().Done()
		return nil
	case l.ends:
		return nil
	case l.frame:
		if err := s.SendMsg(&wire.PluginFrame{Acked: []uint64{1, 1 << 24, 1<<24 + 1}}); err != nil {
			return err
		}
	}
	hello := &wire.Hello{SDK: "none", Name: "hostile", Version: "1"}
	if l.hello != nil {
		hello = l.hello()
	}
	if err := s.SendMsg(&wire.PluginFrame{Hello: hello}); err != nil {
		return err
	}
	for {
		f := new(wire.HostFrame)
		if err := s.RecvMsg(f); err != nil {
			return err
		}
		for i := range f.Records {
			if err := l.record(st, &f.Records[i]); err != nil {
				return nil // an end like any other
			}
		}
		if f.Drain && !l.stubborn {
			return nil
		}
	}
}

func (l *liar) record(s *stage, r *wire.Record) error {
	value := string(r.Value)
	switch {
	case value == exit && l.actor.first("exited"):
		os.Exit(3)
	case value == bad && l.bad != nil && l.actor.first("did"):
		return l.bad(s, r)
	}
	return s.acknowledge(r)
}

// Control echoes beats; in its first life as the lie does.
func (l *liar) Control(s grpc.BidiStreamingServer[wire.Beat, wire.Beat]) error {
	for {
		var b wire.Beat
		if err := s.RecvMsg(&b); err != nil {
			return err
		}
		switch {
		case l.mute && l.actor.life == 1:
			l.actor.first("did")
			continue
		case l.echo != 0 && l.actor.life == 1:
			l.actor.first("did")
			b.Seq = l.echo
		}
		if err := s.SendMsg(&b); err != nil {
			return err
		}
	}
}

// patient asks for patience with its beats: what takes it long, on a loaded
// machine, is to be its answer and not taken for a hang.
func patient() *wire.Hello { return &wire.Hello{Name: "hostile", Version: "1", BeatsMayWait: true} }
