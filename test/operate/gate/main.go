// Gate is a handler whose cause of failure can be repaired: it refuses every
// record, for good, until the file that GATE names is there, and those whose
// value begins with "bad" even then. GATE_LOG names the file to which it writes
// the id of each record that it has handled, a line each.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/kconsume/kconsume/plugin"
)

func main() {
	log, err := os.OpenFile(os.Getenv("GATE_LOG"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gate: GATE_LOG:", err)
		os.Exit(1)
	}
	plugin.Serve(plugin.Config{Name: "gate", Version: "1"}, plugin.HandlerFunc(func(_ context.Context, m *plugin.Message) error {
		if bytes.HasPrefix(m.Value, []byte("bad")) {
			return plugin.Permanent(errors.New("the order has no items"))
		}
		if _, err := os.Stat(os.Getenv("GATE")); err != nil {
			return plugin.Permanent(fmt.Errorf("table invoices of %d is locked", m.Offset))
		}
		fmt.Fprintln(log, m.ID) // one write a line: appends do not mix
		return nil
	}))
}
