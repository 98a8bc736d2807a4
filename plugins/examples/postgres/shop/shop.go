// Package shop keeps orders and what each customer has spent, exactly once for
// each record.
package shop

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/dedupe"
)

// Schema is the tables that the handler writes to.
//
//go:embed schema.sql
var Schema string

// Order is a record's value.
type Order struct {
	ID         string `json:"id"`
	Customer   string `json:"customer"`
	TotalCents int64  `json:"total_cents"`
}

// DB begins transactions: a pgxpool.Pool, or a pgx.Conn.
type DB interface {
	Begin(context.Context) (pgx.Tx, error)
}

// New is the handler. What the database refuses is a *pgconn.PgError in the
// chain: the SDK sees by its SQLSTATE whether it may pass.
func New(db DB) plugin.Handler {
	return plugin.JSON(func(ctx context.Context, o Order, m *plugin.Message) error {
		return dedupe.Tx(once{db}, func(ctx context.Context, tx pgx.Tx, _ *plugin.Message) error {
			return save(ctx, tx, o)
		}).Handle(ctx, m)
	})
}

// save is the effect: it may change what it likes, as long as it does so in tx.
func save(ctx context.Context, tx pgx.Tx, o Order) error {
	const spend = `INSERT INTO customers (name, spent_cents) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET spent_cents = customers.spent_cents + excluded.spent_cents`
	if _, err := tx.Exec(ctx, spend, o.Customer, o.TotalCents); err != nil {
		return fmt.Errorf("add order %s to what its customer spent: %w", o.ID, err)
	}
	const keep = `INSERT INTO orders (id, customer, total_cents) VALUES ($1, $2, $3)`
	if _, err := tx.Exec(ctx, keep, o.ID, o.Customer, o.TotalCents); err != nil {
		return fmt.Errorf("keep order %s: %w", o.ID, err)
	}
	return nil
}

// once is a dedupe.Transactor: the record's id and the effect are written in one
// transaction, or neither is.
type once struct{ db DB }

// Once is dedupe.Transactor's.
func (o once) Once(ctx context.Context, id string, effect func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, o.db, func(tx pgx.Tx) error {
		const mark = `INSERT INTO handled (record_id) VALUES ($1) ON CONFLICT DO NOTHING`
		tag, err := tx.Exec(ctx, mark, id)
		if err != nil {
			return fmt.Errorf("mark record %s: %w", id, err)
		}
		if tag.RowsAffected() == 0 {
			return nil // it was handled before
		}
		return effect(tx)
	})
}
