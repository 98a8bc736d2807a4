package printable

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// hostile are texts that would do something to a terminal or to a reader.
var hostile = []struct{ in, line, text string }{
	{"order 1001 → ✓ 注文", "order 1001 → ✓ 注文", "order 1001 → ✓ 注文"},
	{"", "", ""},
	{"a\nb\tc\rd", `a\nb\tc\rd`, "a\nb\tc" + `\rd`},
	{"\x1b[31mred\x1b]0;title\x07", `\x1b[31mred\x1b]0;title\a`, `\x1b[31mred\x1b]0;title\a`},
	{"abc\u202edef\u2066\u2069\u200e\u061c", `abc\u202edef\u2066\u2069\u200e\u061c`, `abc\u202edef\u2066\u2069\u200e\u061c`},
	{"zero\u200bwidth\u2028line\u2029\ufeff", `zero\u200bwidth\u2028line\u2029\ufeff`, `zero\u200bwidth\u2028line\u2029\ufeff`},
	{"\U000e0041tag", `\U000e0041tag`, `\U000e0041tag`},
	{"bad \xff\xfe", `bad \xff\xfe`, `bad \xff\xfe`},
	{"c1 \u009b del \x7f nul \x00", `c1 \u009b del \x7f nul \x00`, `c1 \u009b del \x7f nul \x00`},
	{"a\u00a0b", `a\u00a0b`, `a\u00a0b`},
	{"a real \ufffd stays", "a real \ufffd stays", "a real \ufffd stays"},
}

func TestLineAndText(t *testing.T) {
	for _, c := range hostile {
		if got := Line(c.in); got != c.line {
			t.Errorf("Line(%q) = %s, want %s", c.in, got, c.line)
		}
		if got := Text(c.in); got != c.text {
			t.Errorf("Text(%q) = %q, want %q", c.in, got, c.text)
		}
	}
}

// bad is the first rune of a log that may not be shown.
func bad(log string) (r rune, ok bool) {
	for _, r := range log {
		if r == utf8.RuneError || r != '\n' && !unicode.IsPrint(r) {
			return r, true
		}
	}
	return 0, false
}

// In both forms, in message, key and value, at any depth, a record is one
// printable line that says what was said.
func TestLog(t *testing.T) {
	for _, c := range hostile {
		if strings.Contains(c.in, "\ufffd") {
			continue
		}
		for name, h := range map[string]func(*bytes.Buffer) slog.Handler{
			"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(Log(b), nil) },
			"json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(Log(b), nil) },
		} {
			var b bytes.Buffer
			l := slog.New(h(&b)).With("with"+c.in, c.in).WithGroup("g" + c.in)
			l.Info(c.in, "k"+c.in, c.in, slog.Group("inner"+c.in, "v", c.in), "any", []string{c.in}, "error", errorText(c.in), "map", map[string]any{c.in: c.in})
			log := b.String()
			if r, found := bad(log); found || strings.Count(log, "\n") != 1 || !strings.HasSuffix(log, "\n") {
				t.Errorf("%s of %q holds %U: %q", name, c.in, r, log)
			}
			if name != "json" || !utf8.ValidString(c.in) {
				continue
			}
			var got struct{ Msg string }
			if err := json.Unmarshal(b.Bytes(), &got); err != nil || got.Msg != c.in {
				t.Errorf("the JSON of %q says %q: %v", c.in, got.Msg, err)
			}
		}
	}
}

type errorText string

func (e errorText) Error() string { return string(e) }

func TestLogPassesOnWhatIsPrintable(t *testing.T) {
	var b bytes.Buffer
	in := "time=x level=INFO msg=\"注文 ✓\"\n"
	n, err := Log(&b).Write([]byte(in))
	if n != len(in) || err != nil || b.String() != in {
		t.Errorf("%d, %v, %q", n, err, b.String())
	}
	in = "{\"a\":\"\U000e0041\u202e\"}\n"
	if n, err = Log(&b).Write([]byte(in)); n != len(in) || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if want := `{"a":"\udb40\udc41\u202e"}` + "\n"; !strings.HasSuffix(b.String(), want) {
		t.Errorf("%q, want %q at its end", b.String(), want)
	}
}

func FuzzLine(f *testing.F) {
	for _, c := range hostile {
		f.Add(c.in)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Line(s)
		if !utf8.ValidString(got) || strings.Contains(got, "\n") {
			t.Errorf("Line(%q) = %q", s, got)
		}
		for _, r := range got {
			if r != utf8.RuneError && !unicode.IsPrint(r) {
				t.Errorf("Line(%q) = %q holds %U", s, got, r)
			}
		}
		if again := Line(got); again != got {
			t.Errorf("Line(%q) = %q, and again %q", s, got, again)
		}
	})
}

func FuzzLog(f *testing.F) {
	for _, c := range hostile {
		f.Add(c.in)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var b bytes.Buffer
		slog.New(slog.NewJSONHandler(Log(&b), nil)).Info(s, s, s)
		if !json.Valid(b.Bytes()) {
			t.Errorf("of %q: %q", s, b.String())
		}
		for _, r := range strings.TrimSuffix(b.String(), "\n") {
			if r != utf8.RuneError && !unicode.IsPrint(r) {
				t.Errorf("of %q: %q holds %U", s, b.String(), r)
			}
		}
	})
}
