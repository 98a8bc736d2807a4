// Command orders is a kconsume handler as a shop would write it: it checks
// confirmed orders, charges them through a payment gateway and keeps them.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugins/examples/orders/handler"
	"github.com/kconsume/kconsume/plugins/examples/orders/payment"
	"github.com/kconsume/kconsume/plugins/examples/orders/store"
	"github.com/kconsume/kconsume/plugins/examples/orders/store/postgres"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = "dev"

const (
	defaultGateway = "http://127.0.0.1:8080"
	exitConfig     = 78 // as in sysexits.h
	// keptInMemory is how many orders are kept where there is no database.
	keptInMemory = 10_000
)

func main() {
	kept, err := openStore(os.Getenv("DATABASE_URL"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(exitConfig)
	}
	gateway := payment.NewClient(cmp.Or(os.Getenv("PAYMENTS_URL"), defaultGateway))
	plugin.Serve(plugin.Config{
		Name:        "orders",
		Version:     version,
		Topics:      []string{"orders.confirmed"},
		Classifiers: []plugin.Classifier{handler.Classify},
	}, handler.New(gateway, kept))
}

// openStore keeps orders in memory unless a database is named. It connects
// when the first order is saved: a database that is away for a moment is a
// transient error of that order, not a handler that does not start.
func openStore(database string) (store.Store, error) {
	if database == "" {
		return store.NewMemory(keptInMemory), nil
	}
	pool, err := pgxpool.New(context.Background(), database)
	if err != nil {
		return nil, fmt.Errorf("open the database of DATABASE_URL: %w", err)
	}
	return postgres.New(pool), nil
}
