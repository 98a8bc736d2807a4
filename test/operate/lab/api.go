package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/kconsume/kconsume/admin"
	"github.com/kconsume/kconsume/test/suite"
)

// API calls a daemon as one person.
type API struct {
	URL   string
	Token string // "" = none is shown
}

// As is the daemon's API for who has a token.
func (d *Daemon) As(token string) *API { return &API{d.URL, token} }

// Answer is what came back.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Problem is an error answer.
func (a Answer) Problem() (p admin.Problem) {
	_ = json.Unmarshal(a.Body, &p) // what is none is empty
	return p
}

func (a Answer) String() string { return fmt.Sprintf("%d %s", a.Status, bytes.TrimSpace(a.Body)) }

// Try makes a request. A body is sent as JSON, text as it is; header is names and values
// in turn.
func (a *API) Try(ctx context.Context, method, path string, body any, header ...string) (Answer, error) {
	var content io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		content = bytes.NewReader([]byte(b))
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return Answer{}, err
		}
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, a.URL+path, content)
	if err != nil {
		return Answer{}, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if a.Token != "" {
		r.Header.Set("Authorization", "Bearer "+a.Token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	// A connection of its own: daemons are killed and come back.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(r)
	if err != nil {
		return Answer{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return Answer{res.StatusCode, res.Header, text}, err
}

// Do makes a request that must be answered.
func (a *API) Do(t testing.TB, method, path string, body any, header ...string) Answer {
	t.Helper()
	got, err := a.Try(t.Context(), method, path, body, header...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Want makes a request that must be answered with a status, and reads the answer
// into v if that is not nil.
func (a *API) Want(t testing.TB, status int, method, path string, body, v any, header ...string) {
	t.Helper()
	got := a.Do(t, method, path, body, header...)
	if got.Status != status {
		t.Fatalf("%s %s: %v, want %d", method, path, got, status)
	}
	if v == nil {
		return
	}
	if err := json.Unmarshal(got.Body, v); err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, got.Body)
	}
}

// Get reads something that is to be there.
func (a *API) Get(t testing.TB, path string, v any) {
	t.Helper()
	a.Want(t, http.StatusOK, http.MethodGet, path, nil, v)
}

// Until asks again and again until ok says so. The bound only keeps a broken
// test from hanging.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	suite.Until(t, 5*time.Minute, what, ok)
}
