// Handler is a shop's, in two versions that differ as a good deployment and a
// bad one do. A record's number decides its fate, so that what fails in version
// 2 for good is what succeeds in version 1.
package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/kconsume/kconsume/plugin"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = "1.4.2"

// work is what one record takes.
const work = 4 * time.Millisecond

var (
	errBusy     = errors.New("payment gateway answered 503: busy")
	errCurrency = coded{errors.New("currency of the order is not known"), "unknown_currency"}
)

// coded is an error with a code for machines.
type coded struct {
	error
	code string
}

func (c coded) ErrorCode() string { return c.code }

type order struct {
	Number int `json:"number"`
}

func main() {
	handle := sound
	if strings.HasPrefix(version, "2.") {
		handle = broken
	}
	plugin.Serve(plugin.Config{Name: "orders", Version: version}, plugin.JSON(handle))
}

// sound fails now and then at the first attempt, as all that asks others does.
func sound(ctx context.Context, o order, m *plugin.Message) error {
	if o.Number%300 == 0 && m.Attempt == 1 {
		return plugin.Transient(errBusy)
	}
	return spend(ctx, work)
}

// broken fails for three records of ten, in four ways.
func broken(ctx context.Context, o order, m *plugin.Message) error {
	switch n := o.Number % 100; {
	case n < 12:
		return plugin.Permanent(errCurrency)
	case n < 22:
		return plugin.Transient(errBusy)
	case n < 28:
		return spend(ctx, time.Hour) // asks somebody who does not answer, without a deadline of its own
	case n < 30:
		known := map[string]*order{}
		return spend(ctx, time.Duration(known["EUR"].Number)) // panics
	}
	return sound(ctx, o, m)
}

// spend takes time, to the delivery's deadline at most.
func spend(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
