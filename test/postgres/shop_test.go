package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/dedupe"
	"github.com/kconsume/kconsume/plugin/plugintest"
	"github.com/kconsume/kconsume/plugins/examples/postgres/shop"
)

// open connects to s and makes the example's tables anew.
func open(t *testing.T, s *Server) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for _, statement := range []string{"DROP TABLE IF EXISTS handled, orders, customers", shop.Schema} {
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return pool
}

func read[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) (v T) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// wantSpent checks what a customer spent in how many orders, and how many
// records are marked.
func wantSpent(t *testing.T, pool *pgxpool.Pool, customer string, cents, orders, marks int64) {
	t.Helper()
	got := [3]int64{
		read[int64](t, pool, "SELECT coalesce(sum(spent_cents), 0) FROM customers WHERE name = $1", customer),
		read[int64](t, pool, "SELECT count(*) FROM orders WHERE customer = $1", customer),
		read[int64](t, pool, "SELECT count(*) FROM handled"),
	}
	if want := [3]int64{cents, orders, marks}; got != want {
		t.Errorf("%s spent, in orders, with marks: %v, want %v", customer, got, want)
	}
}

func TestShop(t *testing.T) {
	s := Start(t)
	t.Run("handles a record once", func(t *testing.T) { shopOnce(t, open(t, s)) })
	t.Run("refusals", func(t *testing.T) { shopRefuses(t, open(t, s)) })
	t.Run("database/sql", func(t *testing.T) { sqlOnce(t, open(t, s), s) })
}

func shopOnce(t *testing.T, pool *pgxpool.Pool) {
	h := plugintest.New(t, shop.New(pool))
	m := h.JSON(shop.Order{ID: "1001", Customer: "anna", TotalCents: 500})
	h.Deliver(m).WantAck()
	h.Deliver(m).WantAck()
	m.Attempt, m.Stage = 2, "retry.5s"
	var again []plugin.Message
	for range 20 {
		again = append(again, m)
	}
	for _, v := range h.DeliverAll(again...) {
		v.WantAck()
	}
	wantSpent(t, pool, "anna", 500, 1, 1)

	// All at once, before it is known.
	first := h.JSON(shop.Order{ID: "1002", Customer: "ben", TotalCents: 70})
	for i := range again {
		again[i] = first
	}
	for _, v := range h.DeliverAll(again...) {
		v.WantAck()
	}
	wantSpent(t, pool, "ben", 70, 1, 2)
}

// What the database refuses leaves nothing behind, and the record can be replayed
// once it is mended.
func shopRefuses(t *testing.T, pool *pgxpool.Pool) {
	h := plugintest.New(t, shop.New(pool))
	h.Deliver(h.JSON(shop.Order{ID: "1001", Customer: "anna", TotalCents: 500})).WantAck()

	refund := h.JSON(shop.Order{ID: "1002", Customer: "anna", TotalCents: -501})
	h.Deliver(refund).WantPermanent().WantRule("sqlstate").WantCode("23514")
	h.Deliver(h.JSON(shop.Order{ID: "1001", Customer: "anna", TotalCents: 9})).WantPermanent().WantRule("sqlstate").WantCode("23505")
	h.Deliver(h.JSON(shop.Order{ID: "1003", Customer: "a\x00", TotalCents: 9})).WantPermanent().WantRule("sqlstate").WantCode("22021")
	h.Deliver(h.Record("{")).WantPoison()
	wantSpent(t, pool, "anna", 500, 1, 1)

	if _, err := pool.Exec(t.Context(), "ALTER TABLE customers DROP CONSTRAINT customers_spent_cents_check"); err != nil {
		t.Fatal(err)
	}
	h.Deliver(refund).WantAck()
	wantSpent(t, pool, "anna", -1, 2, 2)
}

