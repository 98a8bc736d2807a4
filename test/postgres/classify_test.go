package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/kconsume/kconsume/plugin"
)

// connect opens a connection that ends with the test.
func connect(t *testing.T, s *Server) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) }) // may be cut already
	return c
}

func run(t *testing.T, c *pgx.Conn, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := c.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func failing(c *pgx.Conn, statement string) func(*testing.T) error {
	return func(t *testing.T) error {
		_, err := c.Exec(t.Context(), statement)
		return err
	}
}

// What PostgreSQL and pgx really return, by the rule that plugin.Classify finds.
func TestClassifyErrorsOfPostgreSQL(t *testing.T) {
	const connections = 12
	s := Start(t, fmt.Sprint("max_connections=", connections), "superuser_reserved_connections=0", "deadlock_timeout=10ms")
	c := connect(t, s)
	run(t, c, "CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL CHECK (n >= 0))", "INSERT INTO t VALUES (1, 1), (2, 2)")

	for _, k := range []struct {
		name  string
		fail  func(*testing.T) error
		class plugin.Class
		rule  string
		code  string
	}{
		{"08: a message that does not fit", func(t *testing.T) error {
			return c.PgConn().ExecParams(t.Context(), "SELECT 1", [][]byte{[]byte("x")}, nil, nil, nil).Read().Err
		}, plugin.ClassTransient, "sqlstate", "08P01"},
		{"40: serialization failure", func(t *testing.T) error { return unserializable(t, s) }, plugin.ClassTransient, "sqlstate", "40001"},
		{"40: deadlock", func(t *testing.T) error { return deadlock(t, s) }, plugin.ClassTransient, "sqlstate", "40P01"},
		{"57P: terminated by an administrator", func(t *testing.T) error { return terminated(t, s, c) }, plugin.ClassTransient, "sqlstate", "57P01"},
		{"22: division by zero", failing(c, "SELECT 1/(SELECT 0)"), plugin.ClassPermanent, "sqlstate", "22012"},
		{"22: no number", failing(c, "SELECT 'x'::int"), plugin.ClassPermanent, "sqlstate", "22P02"},
		{"23: unique", failing(c, "INSERT INTO t VALUES (1, 1)"), plugin.ClassPermanent, "sqlstate", "23505"},
		{"23: not null", failing(c, "INSERT INTO t VALUES (3, NULL)"), plugin.ClassPermanent, "sqlstate", "23502"},
		{"23: check", failing(c, "INSERT INTO t VALUES (3, -1)"), plugin.ClassPermanent, "sqlstate", "23514"},
		{"42: syntax", failing(c, "SELEKT 1"), plugin.ClassPermanent, "sqlstate", "42601"},
		{"42: no table", failing(c, "SELECT * FROM nowhere"), plugin.ClassPermanent, "sqlstate", "42P01"},
		{"another class: statement timeout", func(t *testing.T) error {
			run(t, c, "SET statement_timeout = 1")
			_, err := c.Exec(t.Context(), "SELECT pg_sleep(60)")
			run(t, c, "SET statement_timeout = 0")
			return err
		}, plugin.ClassPermanent, plugin.RuleUnknown, "57014"},
		{"deadline", func(t *testing.T) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, err := connect(t, s).Exec(ctx, "SELECT pg_sleep(60)")
			return err
		}, plugin.ClassTransient, "temporary", ""},
		{"a connection that was lost before", func(t *testing.T) error {
			lost := connect(t, s)
			terminate(t, c, lost)
			_, _ = lost.Exec(t.Context(), "SELECT 1") // tells it
			_, err := lost.Exec(t.Context(), "SELECT 1")
			return err
		}, plugin.ClassTransient, "safe-to-retry", ""},
		{"database/sql, a lost connection", func(t *testing.T) error { err, _ := badConn(t, s, c); return err }, plugin.ClassTransient, "network", ""},
		{"database/sql, it was lost before", func(t *testing.T) error { _, err := badConn(t, s, c); return err }, plugin.ClassTransient, "network", ""},
		{"no such database", func(t *testing.T) error {
			_, err := pgx.Connect(t.Context(), s.URL()+" dbname=nowhere")
			return err
		}, plugin.ClassPermanent, plugin.RuleUnknown, "3D000"},
		// The last two: after them nobody can connect.
		{"53: too many connections", func(t *testing.T) error { return exhaust(t, s, connections) }, plugin.ClassTransient, "sqlstate", "53300"},
		{"server gone", func(t *testing.T) error {
			if err := s.Stop(); err != nil {
				t.Fatal(err)
			}
			_, err := pgx.Connect(t.Context(), s.URL())
			return err
		}, plugin.ClassTransient, "network", ""},
	} {
		t.Run(k.name, func(t *testing.T) {
			err := k.fail(t)
			if err == nil {
				t.Fatal("it did not fail")
			}
			v := plugin.Classify(fmt.Errorf("wrapped: %w", err), plugin.Circumstances{})
			if v.Class != k.class || v.Rule != k.rule || v.Code != k.code {
				t.Errorf("%v (%T): %v by rule %q, code %q, want %v by rule %q, code %q", err, err, v.Class, v.Rule, v.Code, k.class, k.rule, k.code)
			}
		})
	}
}

