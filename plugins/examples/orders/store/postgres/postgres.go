// Package postgres keeps orders in PostgreSQL.
package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/kconsume/kconsume/plugins/examples/orders/order"
)

// DB is what is needed of a database: a pgxpool.Pool, a pgx.Conn or a pgx.Tx.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Schema is the table that Save writes to.
const Schema = `CREATE TABLE IF NOT EXISTS orders (
	id          text   PRIMARY KEY,
	customer    text   NOT NULL,
	currency    text   NOT NULL,
	total_cents bigint NOT NULL,
	items       jsonb  NOT NULL
)`

// A repeated delivery finds its row and changes nothing.
const insert = `INSERT INTO orders (id, customer, currency, total_cents, items)
VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO NOTHING`

// Store is a store.Store.
type Store struct{ db DB }

// New returns a store in db, which may be used by many goroutines at once if
// db may.
func New(db DB) *Store { return &Store{db} }

// Save inserts o. What the server refuses is a *pgconn.PgError in the chain.
func (s *Store) Save(ctx context.Context, o *order.Order) error {
	items, err := json.Marshal(o.Items)
	if err != nil {
		return fmt.Errorf("encode items of order %s: %w", o.ID, err)
	}
	if _, err := s.db.Exec(ctx, insert, o.ID, o.Customer, o.Currency, o.TotalCents, items); err != nil {
		return fmt.Errorf("store order %s: %w", o.ID, err)
	}
	return nil
}
