package postgres

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/kconsume/kconsume/plugins/examples/orders/order"
)

// recorder is a DB that keeps what it was asked and fails as told.
type recorder struct {
	sql  string
	args []any
	err  error
}

func (r *recorder) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	r.sql, r.args = sql, args
	return pgconn.NewCommandTag("INSERT 0 1"), r.err
}

func TestSave(t *testing.T) {
	db := &recorder{}
	o := &order.Order{ID: "1001", Customer: "anna", Currency: "EUR", TotalCents: 500,
		Items: []order.Item{{SKU: "pen", Quantity: 1, PriceCents: 500}}}
	if err := New(db).Save(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if db.sql != insert {
		t.Errorf("ran %q", db.sql)
	}
	if want := []any{"1001", "anna", "EUR", int64(500)}; !slices.Equal(db.args[:4], want) {
		t.Errorf("arguments %v, want %v", db.args[:4], want)
	}
	if items, want := string(db.args[4].([]byte)), `[{"sku":"pen","quantity":1,"price_cents":500}]`; items != want {
		t.Errorf("items %s, want %s", items, want)
	}
}

func TestSaveKeepsTheServersError(t *testing.T) {
	db := &recorder{err: &pgconn.PgError{Severity: "ERROR", Code: "40001", Message: "could not serialize access"}}
	err := New(db).Save(t.Context(), &order.Order{ID: "1001"})
	pe, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pe.Code != "40001" {
		t.Errorf("%v (%T), want a *pgconn.PgError with code 40001 in the chain", err, err)
	}
}
