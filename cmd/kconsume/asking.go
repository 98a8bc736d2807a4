package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/kconsume/kconsume/admin"
	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
)

// daemonOf is a client of the daemon that is meant: the one behind --admin, on
// this host or elsewhere, or the only one there is.
func daemonOf(in *invocation) (*admin.Client, error) {
	if address := in.opts.Text("admin"); remote(address) {
		c, err := admin.NewRemote(admin.Remote{
			URL: address, TokenFile: in.opts.Text("token-file"), CAFile: in.opts.Text("ca-file"),
			CertFile: in.opts.Text("client-cert"), KeyFile: in.opts.Text("client-key"),
		})
		if err != nil {
			return nil, fail(exitConfig, "%w", err)
		}
		return c, nil
	}
	path, err := findSocket(in)
	if err != nil {
		return nil, err
	}
	return admin.NewClient(path), nil
}

// remote reports whether --admin is the address of a daemon elsewhere.
func remote(address string) bool {
	return strings.HasPrefix(address, "https://") || strings.HasPrefix(address, "http://")
}

// validAdmin refuses the address of a daemon elsewhere where one is to listen.
func validAdmin(s *option.Set) error {
	if address := s.Text("admin"); remote(address) {
		return fail(exitConfig, "--admin %.300q: it names a daemon elsewhere: this one listens on unix:PATH or tcp:HOST:PORT", address)
	}
	return nil
}

// findSocket says which daemon of this host is meant.
func findSocket(in *invocation) (string, error) {
	if path, ok := strings.CutPrefix(in.opts.Text("admin"), "unix:"); ok && in.opts.Given("admin") {
		return path, nil
	}
	group := in.opts.Text("group")
	found := admin.FindSockets(group, in.getenv)
	whose := ""
	if group != "" {
		whose = fmt.Sprintf(" of group %q", group)
	}
	switch len(found) {
	case 0:
		return "", fail(exitUnavailable, "no daemon%s: %s and the services' runtime directories: start it, or name its socket with --admin unix:PATH", whose, admin.RuntimeDir(in.getenv))
	case 1:
		return found[0], nil
	}
	return "", fail(exitUsage, "several daemons%s: %s: choose with --admin unix:PATH", whose, strings.Join(found, ", "))
}

// ask makes a call to the daemon that is meant.
func ask(ctx context.Context, in *invocation, call admin.Call, into any) error {
	c, err := daemonOf(in)
	if err != nil {
		return err
	}
	if err := c.Do(ctx, call, into); err != nil {
		return refused(c, err)
	}
	return nil
}

// refused is a call's error with its exit code: what a daemon refuses says by
// itself what to do.
func refused(c *admin.Client, err error) error {
	e, ok := errors.AsType[*admin.CallError](err)
	if !ok {
		return unanswered(c.Name(), err)
	}
	code := codeOfRefusal(e.Problem.Status)
	if e.Problem.Detail == "" {
		return fail(code, "%s answers %s: is it a daemon's admin API?", c.Name(), e.Problem.Title)
	}
	return fail(code, "%s", e.Problem.Detail)
}

// unanswered says what to do where a daemon does not answer.
func unanswered(name string, err error) error {
	if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
		return fail(exitDenied, "%s is not who it should be: %w: name the authority of its certificate with --ca-file", name, errors.Unwrap(err))
	}
	switch {
	case errors.Is(err, os.ErrPermission):
		return fail(exitDenied, "not allowed to ask the daemon: %s: run it as the daemon's user, or as a member of its group", name)
	case errors.Is(err, os.ErrNotExist):
		return fail(exitUnavailable, "no socket: %s: start the daemon, or name another with --admin unix:PATH", name)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return fail(exitUnavailable, "no daemon answers: %s: start it, or name another with --admin", name)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fail(exitLater, "the daemon does not answer in time: %s: try again", name)
	}
	return err
}
