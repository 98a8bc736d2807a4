package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kconsume/kconsume/admin/dlq"
)

// requestError is a request that cannot be understood.
type requestError struct {
	status int
	text   string
}

func (e *requestError) Error() string { return e.text }

func badRequest(format string, args ...any) error {
	return &requestError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// query reads a request's query string. The first thing that is wrong stays in
// err, and all that is read after it is empty.
type query struct {
	values url.Values
	err    error
}

// newQuery refuses names that the route does not know: a slip of the finger
// must not widen what is asked for.
func newQuery(r *http.Request, known ...string) *query {
	q := &query{}
	q.values, q.err = url.ParseQuery(r.URL.RawQuery)
	if q.err != nil {
		q.err = badRequest("the query cannot be read: %v", q.err)
		return q
	}
	for _, name := range slices.Sorted(maps.Keys(q.values)) {
		if !slices.Contains(known, name) {
			q.err = badRequest("there is no parameter %q here: use %s", name, oneOf(known))
			return q
		}
		if len(q.values[name]) > 1 && name != "status" && name != "position" {
			q.err = badRequest("%s is given twice", name)
			return q
		}
	}
	return q
}

func oneOf(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func (q *query) fail(format string, args ...any) {
	if q.err == nil {
		q.err = badRequest(format, args...)
	}
}

func (q *query) given(name string) bool  { return q.values.Has(name) }
func (q *query) text(name string) string { return q.values.Get(name) }
func (q *query) list(name string) []string {
	var out []string
	for _, v := range q.values[name] {
		out = append(out, strings.Split(v, ",")...)
	}
	return out
}

// number reads a whole number of least..most; where it is not given it is the fallback.
func (q *query) number(name string, fallback, least, most int) int {
	if !q.given(name) {
		return fallback
	}
	n, err := strconv.Atoi(q.text(name))
	if err != nil || n < least || n > most {
		q.fail("%s %q: use a whole number from %d to %d", name, q.text(name), least, most)
		return fallback
	}
	return n
}

func (q *query) limit() int { return q.number("limit", 0, 1, dlq.MaxPage) }

func (q *query) flag(name string) bool {
	if !q.given(name) {
		return false
	}
	switch q.text(name) {
	case "1", "true":
		return true
	case "0", "false":
		return false
	}
	q.fail("%s %q: use true or false", name, q.text(name))
	return false
}

func (q *query) choice(name string, choices ...string) string {
	if !q.given(name) {
		return choices[0]
	}
	v := q.text(name)
	if !slices.Contains(choices, v) {
		q.fail("%s %q: use %s", name, v, strings.Join(choices, " or "))
	}
	return v
}

func (q *query) time(name string) time.Time {
	if !q.given(name) {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, q.text(name))
	if err != nil {
		q.fail("%s %q: use a time such as 2006-01-02T15:04:05Z", name, q.text(name))
	}
	return t
}

func (q *query) statuses() []dlq.Status {
	var out []dlq.Status
	for _, text := range q.list("status") {
		s := dlq.Status(text)
		if !slices.Contains(dlq.Statuses(), s) {
			q.fail("status %q: use %v", text, dlq.Statuses())
		}
		out = append(out, s)
	}
	return out
}

// selectionNames are the parameters of a selection.
func selectionNames() []string {
	return []string{"status", "fingerprint", "key", "class", "handler", "since", "until", "position"}
}

func (q *query) selection() dlq.Selection {
	s := dlq.Selection{
		Fingerprint: q.text("fingerprint"), Class: q.text("class"), Handler: q.text("handler"),
		Statuses: q.statuses(), Since: q.time("since"), Until: q.time("until"),
	}
	if q.given("key") {
		key := q.text("key")
		s.Key = &key
	}
	for _, text := range q.list("position") {
		p, err := dlq.ParsePosition(text)
		if err != nil && q.err == nil {
			q.err = err
		}
		s.Positions = append(s.Positions, p)
	}
	return s
}

// ref is the record that a path names.
func (q *query) ref(r *http.Request) dlq.Ref {
	p, err := dlq.ParsePosition(r.PathValue("partition") + ":" + r.PathValue("offset"))
	if err != nil && q.err == nil {
		q.err = err
	}
	return dlq.Ref{Position: p, Identity: q.text("identity")}
}

// maxKey bounds an Idempotency-Key, in bytes.
const maxKey = 255

func idempotencyKey(r *http.Request) (string, error) {
	keys := r.Header.Values("Idempotency-Key")
	if len(keys) == 0 {
		return "", nil
	}
	key := keys[0]
	printable := !strings.ContainsFunc(key, func(c rune) bool { return c < 0x21 || c > 0x7e })
	if len(keys) > 1 || key == "" || len(key) > maxKey || !printable {
		return "", badRequest("Idempotency-Key: give it once, 1 to %d printable characters without blanks", maxKey)
	}
	return key, nil
}

// body reads the one JSON value of a request. Names that are not known are
// refused, as they are in a query.
func body(r *http.Request, into any) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &requestError{http.StatusUnsupportedMediaType, "send JSON, with Content-Type: application/json"}
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("there is more behind the first value")
		}
	}
	if big, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &requestError{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", big.Limit)}
	}
	if err != nil {
		return badRequest("the body cannot be read: %v", err)
	}
	return nil
}

// empty refuses a body where there is nothing to say.
func empty(r *http.Request) error {
	n, err := io.CopyN(io.Discard, r.Body, 3)
	if big, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &requestError{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", big.Limit)}
	}
	if n > 2 { // "{}" says nothing either
		return badRequest("this request has no body: what it needs is in its address")
	}
	return nil
}
