package plugin

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// HTTPError is the error of a response with a status of 400 or more, and nil for
// any other: net/http's client returns none for what a server refuses. The
// request, its response's status and, where it may pass, the server's Retry-After
// are in it, for Classify to see. The body is not touched.
//
//	r, err := client.Do(request)
//	if err != nil {
//		return fmt.Errorf("charge: %w", err)
//	}
//	defer r.Body.Close()
//	if err := plugin.HTTPError(r); err != nil {
//		return fmt.Errorf("charge: %w", err)
//	}
func HTTPError(r *http.Response) error {
	if r.StatusCode < 400 {
		return nil
	}
	e := &responseError{status: r.StatusCode}
	if r.Request != nil && r.Request.URL != nil {
		e.request = r.Request.Method + " " + r.Request.URL.Redacted() + ": "
	}
	if mayPass(r.StatusCode) {
		e.retryAfter = retryAfterHeader(r.Header)
	}
	return e
}

type responseError struct {
	request    string // with the colon behind it; empty = not known
	status     int
	retryAfter time.Duration
}

func (e *responseError) Error() string {
	return fmt.Sprintf("%s%d %s", e.request, e.status, http.StatusText(e.status))
}

// StatusCode is what the server answered.
func (e *responseError) StatusCode() int { return e.status }

// RetryAfter is the server's wish; 0 = none.
func (e *responseError) RetryAfter() time.Duration { return e.retryAfter }

// retryAfterHeader is how long from now a server wants to be left alone. A date
// is compared with the server's own clock, where it tells that.
func retryAfterHeader(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(at.Sub(now), 0)
}
