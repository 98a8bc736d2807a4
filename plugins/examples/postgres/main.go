// Command postgres is a kconsume handler that writes orders to PostgreSQL,
// exactly once for each record, whatever crashes.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugins/examples/postgres/shop"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = "dev"

const exitConfig = 78 // as in sysexits.h

func main() {
	// It connects when the first record comes: a database that is away for a
	// moment is that record's transient error, not a handler that does not start.
	pool, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "open the database of DATABASE_URL:", err)
		os.Exit(exitConfig)
	}
	plugin.Serve(plugin.Config{
		Name:    "postgres",
		Version: version,
		Topics:  []string{"orders.confirmed"},
		Close:   pool.Close,
	}, shop.New(pool))
}
