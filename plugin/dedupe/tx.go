package dedupe

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/kconsume/kconsume/plugin"
)

// Transactor is a database, with transactions of type T.
type Transactor[T any] interface {
	// Once begins a transaction, inserts id where it is unique, has effect do its
	// work in the transaction, and commits. If id is there already it calls nothing
	// and returns nil. After any error, effect's included, nothing is left of it
	// all; effect's is in what it returns.
	Once(ctx context.Context, id string, effect func(tx T) error) error
}

var errEmitted = errors.New("dedupe.Tx: the effect emits: emit behind it, in a handler around this one, or a repeated delivery would not emit")

// Tx is a handler whose effect is in a transaction that marks the record's id as
// done, too: exactly once, whatever crashes. The second delivery of a record is
// acknowledged without calling effect, even one at the same time, which waits
// for the first in the database.
//
// A connection that is cut while it commits leaves open whether it did: the
// error is transient, and the next delivery finds the mark or does the work.
//
// effect must not emit. A handler that writes and emits emits behind it:
//
//	once := dedupe.Tx(db, save)
//	plugin.HandlerFunc(func(ctx context.Context, m *plugin.Message) error {
//		if err := once.Handle(ctx, m); err != nil {
//			return err
//		}
//		m.Emit(…) // repeated with each delivery, under the same X-Emit-Id
//		return nil
//	})
func Tx[T any](db Transactor[T], effect func(context.Context, T, *plugin.Message) error) plugin.Handler {
	return plugin.HandlerFunc(func(ctx context.Context, m *plugin.Message) error {
		return db.Once(ctx, m.ID, func(tx T) error {
			err := effect(ctx, tx, m)
			if err == nil && len(m.Emitted()) > 0 {
				return plugin.Permanent(errEmitted)
			}
			return err
		})
	})
}

// SQL is a Transactor on database/sql.
type SQL struct {
	DB *sql.DB
	// Insert inserts the id, its one parameter, and affects no row if it is there
	// already:
	//
	//	INSERT INTO handled (record_id) VALUES ($1) ON CONFLICT DO NOTHING
	//
	// Let such a table forget: rows older than a record can be repeated or
	// replayed are of no use.
	Insert string
}

// Once is Transactor's.
func (s SQL) Once(ctx context.Context, id string, effect func(*sql.Tx) error) error {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin the transaction of record %s: %w", id, err)
	}
	defer tx.Rollback() // nothing, once it is committed
	result, err := tx.ExecContext(ctx, s.Insert, id)
	if err != nil {
		return fmt.Errorf("mark record %s: %w", id, err)
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("mark record %s: %w", id, err)
	}
	if rows == 0 {
		return nil
	}
	if err := effect(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit record %s: %w", id, err)
	}
	return nil
}
