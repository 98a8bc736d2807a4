package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

const (
	callTimeout = 15 * time.Second
	maxAnswer   = 32 << 20
)

// Client calls a daemon.
type Client struct {
	name  string // of the daemon in errors: its socket's path, or its address
	base  url.URL
	token string // "" = none
	http  *http.Client
}

// NewClient is a client of the daemon behind a unix socket.
func NewClient(path string) *Client {
	return &Client{name: path, base: url.URL{Scheme: "http", Host: "kconsume"}, http: &http.Client{Transport: SocketTransport(path)}}
}

// Name is the daemon's socket, or its address.
func (c *Client) Name() string { return c.name }

// SocketTransport sends every request to the daemon behind a unix socket.
func SocketTransport(path string) *http.Transport {
	return &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
	}
}

// CallError is a daemon's refusal.
type CallError struct {
	Name    string // of the daemon, as Client.Name
	Problem Problem
}

func (e *CallError) Error() string {
	return fmt.Sprintf("call %s: %s: %s", e.Name, e.Problem.Title, e.Problem.Detail)
}

// Call is one request. The zero method is GET.
type Call struct {
	Method string
	Path   string
	Query  url.Values
	Body   any           // as JSON, nil = none
	Key    string        // Idempotency-Key, "" = none
	Within time.Duration // 0 = 15 s
}

// Status fetches /v1/status into v.
func (c *Client) Status(ctx context.Context, v any) error {
	return c.Do(ctx, Call{Path: "/v1/status"}, v)
}

// Do makes a call and reads its answer into v, if that is not nil. A daemon
// that does not listen is a *net.OpError, a refusal a *CallError.
func (c *Client) Do(ctx context.Context, call Call, v any) error {
	within := call.Within
	if within == 0 {
		within = callTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	res, err := c.send(ctx, call)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read answer of %s: %w", c.name, err)
	}
	if v == nil {
		return nil
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("read answer of %s: %w", c.name, err)
	}
	return nil
}

// Copy makes a call and writes its answer to w, however long it is.
func (c *Client) Copy(ctx context.Context, call Call, w io.Writer) error {
	res, err := c.send(ctx, call)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(w, res.Body); err != nil {
		return fmt.Errorf("read answer of %s: it was cut off: %w", c.name, err)
	}
	return nil
}

func (c *Client) send(ctx context.Context, call Call) (*http.Response, error) {
	var body io.Reader
	if call.Body != nil {
		b, err := json.Marshal(call.Body)
		if err != nil {
			return nil, fmt.Errorf("call %s: %w", c.name, err)
		}
		body = bytes.NewReader(b)
	}
	at := c.base
	at.Path, at.RawQuery = call.Path, call.Query.Encode()
	req, err := http.NewRequestWithContext(ctx, call.Method, at.String(), body)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", c.name, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if call.Key != "" {
		req.Header.Set("Idempotency-Key", call.Key)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", c.name, err)
	}
	if res.StatusCode < 300 {
		return res, nil
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read answer of %s: %w", c.name, err)
	}
	p := Problem{Title: res.Status, Status: res.StatusCode}
	_ = json.Unmarshal(text, &p) // what is no problem+json leaves the status to tell
	return nil, &CallError{c.name, p}
}
