// Package payment talks to the payment gateway.
package payment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Charge asks for money once. The gateway answers a second request with the
// same IdempotencyKey as it answered the first, and takes no money for it.
type Charge struct {
	OrderID        string `json:"order_id"`
	Customer       string `json:"customer"`
	AmountCents    int64  `json:"amount_cents"`
	Currency       string `json:"currency"`
	IdempotencyKey string `json:"-"` // sent as the header Idempotency-Key
}

// GatewayError is a charge that the gateway did not confirm.
type GatewayError struct {
	StatusCode int    // of the answer; 0 = there was none, the network failed
	Upstream   string // which gateway
	Err        error
}

func (e *GatewayError) Error() string {
	if e.StatusCode == 0 {
		return fmt.Sprintf("gateway %s gave no answer: %v", e.Upstream, e.Err)
	}
	return fmt.Sprintf("gateway %s %d: %v", e.Upstream, e.StatusCode, e.Err)
}

func (e *GatewayError) Unwrap() error { return e.Err }

// upstream is the gateway's name in errors.
const upstream = "payments"

// timeout of one charge, well below the 30 s that kconsume gives a delivery.
const timeout = 10 * time.Second

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 4 << 10

// Client charges through the gateway's HTTP API. It may be used by many
// goroutines at once.
type Client struct {
	charges string // URL
	http    *http.Client
}

// NewClient returns a client of the gateway at a base URL such as
// http://127.0.0.1:8080. The caller closes it.
func NewClient(base string) *Client {
	return &Client{
		charges: strings.TrimRight(base, "/") + "/charges",
		http: &http.Client{
			Timeout:   timeout,
			Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute},
		},
	}
}

// Close drops the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Charge takes the money, or returns a *GatewayError if the gateway did not
// confirm it. Any other error is a mistake in the program or its settings.
func (c *Client) Charge(ctx context.Context, ch Charge) error {
	body, err := json.Marshal(ch)
	if err != nil {
		return fmt.Errorf("encode charge of order %s: %w", ch.OrderID, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.charges, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make charge request: %w: check the gateway's URL", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", ch.IdempotencyKey)
	resp, err := c.http.Do(req)
	if err != nil {
		return &GatewayError{Upstream: upstream, Err: err}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode/100 != 2 {
		return &GatewayError{Upstream: upstream, StatusCode: resp.StatusCode, Err: reason(resp, answer)}
	}
	if err != nil {
		return &GatewayError{Upstream: upstream, Err: fmt.Errorf("read answer: %w", err)}
	}
	return nil
}

// reason is the first line of an answer's body, else its status in words.
func reason(resp *http.Response, body []byte) error {
	line, _, _ := bytes.Cut(bytes.TrimSpace(body), []byte("\n"))
	if len(line) == 0 {
		return errors.New(http.StatusText(resp.StatusCode))
	}
	return errors.New(string(line))
}
