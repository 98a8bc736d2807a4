package dev

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/width"
)

// cells is the width of a printable rune on a terminal.
func cells(r rune) int {
	if r < 0x300 { // below the first combining mark nothing is wide
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// textWidth is the width of a printable text on a terminal.
func textWidth(s string) int {
	n := 0
	for _, r := range s {
		n += cells(r)
	}
	return n
}

// cutAt is the index at which s is as wide as w allows.
func cutAt(s string, w int) int {
	n := 0
	for i, r := range s {
		if n += cells(r); n > w {
			return i
		}
	}
	return len(s)
}

// shorten cuts s to a width, with an ellipsis in place of the rest.
func shorten(s string, w int) string {
	if textWidth(s) <= w {
		return s
	}
	return s[:cutAt(s, w-1)] + "…"
}

// fill adds spaces to s up to a width.
func fill(s string, w int) string {
	return s + strings.Repeat(" ", max(0, w-textWidth(s)))
}

// wrap breaks s at spaces into lines no wider than w, and a longer word
// anywhere. w is at least 2.
func wrap(s string, w int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		if line != "" && textWidth(line)+1+textWidth(word) <= w {
			line += " " + word
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		for textWidth(word) > w {
			i := cutAt(word, w)
			lines, word = append(lines, word[:i]), word[i:]
		}
		line = word
	}
	return append(lines, line)
}

// inWords is a duration as a person says it.
func inWords(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "under 1 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// ordinal is 1st, 2nd, 3rd, 4th, 11th …
func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, suffix)
}

// count is a number with its noun, in the plural where it needs to be.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
