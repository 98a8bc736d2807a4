package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	callTimeout = 15 * time.Second
	maxAnswer   = 32 << 20
)

// Client calls a daemon over its socket.
type Client struct {
	path string
	http *http.Client
}

// NewClient is a client of the daemon behind a unix socket.
func NewClient(path string) *Client {
	return &Client{path: path, http: &http.Client{
		Timeout: callTimeout,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "unix", path)
			},
		},
	}}
}

// CallError is a daemon's refusal.
type CallError struct {
	Path    string // the socket's
	Problem Problem
}

func (e *CallError) Error() string {
	return fmt.Sprintf("call %s: %s: %s", e.Path, e.Problem.Title, e.Problem.Detail)
}

// Status fetches /v1/status into v. A daemon that does not listen is a
// *net.OpError, a refusal a *CallError.
func (c *Client) Status(ctx context.Context, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://kconsume/v1/status", nil)
	if err != nil {
		return fmt.Errorf("call %s: %w", c.path, err)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("call %s: %w", c.path, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read answer of %s: %w", c.path, err)
	}
	if res.StatusCode != http.StatusOK {
		p := Problem{Title: res.Status, Status: res.StatusCode}
		_ = json.Unmarshal(body, &p) // what is no problem+json leaves the status to tell
		return &CallError{c.path, p}
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("read answer of %s: %w", c.path, err)
	}
	return nil
}