// unserializable is what the second of two transactions gets that read what the
// other one writes.
func unserializable(t *testing.T, s *Server) error {
	a, b := connect(t, s), connect(t, s)
	for _, c := range []*pgx.Conn{a, b} {
		run(t, c, "BEGIN ISOLATION LEVEL SERIALIZABLE", "SELECT sum(n) FROM t")
	}
	run(t, a, "UPDATE t SET n = n + 1 WHERE id = 1", "COMMIT")
	_, err := b.Exec(t.Context(), "UPDATE t SET n = n + 1 WHERE id = 1")
	return err
}

// deadlock is what one of two transactions gets that wait for each other.
func deadlock(t *testing.T, s *Server) error {
	a, b := connect(t, s), connect(t, s)
	run(t, a, "BEGIN", "UPDATE t SET n = 3 WHERE id = 1")
	run(t, b, "BEGIN", "UPDATE t SET n = 3 WHERE id = 2")
	other := make(chan error, 1)
	go func() {
		_, err := a.Exec(context.Background(), "UPDATE t SET n = 3 WHERE id = 2")
		if err == nil {
			_, err = a.Exec(context.Background(), "ROLLBACK")
		}
		other <- err
	}()
	_, err := b.Exec(t.Context(), "UPDATE t SET n = 3 WHERE id = 1")
	if err == nil { // the other one is the victim, and b goes on
		return <-other
	}
	run(t, b, "ROLLBACK")
	if err := <-other; err != nil {
		t.Errorf("both failed: %v", err)
	}
	return err
}

// exhaust opens connections until there are no more.
func exhaust(t *testing.T, s *Server, most int) error {
	for range most + 1 {
		c, err := pgx.Connect(t.Context(), s.URL())
		if err != nil {
			return err
		}
		defer c.Close(context.Background())
	}
	return nil
}

// terminate has the server end victim's connection.
func terminate(t *testing.T, c, victim *pgx.Conn) {
	t.Helper()
	var ok bool
	if err := c.QueryRow(t.Context(), "SELECT pg_terminate_backend($1, 60000)", victim.PgConn().PID()).Scan(&ok); err != nil || !ok {
		t.Fatalf("terminate: %v, %v", ok, err)
	}
}

// terminated is what a query gets whose connection the server ends.
func terminated(t *testing.T, s *Server, c *pgx.Conn) error {
	victim := connect(t, s)
	failed := make(chan error, 1)
	go func() {
		_, err := victim.Exec(context.Background(), "SELECT pg_sleep(3600)")
		failed <- err
	}()
	for active := false; !active; {
		const state = "SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'"
		if err := c.QueryRow(t.Context(), state, victim.PgConn().PID()).Scan(&active); err != nil {
			t.Fatal(err)
		}
	}
	terminate(t, c, victim)
	return <-failed
}

// badConn is what database/sql says of a connection of one's own: first when it
// sees that it is lost, and then.
func badConn(t *testing.T, s *Server, c *pgx.Conn) (seen, then error) {
	config, err := pgx.ParseConfig(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { db.Close() })
	own, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if err := own.Raw(func(d any) error { terminate(t, c, d.(*stdlib.Conn).Conn()); return nil }); err != nil {
		t.Fatal(err)
	}
	for !errors.Is(seen, driver.ErrBadConn) { // the first one may read the server's word
		if _, seen = own.ExecContext(t.Context(), "SELECT 1"); seen == nil {
			t.Fatal("a lost connection answers")
		}
	}
	_, then = own.ExecContext(t.Context(), "SELECT 1")
	if !errors.Is(then, sql.ErrConnDone) {
		t.Errorf("the next error: %v", then)
	}
	return seen, then
}
