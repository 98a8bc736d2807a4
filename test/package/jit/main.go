// Jit is a handler that wants memory it can write and execute, as a language
// that compiles while it runs does, and ends without it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/kconsume/kconsume/plugin"
	"golang.org/x/sys/unix"
)

func main() {
	if _, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
		fmt.Fprintln(os.Stderr, "jit: make executable memory:", err)
		os.Exit(1)
	}
	plugin.Serve(plugin.Config{Name: "jit", Version: "1"}, plugin.HandlerFunc(func(context.Context, *plugin.Message) error { return nil }))
}
