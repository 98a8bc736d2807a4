package secure

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Kind is the kind of an Error.
type Kind string

const (
	// Setting: a setting, or a file that one names, does not fit: mend it.
	Setting Kind = "setting"
	// Denied: the other side knows what we are and does not let us in.
	Denied Kind = "denied"
	// Unavailable: the other side is to be mended; until then it is tried again.
	Unavailable Kind = "unavailable"
)

// Error is why there is no connection. Its text is one line without a secret
// that ends with what to do.
type Error struct {
	Kind Kind
	Text string
	Err  error // what it comes from, nil = nothing; its text is not printed
}

func (e *Error) Error() string { return e.Text }
func (e *Error) Unwrap() error { return e.Err }

// KindOf is the kind of an error that comes from this package, "" for others.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}

func setting(format string, args ...any) *Error {
	return &Error{Kind: Setting, Text: fmt.Sprintf(format, args...)}
}

func denied(format string, args ...any) *Error {
	return &Error{Kind: Denied, Text: fmt.Sprintf(format, args...)}
}

func unavailable(format string, args ...any) *Error {
	return &Error{Kind: Unavailable, Text: fmt.Sprintf(format, args...)}
}

// mostWords bounds what is repeated of another's text.
const mostWords = 200

// words is a text from the other side as it may stand in a line: bounded, and
// without what a terminal would act upon.
func words(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if r := []rune(s); len(r) > mostWords {
		s = string(r[:mostWords]) + "…"
	}
	return strings.TrimSpace(s)
}
