package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	outside "github.com/kconsume/kconsume/plugin/printable"
)

// printJSON prints v, indented.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(outside.Log(w))
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// table prints rows in columns; the first is the head. Whatever is in a cell
// stays in it.
func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		cells := make([]string, len(r))
		for i := range r {
			cells[i] = printable(r[i])
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
