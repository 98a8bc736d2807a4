// Package dedupe keeps a handler from doing the same record's work twice.
//
// kconsume delivers each record at least once. It comes again when an answer got
// lost: with a crash, a cut connection, a rebalance, a replay. Message.ID is the
// same each time; what has been done is remembered by it.
//
//	                        a record is delivered twice when     its effect happens
//	Handler with a Memory   the handler's process went on        once
//	                        the process, or another one, got     twice
//	                        it after a crash or a rebalance
//	Handler with a Store    the process crashed between the      twice
//	of a database           effect and the mark
//	                        anything else                        once
//	Tx                      whatever happened                    once
//
// Only Tx is exactly once, because there the mark and the effect are one
// transaction. What a transaction cannot take back (a mail, a call of another
// service) no bookkeeping makes exactly once: give that service Message.ID as its
// idempotency key.
package dedupe

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/kconsume/kconsume/plugin"
)

// Store remembers ids of records. An id is unknown, under way, or done:
//
//	unknown    Begin → under way
//	under way  End(done) → done;  End(not done) → unknown;  Begin waits for End
//	done       Begin tells so;  forgotten in time → unknown
//
// It is used by many goroutines at once.
type Store interface {
	// Begin makes an unknown id one under way, or tells that it is done. While
	// another delivery has it under way it waits, no longer than ctx. A store that
	// outlives a process must let what is under way expire, or a crash would leave
	// an id so for ever.
	Begin(ctx context.Context, id string) (done bool, err error)
	// End says how it went, once for each Begin that neither failed nor told that
	// the id is done. ctx is not cancelled, whatever became of the delivery.
	End(ctx context.Context, id string, done bool) error
}

// Handler calls next for records that s does not know as done, and acknowledges
// the others.
//
//   - next returns nil: done. It returns an error, or panics: not done, the next
//     delivery calls it again. It outlives its deadline and then returns nil: done.
//   - Two deliveries of one id at once: the second waits, and then is acknowledged
//     or calls next, as the first went. If its deadline comes first it times out.
//   - s fails before next is called: transient, next is not called. It fails
//     afterwards: the record is acknowledged and the failure logged; its id is not
//     remembered as done.
//   - The process crashes while next runs or before its end is noted: next is
//     called again.
//   - next emitted records: not remembered, so that a repeat emits them again.
//
// A handler made by plugin.Batches is called with batches of one.
func Handler(s Store, next plugin.Handler) plugin.Handler {
	return plugin.HandlerFunc(func(ctx context.Context, m *plugin.Message) error {
		known, err := s.Begin(ctx, m.ID)
		if err != nil {
			return plugin.Transient(fmt.Errorf("look up record %s: %w", m.ID, err))
		}
		if known {
			return nil
		}
		done := false
		defer func() {
			if err := s.End(context.WithoutCancel(ctx), m.ID, done); err != nil {
				slog.Warn("the end of a record's handling is not remembered", "record", m.ID, "done", done, "error", err.Error())
			}
		}()
		err = next.Handle(ctx, m)
		done = err == nil && len(m.Emitted()) == 0
		return err
	})
}
