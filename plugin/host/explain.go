package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kconsume/kconsume/plugin/internal/wire"
	"github.com/kconsume/kconsume/plugin/printable"
)

// explain says in one line why a start failed. The process is closed already.
func (p *process) explain(cause, err error) error {
	if refused := p.child.refusal(); refused != nil {
		return refused
	}
	if cause != nil && cause != errSlow {
		return fmt.Errorf("given up: %w", cause)
	}
	if p.child.state == nil {
		return startError(err)
	}
	words := ""
	if w := p.child.out.lastWords(); w != "" {
		words = ": " + w
	}
	switch {
	case cause == errSlow && p.conn == nil:
		return fmt.Errorf("it wrote no handshake to stdout within %v: is it a kconsume handler?%s", p.cfg.StartTimeout, words)
	case cause == errSlow:
		return fmt.Errorf("it said no Hello within %v%s", p.cfg.StartTimeout, words)
	case p.conn == nil:
		return fmt.Errorf("it exited before its handshake: is it a kconsume handler? %s", p.child.exit())
	case status.Code(err) == codes.Unimplemented:
		return fmt.Errorf("it does not serve %s: use a kconsume SDK", wire.ServiceName)
	case err == io.EOF:
		return errors.New("it ended its stream before its Hello: use a kconsume SDK")
	case status.Code(err) == codes.Unavailable && !p.byItself && p.cfg.TLS:
		return fmt.Errorf("no TLS on the socket that its handshake names: use an SDK that serves it, or start without --handler-tls: %s", printable.Line(status.Convert(err).Message()))
	case status.Code(err) == codes.Unavailable && !p.byItself:
		return fmt.Errorf("no gRPC on the socket that its handshake names: use a kconsume SDK: %s", printable.Line(status.Convert(err).Message()))
	case status.Code(err) == codes.Unavailable:
		return fmt.Errorf("it broke off before its Hello: %s", p.child.exit())
	}
	return err
}

// startError turns what the operating system says about an exec into what to do.
func startError(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return errors.New("it is neither a program for this machine nor a script that begins with #! and its interpreter")
	case errors.Is(err, syscall.ENOENT):
		return errors.New("what its first line (#!) or its loader names does not exist, or the line ends with a carriage return")
	case errors.Is(err, syscall.ETXTBSY):
		return errors.New("it is being written to: install it under another name and rename it")
	}
	return err
}
