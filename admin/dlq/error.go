package dlq

import (
	"errors"
	"fmt"
	"net/http"
)

// Kind is the bounded word for an Error. The API makes a status of it.
type Kind string

const (
	KindInvalid     Kind = "invalid"     // 400: the request itself is wrong
	KindDenied      Kind = "denied"      // 403: the actor's role is too low
	KindNotFound    Kind = "not_found"   // 404
	KindConflict    Kind = "conflict"    // 409: somebody else was first, or it has changed
	KindGone        Kind = "gone"        // 410: it was there, and expired or belongs to an earlier topic
	KindTooMany     Kind = "too_many"    // 429: as many as allowed are under way
	KindUnavailable Kind = "unavailable" // 503: brokers do not answer, or the state is not read yet
)

// HTTPStatus is the status of an answer that tells of such an error.
func (k Kind) HTTPStatus() int {
	switch k {
	case KindInvalid:
		return http.StatusBadRequest
	case KindDenied:
		return http.StatusForbidden
	case KindNotFound:
		return http.StatusNotFound
	case KindConflict:
		return http.StatusConflict
	case KindGone:
		return http.StatusGone
	case KindTooMany:
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// Error is why something was not done: one line that ends with what to do next.
type Error struct {
	Kind Kind
	Text string
	Err  error // what it comes from, nil = nothing
}

func (e *Error) Error() string { return e.Text }
func (e *Error) Unwrap() error { return e.Err }

// KindOf is the kind of an error; what is none of ours is unavailable.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return KindUnavailable
}

func refuse(k Kind, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: k, Text: err.Error(), Err: errors.Unwrap(err)}
}
