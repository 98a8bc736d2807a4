// Package kcat reads and writes topics with kcat, an independent client: what
// it says about a topic owes nothing to our own code.
//
// Null, empty and bytes. kcat 1.7 can show them in three ways, and only one
// tells everything:
//
//   - -f '%s %k' prints nothing for null and for empty alike, and with -Z the
//     word NULL for both. %S and %K tell key and value apart (-1 is null, 0 is
//     empty). Headers are %h, where null is the word NULL, empty is nothing, and
//     a comma or an equals sign in a value cannot be told from a separator.
//   - -J prints null as null and empty as "", in headers too, in order and with
//     repeated names. Its strings are not quite JSON: bytes from 0x20 on stand
//     as they are, UTF-8 or not, and only quote, backslash and what is below
//     0x20 are escaped. So nothing is lost if each byte is read as one
//     character, which is what this package does.
//   - -Z while writing turns every empty key and value into null.
//
// Not writable by kcat, and refused here: a null key with an empty value (it
// skips empty lines), an empty header name, a header name with an equals sign,
// and a zero byte in a header.
package kcat

import (
	"bytes"
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/kconsume/kconsume/plugin"
)

// Record is one record of a topic. A nil Key, Value or header Value is null.
type Record struct {
	Partition  int32
	Offset     int64
	Time       time.Time // zero where the record has none
	AppendTime bool      // Time is the broker's
	Key, Value []byte
	Headers    []plugin.Header
}

// timeout bounds one run of kcat, which waits for brokers for ever.
const timeout = 2 * time.Minute

// run runs kcat and returns its stdout.
func run(t testing.TB, stdin []byte, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "kcat", append([]string{"-F", "none", "-m", "30"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("run kcat: %v; make check installs it\nkcat %q\n%s", err, args, stderr.Bytes())
	}
	return stdout.Bytes()
}
