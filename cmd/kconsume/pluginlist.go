package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
	"github.com/kconsume/kconsume/plugin/host"
)

func pluginListCommand() command {
	return command{name: "list", usage: "show the handlers that can be named",
		description: "Lists every kconsume-handler-NAME in the directories of --handler-dir. Of two with one name the first is taken,\n" +
			"also where it may not be run. --inspect starts each that may be run, to ask it for its version.",
		use: option.Handlers | option.Listing | option.Print, forms: []string{"jsonl"}, action: pluginList}
}

// listedHandler is one file that is named like a handler.
type listedHandler struct {
	Name     string   `json:"name"`
	Path     string   `json:"path"`
	Version  string   `json:"version,omitempty"` // asked for with --inspect
	Trusted  bool     `json:"trusted"`
	Problems []string `json:"problems,omitempty"` // why it may not be run, or does not start
	Shadowed string   `json:"shadowed,omitempty"` // the path that is taken for its name; "" = its own
}

func pluginList(ctx context.Context, in *invocation) error {
	dirs := in.opts.List("handler-dir")
	found := in.listHandlers(dirs)
	if in.opts.Bool("inspect") {
		for i := range found {
			if found[i].Trusted {
				found[i].ask(ctx, in)
			}
		}
	}
	switch in.opts.Text("output") {
	case "json":
		return printJSON(in.stdout, found)
	case "jsonl":
		return printJSONLines(in.stdout, found)
	}
	if len(found) == 0 {
		fmt.Fprintf(in.stdout, "no handler in %s: install one as %sNAME\n", strings.Join(dirs, ", "), host.Prefix)
		return nil
	}
	rows := [][]string{{"NAME", "PATH", "VERSION", "TRUST", "TAKEN"}}
	for _, h := range found {
		trust, taken := "ok", "yes"
		if len(h.Problems) > 0 {
			trust = clip(printable(h.Problems[0]), 120)
		}
		if h.Shadowed != "" {
			taken = "no: " + h.Shadowed
		}
		rows = append(rows, []string{h.Name, h.Path, orDash(printable(h.Version)), trust, taken})
	}
	return table(in.stdout, rows)
}

// listHandlers are the handlers in dirs, in order. A directory that is not
// there is as good as an empty one.
func (in *invocation) listHandlers(dirs []string) []listedHandler {
	found := []listedHandler{}
	taken := map[string]string{}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(in.stderr, "kconsume: warning: list handlers: %v\n", err)
		}
		for _, e := range entries {
			name, ok := strings.CutPrefix(e.Name(), host.Prefix)
			if !ok || name == "" {
				continue
			}
			h := listedHandler{Name: name, Path: filepath.Join(dir, e.Name()), Trusted: true}
			for _, problem := range leaves(host.Check(h.Path, host.TrustStrict, "")) {
				h.Trusted = false
				h.Problems = append(h.Problems, strings.TrimPrefix(problem.Error(), "check handler "+h.Path+": "))
			}
			if first, ok := taken[name]; ok {
				h.Shadowed = first
			} else {
				taken[name] = h.Path
			}
			found = append(found, h)
		}
	}
	return found
}

// ask starts the handler and reads its version.
func (h *listedHandler) ask(ctx context.Context, in *invocation) {
	dir := in.socketDir(os.Getpid())
	defer os.RemoveAll(dir)
	hello, err := host.Inspect(ctx, host.Config{Path: h.Path, SocketDir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		h.Problems = append(h.Problems, err.Error())
		return
	}
	h.Version = strings.ToValidUTF8(hello.Version, "\uFFFD")
}
