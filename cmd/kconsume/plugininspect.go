package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
	"github.com/kconsume/kconsume/plugin/host"
)

func pluginInspectCommand() command {
	return command{name: "inspect", args: []string{"FILE|NAME"}, usage: "start a handler, show what it says of itself, and stop it",
		description: "A name is looked up as kconsume-handler-NAME in the directories of --handler-dir; a FILE has a slash in it.",
		use:         option.Handlers | option.Launch | option.Print, forms: []string{"jsonl"}, action: pluginInspect}
}

// inspectedHandler is what is to be known about a handler.
type inspectedHandler struct {
	Name         string   `json:"name"`
	Version      string   `json:"version"`
	SDK          string   `json:"sdk"`
	Topics       []string `json:"topics"`
	Capabilities []string `json:"capabilities"`
	MaxRecords   int      `json:"max_records"` // in flight, 0 = no limit of its own
	MaxBytes     int      `json:"max_bytes"`   // in flight, 0 = no limit of its own
	BeatsMayWait bool     `json:"beats_may_wait"`
	Path         string   `json:"path"`
	SHA256       string   `json:"sha256"`
	Notes        []string `json:"notes"`    // what speaks against the file
	HelloMS      float64  `json:"hello_ms"` // from the start of the process to its Hello
}

func pluginInspect(ctx context.Context, in *invocation) error {
	c, err := in.handlerFile(in.args[0], byName(in.args[0]))
	if err != nil {
		return err
	}
	c.Logger = slog.New(slog.DiscardHandler)
	defer os.RemoveAll(c.SocketDir)
	sum, script, err := digest(c.Path)
	if err != nil {
		return err
	}
	began := time.Now()
	h, err := host.Start(ctx, c)
	if err != nil {
		return err
	}
	took := time.Since(began)
	hello := h.Hello()
	out := inspectedHandler{
		Name: text(hello.Name), Version: text(hello.Version), SDK: text(hello.SDK), Topics: texts(hello.Topics), Capabilities: texts(hello.Capabilities),
		MaxRecords: hello.MaxRecords, MaxBytes: hello.MaxBytes, BeatsMayWait: hello.BeatsMayWait,
		Path: c.Path, SHA256: sum, Notes: notes(c, script), HelloMS: float64(took.Microseconds()) / 1000,
	}
	if err := stopHandler(h); err != nil {
		out.Notes = append(out.Notes, err.Error())
	}
	return out.print(in)
}

// notes are what keeps a file from being run by its name, and what a pin of it
// leaves open.
func notes(c host.Config, script bool) []string {
	out := []string{}
	for _, e := range leaves(host.Check(c.Path, host.TrustStrict, "")) {
		out = append(out, "found by name it would be refused: "+strings.TrimPrefix(e.Error(), "check handler "+c.Path+": "))
	}
	if script {
		out = append(out, "it is a script: its sha256 does not cover the files that it starts")
	}
	return out
}

// digest is a file's SHA-256 in hex, and whether it begins as a script does.
func digest(path string) (sum string, script bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", false, fmt.Errorf("read handler: %w", err)
	}
	defer f.Close()
	first := make([]byte, 2)
	n, err := io.ReadFull(f, first)
	h := sha256.New()
	h.Write(first[:n])
	if err == nil {
		_, err = io.Copy(h, f)
	}
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return "", false, fmt.Errorf("read handler: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), string(first) == "#!", nil
}

func (h *inspectedHandler) print(in *invocation) error {
	switch in.opts.Text("output") {
	case "json":
		return printJSON(in.stdout, h)
	case "jsonl":
		return printJSONLines(in.stdout, []*inspectedHandler{h})
	}
	limit := func(n int, unit string) string {
		if n == 0 {
			return "none of its own"
		}
		return strconv.Itoa(n) + " " + unit
	}
	beats := "answered while it works"
	if h.BeatsMayWait {
		beats = "may wait while it works"
	}
	rows := [][]string{
		{"name", printable(h.Name)},
		{"version", orDash(printable(h.Version))},
		{"sdk", orDash(printable(h.SDK))},
		{"topics", orDash(printable(strings.Join(h.Topics, ", ")))},
		{"capabilities", orDash(printable(strings.Join(h.Capabilities, ", ")))},
		{"limit of records", limit(h.MaxRecords, "in flight")},
		{"limit of bytes", limit(h.MaxBytes, "in flight")},
		{"heartbeats", beats},
		{"path", h.Path},
		{"sha256", h.SHA256},
		{"started in", fmt.Sprintf("%.1fms", h.HelloMS)},
	}
	for _, n := range h.Notes {
		rows = append(rows, []string{"note", printable(n)})
	}
	return table(in.stdout, rows)
}

func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func texts(list []string) []string {
	out := []string{}
	for _, s := range list {
		out = append(out, text(s))
	}
	return out
}
