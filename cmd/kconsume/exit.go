package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/kconsume/kconsume/admin"
	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/engine/secure"
	"github.com/kconsume/kconsume/engine/topics"
)

// Exit codes. Those above 63 are the ones of sysexits.h.
const (
	exitOK          = 0
	exitFailed      = 1
	exitChanges     = 2  // a plan has changes
	exitUsage       = 64 // the command line is wrong
	exitUnavailable = 69 // no broker, or no daemon, answers
	exitLater       = 75 // try again later
	exitDenied      = 77
	exitConfig      = 78 // what was asked for cannot be: restarting does not help
)

// failure is an error whose exit code is known where it is made.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func fail(code int, format string, args ...any) error {
	return &failure{code, fmt.Errorf(format, args...)}
}

// errChanges ends topics plan where there is something to apply.
var errChanges = errors.New("the plan has changes")

// exitCode maps an error to the process's exit code. Of several errors the
// highest code counts: what no restart mends comes before what one may mend.
func exitCode(err error) int {
	code := exitOK
	for _, e := range leaves(err) {
		code = max(code, codeOf(e))
	}
	return code
}

func codeOf(err error) int {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.code
	}
	if errors.Is(err, errChanges) {
		return exitChanges
	}
	if _, ok := errors.AsType[*option.Error](err); ok {
		return exitConfig
	}
	if _, ok := errors.AsType[*admin.InUseError](err); ok {
		return exitConfig
	}
	if e, ok := errors.AsType[*admin.CallError](err); ok {
		return codeOfRefusal(e.Problem.Status)
	}
	switch secure.KindOf(err) {
	case secure.Denied:
		return exitDenied
	case secure.Setting:
		return exitConfig
	case secure.Unavailable:
		return exitUnavailable
	}
	switch topics.ClassOf(err) {
	case topics.Denied:
		return exitDenied
	case topics.Unreachable:
		return exitUnavailable
	}
	switch engine.ClassOf(err) {
	case engine.ErrConfig, engine.ErrOffset:
		return exitConfig
	case engine.ErrDenied:
		return exitDenied
	case engine.ErrUnreachable:
		return exitUnavailable
	}
	return exitFailed
}

// leaves are the errors that were joined, each on its own.
func leaves(err error) []error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*engine.Error); ok {
		var all []error
		for _, one := range leaves(e.Err) {
			all = append(all, &engine.Error{Class: e.Class, Err: one})
		}
		return all
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	// Joined errors are a line each; what wraps several in a text of its own is one.
	if err.Error() != errors.Join(joined.Unwrap()...).Error() {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, leaves(e)...)
	}
	return all
}

// report prints one line for each error.
func report(w io.Writer, err error) {
	for _, e := range leaves(err) {
		if errors.Is(e, errChanges) {
			continue // the plan itself was printed
		}
		fmt.Fprintf(w, "kconsume: %s\n", printable(strings.ReplaceAll(strings.TrimSpace(e.Error()), "\n", "; ")))
	}
}

// codeOfRefusal is the exit code of a daemon's refusal.
func codeOfRefusal(status int) int {
	switch status {
	case http.StatusBadRequest:
		return exitUsage
	case http.StatusForbidden, http.StatusUnauthorized:
		return exitDenied
	case http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return exitLater
	}
	return exitFailed
}
