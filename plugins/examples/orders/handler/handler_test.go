package handler

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugins/examples/orders/order"
	"github.com/kconsume/kconsume/plugins/examples/orders/payment"
	"github.com/kconsume/kconsume/plugins/examples/orders/store/postgres"
)

// database is a postgres.DB that counts its statements and fails as told.
type database struct {
	statements int
	err        error
}

func (d *database) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	d.statements++
	return pgconn.NewCommandTag("INSERT 0 1"), d.err
}

const goodOrder = `{"order_id":"1001","customer":"anna","currency":"EUR","total_cents":500,
	"items":[{"sku":"pen","quantity":1,"price_cents":500}]}`

// Every way an order can go, through a real gateway's answers and a real
// driver's errors, to the verdict that kconsume acts on.
func TestVerdicts(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	cut := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	pg := func(code string) error {
		return &pgconn.PgError{Severity: "ERROR", Code: code, Message: "from the server"}
	}

	tests := []struct {
		name    string
		value   string
		gateway http.HandlerFunc
		db      error
		want    plugin.Verdict // Class, Reason and Code
		charged bool
		stored  bool // the database was asked
	}{
		{"done", goodOrder, status(201), nil, plugin.Verdict{Class: plugin.ClassAck}, true, true},
		{"no JSON", `two mugs, please`, status(201), nil, verdict(plugin.ClassPermanent, plugin.ReasonPoison, ""), false, false},
		{"another type", `{"order_id":7}`, status(201), nil, verdict(plugin.ClassPermanent, plugin.ReasonPoison, ""), false, false},
		{"cut short", goodOrder[:20], status(201), nil, verdict(plugin.ClassPermanent, plugin.ReasonPoison, ""), false, false},
		{"invalid", `{"order_id":"1"}`, status(201), nil, verdict(plugin.ClassPermanent, plugin.ReasonPermanent, "validation"), false, false},
		{"gateway busy", goodOrder, status(503), nil, verdict(plugin.ClassTransient, plugin.ReasonTransient, "503"), true, false},
		{"gateway broken", goodOrder, status(500), nil, verdict(plugin.ClassTransient, plugin.ReasonTransient, "500"), true, false},
		{"card declined", goodOrder, status(402), nil, verdict(plugin.ClassPermanent, plugin.ReasonPermanent, "402"), true, false},
		{"contract broken", goodOrder, status(400), nil, verdict(plugin.ClassPermanent, plugin.ReasonPermanent, "400"), true, false},
		{"connection cut", goodOrder, cut, nil, verdict(plugin.ClassTransient, plugin.ReasonTransient, "0"), true, false},
		{"serialization failure", goodOrder, status(201), pg("40001"), verdict(plugin.ClassTransient, plugin.ReasonTransient, "40001"), true, true},
		{"constraint violated", goodOrder, status(201), pg("23514"), verdict(plugin.ClassPermanent, plugin.ReasonPermanent, "23514"), true, true},
		{"query timed out", goodOrder, status(201), context.DeadlineExceeded, verdict(plugin.ClassTransient, plugin.ReasonTransient, ""), true, true},
		{"unknown", goodOrder, status(201), errors.New("temporary failure, please retry"), verdict(plugin.ClassPermanent, plugin.ReasonPermanent, ""), true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var charges atomic.Int32
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				charges.Add(1)
				tt.gateway(w, r)
			}))
			defer srv.Close()
			client := payment.NewClient(srv.URL)
			defer client.Close()
			db := &database{err: tt.db}
			h := New(client, postgres.New(db))

			err := h.Handle(t.Context(), &plugin.Message{ID: "orders.confirmed/0/7@1", Value: []byte(tt.value)})
			got := plugin.Classify(err, plugin.Circumstances{}, Classify)
			if got.Class != tt.want.Class || got.Reason != tt.want.Reason || got.Code != tt.want.Code {
				t.Errorf("%v:\ngot  class %d, reason %q, code %q (rule %s)\nwant class %d, reason %q, code %q",
					err, got.Class, got.Reason, got.Code, got.Rule, tt.want.Class, tt.want.Reason, tt.want.Code)
			}
			if (charges.Load() == 1) != tt.charged || (db.statements == 1) != tt.stored {
				t.Errorf("%d charges, %d statements; want charged %v, stored %v", charges.Load(), db.statements, tt.charged, tt.stored)
			}
		})
	}
}

func verdict(c plugin.Class, r plugin.Reason, code string) plugin.Verdict {
	return plugin.Verdict{Class: c, Reason: r, Code: code}
}

// Two deliveries of one record ask for one and the same charge.
func TestChargeIsKeyedByTheRecord(t *testing.T) {
	var keys []string
	var amounts []int64
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		var c payment.Charge
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &c); err != nil {
			t.Error(err)
		}
		amounts = append(amounts, c.AmountCents)
	}))
	defer srv.Close()
	client := payment.NewClient(srv.URL)
	defer client.Close()
	h := New(client, postgres.New(&database{}))
	for attempt := 1; attempt <= 2; attempt++ {
		m := &plugin.Message{ID: "orders.confirmed/0/7@1", Attempt: attempt, Value: []byte(goodOrder)}
		if err := h.Handle(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if len(keys) != 2 || keys[0] != "orders.confirmed/0/7@1" || keys[1] != keys[0] || amounts[0] != 500 {
		t.Errorf("keys %q, amounts %v", keys, amounts)
	}
}

// Wrapped errors are found, and a text that only looks like one is not.
func TestClassifyLooksAtTypesThroughWrapping(t *testing.T) {
	tests := []struct {
		err   error
		class plugin.Class
		ok    bool
	}{
		{errors.Join(errors.New("first"), &payment.GatewayError{StatusCode: 503, Err: io.EOF}), plugin.ClassTransient, true},
		{&payment.GatewayError{StatusCode: 404, Err: io.EOF}, plugin.ClassPermanent, true},
		{&payment.GatewayError{StatusCode: 302, Err: io.EOF}, plugin.ClassPermanent, true},
		{&order.ValidationError{Field: "items"}, plugin.ClassPermanent, true},
		{errors.New("gateway payments 503: busy"), plugin.ClassUnspecified, false},
	}
	for _, tt := range tests {
		v, ok := Classify(tt.err)
		if v.Class != tt.class || ok != tt.ok {
			t.Errorf("%v: class %d, %v; want %d, %v", tt.err, v.Class, ok, tt.class, tt.ok)
		}
	}
}
