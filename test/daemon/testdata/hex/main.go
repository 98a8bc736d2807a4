// Hex is a handler that writes down what it was given, byte for byte, and whose
// own texts are not UTF-8. The file that HEX_LOG names gets a line for each
// delivery: attempt, key, value, and each header's name and value, in hex; "-"
// is null.
package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/kconsume/kconsume/plugin"
)

// badError has a text and a code that are not UTF-8.
type badError struct{}

func (badError) Error() string     { return "bad \xff\xfe" }
func (badError) ErrorCode() string { return "\xc3\x28" }

func main() {
	log, err := os.OpenFile(os.Getenv("HEX_LOG"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, "hex: HEX_LOG:", err)
		os.Exit(1)
	}
	plugin.Serve(plugin.Config{Name: "hex", Version: "1\xff"}, plugin.HandlerFunc(func(_ context.Context, m *plugin.Message) error {
		fields := []string{fmt.Sprint(m.Attempt), show(m.Key), show(m.Value)}
		for _, h := range m.Headers {
			fields = append(fields, show([]byte(h.Key))+"="+show(h.Value))
		}
		fmt.Fprintln(log, strings.Join(fields, " ")) // one write a line
		switch string(m.Value) {
		case "bad error":
			return plugin.Permanent(badError{})
		case "bad line":
			fmt.Fprintln(os.Stderr, "a line with \xff and \x1b[31m in it")
		case "good error":
			return plugin.Permanent(errors.New("no such customer"))
		}
		return nil
	}))
}

func show(b []byte) string {
	if b == nil {
		return "-"
	}
	return `"` + hex.EncodeToString(b) + `"`
}
