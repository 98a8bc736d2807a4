// Package printable is the one rule by which bytes from outside (records,
// handlers, brokers, callers) are shown: on a terminal, in the log, in a status
// line. What is not printable is written as Go writes it in a string: controls,
// escape sequences, characters that steer the direction of text such as U+202E,
// invisible ones, spaces other than the plain one, and bytes that are no UTF-8.
// So no text from outside ends a line, colours or moves what stands beside it,
// or looks like another.
package printable

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Line is s on one line.
func Line(s string) string { return escape(s, "") }

// Text is s with its line ends and tabs, for whoever writes these safely
// itself, as slog's handlers do.
func Text(s string) string { return escape(s, "\n\t") }

func escape(s, keep string) string {
	i := strings.IndexFunc(s, func(r rune) bool {
		return r == utf8.RuneError || !unicode.IsPrint(r) && !strings.ContainsRune(keep, r)
	})
	if i < 0 {
		return s
	}
	b := []byte(s[:i])
	for n := 0; i < len(s); i += n {
		var r rune
		r, n = utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b = fmt.Appendf(b, `\x%02x`, s[i])
		case unicode.IsPrint(r) || strings.ContainsRune(keep, r):
			b = append(b, s[i:i+n]...)
		default:
			q := strconv.AppendQuoteRune(nil, r)
			b = append(b, q[1:len(q)-1]...)
		}
	}
	return string(b)
}

// Log is w for a slog handler. The handlers escape what would break their form,
// and the one of JSON nothing else. Here the rest becomes \u escapes, which mean
// the same in JSON's strings and in the quotes of text. Whoever writes to it
// writes whole records.
func Log(w io.Writer) io.Writer { return &log{w} }

type log struct{ to io.Writer }

func (l *log) Write(record []byte) (int, error) {
	if _, err := l.to.Write(JSON(record)); err != nil {
		return 0, err
	}
	return len(record), nil
}

// JSON is a text of JSON, or several, that means the same and is printable but
// for its line ends.
func JSON(text []byte) []byte {
	at := next(text)
	if at == len(text) {
		return text
	}
	out := make([]byte, 0, 2*len(text))
	for rest := text; ; at = next(rest) {
		out = append(out, rest[:at]...)
		if rest = rest[at:]; len(rest) == 0 {
			return out
		}
		r, n := utf8.DecodeRune(rest)
		rest = rest[n:]
		if r > 0xffff {
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
			continue
		}
		out = fmt.Appendf(out, `\u%04x`, r)
	}
}

// next is the index of the first rune that may not be shown, len(b) if there is
// none.
func next(b []byte) int {
	for i := 0; i < len(b); {
		if c := b[i]; c < utf8.RuneSelf {
			if c < ' ' && c != '\n' || c == 0x7f {
				return i
			}
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 || !unicode.IsPrint(r) {
			return i
		}
		i += n
	}
	return len(b)
}
