package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/kconsume/kconsume/admin"
	"github.com/kconsume/kconsume/plugin/host"
	outside "github.com/kconsume/kconsume/plugin/printable"
)

func pluginCommand() command {
	return command{name: "plugin", usage: "look at handlers, try them out, begin a new one", sub: []command{
		pluginListCommand(), pluginInspectCommand(), pluginTestCommand(), pluginNewCommand(),
	}}
}

// socketDir is where the socket of a handler goes that this command starts; it
// is to be removed. Its path is short, as that of a socket has to be.
func (in *invocation) socketDir(pid int) string {
	return filepath.Join(admin.RuntimeDir(in.getenv), "h"+strconv.Itoa(pid))
}

// handlerFile finds a handler that this command is to start.
func (in *invocation) handlerFile(name string, trust host.Trust) (host.Config, error) {
	return handlerAt(in, name, trust, in.socketDir(os.Getpid()), newLogger(in.opts, in.stderr))
}

// printJSONLines prints each value on a line of its own.
func printJSONLines[T any](w io.Writer, values []T) error {
	e := json.NewEncoder(outside.Log(w))
	e.SetEscapeHTML(false)
	for _, v := range values {
		if err := e.Encode(v); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}

// printable is a text from outside as a terminal may be sent it, on one line.
func printable(s string) string { return outside.Line(s) }

// clip is a text of at most n characters.
func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
