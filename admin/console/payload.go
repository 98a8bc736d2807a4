package console

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kconsume/kconsume/admin/export"
)

// What a page shows of a payload, in bytes.
const (
	shownText   = 64 << 10
	shownHex    = 4 << 10
	shownHeader = 1 << 10
)

// payload is a record's content as a page shows it.
type payload struct {
	Key     text
	Value   text
	Headers []headerText
	As      string   // the form that Value has
	Forms   []string // those it can have
	Size    int
	Cut     bool
}

type headerText struct {
	Name  string
	Value text
}

// text is bytes made readable. Null, empty and what is no text are told apart.
type text struct {
	Text string
	Kind string // "", "null", "empty", "bytes"
}

func showPayload(r *export.Record, as string) *payload {
	p := &payload{Key: textOf(r.Key, shownHeader), Size: len(r.Value)}
	for _, h := range r.Headers {
		p.Headers = append(p.Headers, headerText{plain(h.Key), textOf(h.Value, shownHeader)})
	}
	pretty, isJSON := indent(r.Value)
	if isJSON {
		p.Forms = append(p.Forms, "json")
	}
	if utf8.Valid(r.Value) {
		p.Forms = append(p.Forms, "text")
	}
	p.Forms = append(p.Forms, "hex")
	p.As = p.Forms[0]
	for _, f := range p.Forms {
		if f == as {
			p.As = f
		}
	}
	switch {
	case len(r.Value) == 0:
		p.Value = textOf(r.Value, 0)
	case p.As == "json":
		p.Value.Text, p.Cut = clip(pretty, shownText)
	case p.As == "text":
		p.Value.Text, p.Cut = clip(visible(string(r.Value)), shownText)
	default:
		p.Cut = len(r.Value) > shownHex
		p.Value.Text = hex.Dump(r.Value[:min(len(r.Value), shownHex)])
	}
	return p
}

func textOf(b []byte, most int) text {
	switch {
	case b == nil:
		return text{Kind: "null"}
	case len(b) == 0:
		return text{Kind: "empty"}
	case !utf8.Valid(b):
		return text{Text: hex.EncodeToString(b[:min(len(b), most/2)]), Kind: "bytes"}
	}
	s, cut := clip(visible(string(b)), most)
	if cut {
		s += fmt.Sprintf(" … %d bytes in all", len(b))
	}
	return text{Text: s}
}

// indent is JSON with its own numbers and order, a line for each part.
func indent(b []byte) (string, bool) {
	var out bytes.Buffer
	if len(b) == 0 || json.Indent(&out, b, "", "  ") != nil {
		return "", false
	}
	return visible(out.String()), true
}

// clip cuts a text on a rune's boundary.
func clip(s string, most int) (string, bool) {
	if len(s) <= most {
		return s, false
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most], true
}

// plain is a text on one line.
func plain(s string) string {
	return strings.ReplaceAll(visible(strings.ToValidUTF8(s, "\uFFFD")), "\n", "␊")
}

// visible shows what would turn the reading order or hide text, as its code.
func visible(s string) string {
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			fmt.Fprintf(&b, "⟨U+%04X⟩", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func hidden(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r))
}
