package dev

import (
	"fmt"
	"io"
	"strings"

	"github.com/kconsume/kconsume/plugin/printable"
)

// intro is what the header tells.
type intro struct {
	broker  string
	topics  []string
	tiers   []string // the stages' names, in order
	dlqs    []string
	metrics string // URL, "" = off
	console string // URL, "" = off
	samples bool   // orders are being fed to topics[0]
	handler string // "" = the built-in one
}

// header explains what will be seen and how to look for oneself.
func (i intro) header(l layout) string {
	var b strings.Builder
	b.WriteString(l.block("", []phrase{{"kconsume dev: a broker, a handler process and the engine in one place", good}}) + "\n")
	row := func(name, text string) {
		b.WriteString(l.block("  "+fill(name, nameWidth), []phrase{{text, plain}}))
	}
	// A command is copied by whoever reads it: the terminal may break it, we may not.
	command := func(name, text string) { b.WriteString("  " + fill(name, nameWidth) + text + "\n") }
	row("watch", i.story())
	row("broker", fmt.Sprintf("%s, topic %s with %d partitions", i.broker, strings.Join(i.topics, ", "), partitions))
	if i.metrics != "" {
		row("metrics", i.metrics)
	}
	if i.console != "" {
		command("console", i.console)
	}
	command("look", fmt.Sprintf(`kcat -b %s -C -e -t %s -f '%%h\n%%s\n\n'`, i.broker, i.dlqs[0]))
	command("send", fmt.Sprintf("echo oops | kcat -b %s -P -t %s -k you", i.broker, i.topics[0]))
	row("stop", "Ctrl-C; the broker and all that is in it ends with it")
	b.WriteString("\n" + l.head())
	return b.String()
}

// nameWidth is the width of a row's name in the header, in cells.
const nameWidth = 9

// story says what is going to happen.
func (i intro) story() string {
	way := "straight to the DLQ"
	if len(i.tiers) > 0 {
		way = "through " + strings.Join(i.tiers, " and ") + " into the DLQ"
	}
	switch {
	case !i.samples:
		return fmt.Sprintf("your records in %s; those that fail go %s", i.topics[0], way)
	case i.handler != "":
		return fmt.Sprintf("sample orders, and what %s makes of them; those that fail go %s", printable.Line(i.handler), way)
	case len(i.tiers) == 0:
		return "order 1001 is handled at once; 1002, 1004, 1006 and 1008 go " + way + ", as there is no retry tier"
	}
	return "order 1001 is handled at once, 1002 recovers on its second delivery, 1004 fails " + way +
		", 1006 (no JSON) and 1008 (adds up wrongly) go there straight"
}

// greet writes the header at once.
func greet(out io.Writer, i intro, l layout) error {
	if _, err := io.WriteString(out, i.header(l)); err != nil {
		return fmt.Errorf("write to the terminal: %w", err)
	}
	return nil
}