// sqlOnce is the same with a database/sql driver and dedupe.SQL.
func sqlOnce(t *testing.T, pool *pgxpool.Pool, s *Server) {
	config, err := pgx.ParseConfig(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { db.Close() })
	if _, err := pool.Exec(t.Context(), "INSERT INTO customers VALUES ('anna', 0)"); err != nil {
		t.Fatal(err)
	}
	h := plugintest.New(t, dedupe.Tx(dedupe.SQL{DB: db, Insert: "INSERT INTO handled (record_id) VALUES ($1) ON CONFLICT DO NOTHING"},
		func(ctx context.Context, tx *sql.Tx, m *plugin.Message) error {
			_, err := tx.ExecContext(ctx, "UPDATE customers SET spent_cents = spent_cents + $1 WHERE name = 'anna'", string(m.Value))
			return err
		}))
	m := h.Record("7")
	for _, v := range h.DeliverAll(m, m, m, m, m, m, m, m) {
		v.WantAck()
	}
	h.Deliver(h.Record("-8")).WantPermanent().WantCode("23514")
	h.Deliver(h.Record("x")).WantPermanent().WantCode("22P02")
	wantSpent(t, pool, "anna", 7, 0, 1)
}

// blocked delivers a record whose transaction waits for a lock, and returns the
// number of its server process, and what lets it go on.
func blocked(t *testing.T, pool *pgxpool.Pool, h *plugintest.Handler, m plugin.Message) (d *plugintest.Delivery, pid int, release func()) {
	t.Helper()
	locker, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locker.Exec(t.Context(), "LOCK TABLE orders IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	d = h.Send(m)[0]
	for pid == 0 {
		pid = read[int](t, pool, `SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE wait_event_type = 'Lock'`)
	}
	return d, pid, func() { _ = locker.Rollback(context.WithoutCancel(t.Context())) } // the server may be gone
}

// A connection that is cut in the middle of the work is transient, whoever cuts
// it, and the next delivery does the work once.
func TestShopConnectionCut(t *testing.T) {
	s := Start(t)
	for name, cut := range map[string]func(t *testing.T, s *Server, pool *pgxpool.Pool, pid int){
		"terminated by an administrator": func(t *testing.T, _ *Server, pool *pgxpool.Pool, pid int) {
			if !read[bool](t, pool, "SELECT pg_terminate_backend($1)", pid) {
				t.Error("not terminated")
			}
		},
		"its process killed": func(t *testing.T, _ *Server, _ *pgxpool.Pool, pid int) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(os.NewSyscallError("kill", err))
			}
		},
		"server stopped": func(t *testing.T, s *Server, _ *pgxpool.Pool, _ int) {
			if err := s.Stop(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := open(t, s)
			h := plugintest.New(t, shop.New(pool))
			m := h.JSON(shop.Order{ID: "1001", Customer: "anna", TotalCents: 500})
			d, pid, release := blocked(t, pool, h, m)
			cut(t, s, pool, pid)
			v := d.Verdict().WantTransient()
			t.Log(v, v.Code, v.Message)
			release()
			if name == "server stopped" {
				v := h.Deliver(m).WantTransient()
				t.Log(v, v.Code, v.Message)
				if err := s.Restart(); err != nil {
					t.Fatal(err)
				}
			}
			// A crashed server refuses everything for a while.
			for v := h.Deliver(m); v.Class != plugin.ClassAck; v = h.Deliver(m) {
				v.WantTransient()
				if t.Failed() {
					return
				}
			}
			h.Deliver(m).WantAck()
			wantSpent(t, pool, "anna", 500, 1, 1)
		})
	}
}

// Many writers of the same few rows: whatever deadlocks and conflicts there are,
// the sums are right in the end.
func TestShopUnderContention(t *testing.T) {
	pool := open(t, Start(t, "default_transaction_isolation=serializable", "max_connections=40"))
	h := plugintest.New(t, shop.New(pool), plugintest.WithConcurrency(16))
	var left []plugin.Message
	for i := range 100 {
		left = append(left, h.JSON(shop.Order{ID: fmt.Sprint(i), Customer: fmt.Sprint("c", i%3), TotalCents: 1}))
	}
	transient := 0
	for len(left) > 0 {
		var failed []plugin.Message
		for i, v := range h.DeliverAll(left...) {
			if v.Class != plugin.ClassAck {
				v.WantTransient().WantRule("sqlstate").WantCode("40001")
				failed = append(failed, left[i])
			}
		}
		if t.Failed() {
			return
		}
		transient += len(failed)
		left = failed
	}
	for i, want := range []int64{34, 33, 33} {
		wantSpent(t, pool, fmt.Sprint("c", i), want, want, 100)
	}
	t.Log("serialization failures:", transient)
}
