package payment

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

var charge = Charge{OrderID: "1001", Customer: "anna", AmountCents: 2500, Currency: "EUR", IdempotencyKey: "t/0/7@1"}

func newClient(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c := NewClient(srv.URL + "/")
	t.Cleanup(c.Close)
	return c
}

func TestChargeSendsWhatTheGatewayNeeds(t *testing.T) {
	var got Charge
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/charges" {
			t.Errorf("%s %s, want POST /charges", r.Method, r.URL.Path)
		}
		if ct := r.Header.Get("Content-Type"); ct != "application/json" {
			t.Errorf("Content-Type %q", ct)
		}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Errorf("body: %v", err)
		}
		got.IdempotencyKey = r.Header.Get("Idempotency-Key")
		w.WriteHeader(http.StatusCreated)
	})
	if err := c.Charge(t.Context(), charge); err != nil {
		t.Fatal(err)
	}
	if got != charge {
		t.Errorf("gateway saw %+v, want %+v", got, charge)
	}
}

func TestChargeRefused(t *testing.T) {
	tests := []struct {
		status int
		body   string
		want   string
	}{
		{402, "card declined\nsecond line", "gateway payments 402: card declined"},
		{404, "", "gateway payments 404: Not Found"},
		{500, "", "gateway payments 500: Internal Server Error"},
		{503, " try later ", "gateway payments 503: try later"},
		{503, strings.Repeat("x", maxAnswer+1), "gateway payments 503: " + strings.Repeat("x", maxAnswer)},
	}
	for _, tt := range tests {
		c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			io.WriteString(w, tt.body)
		})
		err := c.Charge(t.Context(), charge)
		ge, ok := errors.AsType[*GatewayError](err)
		if !ok {
			t.Errorf("%d: %v (%T), want a *GatewayError", tt.status, err, err)
			continue
		}
		if ge.StatusCode != tt.status || ge.Error() != tt.want {
			t.Errorf("got %d %q, want %d %q", ge.StatusCode, ge.Error(), tt.status, tt.want)
		}
	}
}

func TestChargeNetworkFailureHasStatusZero(t *testing.T) {
	refused := func(t *testing.T) (*Client, context.Context) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		l.Close()
		return NewClient("http://" + addr), t.Context()
	}
	cut := func(t *testing.T) (*Client, context.Context) {
		return newClient(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), t.Context()
	}
	cutInBody := func(t *testing.T) (*Client, context.Context) {
		return newClient(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			io.WriteString(w, "half")
		}), t.Context()
	}
	late := func(t *testing.T) (*Client, context.Context) {
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		t.Cleanup(cancel)
		return newClient(t, func(http.ResponseWriter, *http.Request) {}), ctx
	}
	tests := []struct {
		name string
		make func(*testing.T) (*Client, context.Context)
		is   error // what the chain holds; nil = anything
	}{
		{"refused", refused, nil}, {"cut", cut, io.EOF},
		{"cut in body", cutInBody, io.ErrUnexpectedEOF}, {"late", late, context.DeadlineExceeded},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, ctx := tt.make(t)
			defer c.Close()
			err := c.Charge(ctx, charge)
			ge, ok := errors.AsType[*GatewayError](err)
			if !ok || ge.StatusCode != 0 {
				t.Fatalf("%v (%T), want a *GatewayError with status 0", err, err)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("%v does not wrap %v", err, tt.is)
			}
		})
	}
}

func TestChargeWithABadURLIsNoGatewayError(t *testing.T) {
	err := NewClient("http://[broken").Charge(t.Context(), charge)
	if _, ok := errors.AsType[*GatewayError](err); err == nil || ok {
		t.Errorf("%v (%T): a wrong setting must not be retried as a network failure", err, err)
	}
}
