package dev

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/plugin/printable"
)

func FuzzWidth(f *testing.F) {
	for _, s := range []string{"", "a\x1b[2J", "\u202e", "\xff", "注文", "e\u0301"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := printable.Line(s)
		for w := 2; w < 12; w++ {
			if p := fill(shorten(got, w), w); textWidth(p) != w {
				t.Errorf("%q in %d cells is %d wide", got, w, textWidth(p))
			}
			for _, l := range wrap(got, w) {
				if textWidth(l) > w {
					t.Errorf("wrap(%q, %d) has %q", got, w, l)
				}
			}
			words := strings.Join(strings.Fields(got), "")
			if all := strings.ReplaceAll(strings.Join(wrap(got, w), ""), " ", ""); all != words {
				t.Errorf("wrap(%q, %d) keeps %q", got, w, all)
			}
		}
	})
}

func TestTextCountsCells(t *testing.T) {
	pads := []struct {
		in   string
		w    int
		want string
	}{
		{"ab", 4, "ab  "}, {"abcd", 4, "abcd"}, {"abcde", 4, "abc…"},
		{"注文", 6, "注文  "}, {"注文書", 5, "注文…"}, {"注文書", 4, "注… "}, {"e\u0301a", 3, "e\u0301a "},
	}
	for _, tt := range pads {
		if got := fill(shorten(tt.in, tt.w), tt.w); got != tt.want {
			t.Errorf("%q in %d cells is %q, want %q", tt.in, tt.w, got, tt.want)
		}
	}
	wraps := []struct {
		in   string
		w    int
		want []string
	}{
		{"", 5, []string{""}},
		{"one two three", 7, []string{"one two", "three"}},
		{"abcdefgh ij", 3, []string{"abc", "def", "gh", "ij"}},
		{"注文 注文", 5, []string{"注文", "注文"}},
	}
	for _, tt := range wraps {
		if got := wrap(tt.in, tt.w); !slices.Equal(got, tt.want) {
			t.Errorf("wrap(%q, %d) = %q, want %q", tt.in, tt.w, got, tt.want)
		}
	}
}

func TestWords(t *testing.T) {
	durations := map[time.Duration]string{
		900 * time.Microsecond:                  "under 1 ms",
		3 * time.Millisecond:                    "3 ms",
		999*time.Millisecond + 9e5:              "999 ms",
		2340 * time.Millisecond:                 "2.3 s",
		61*time.Second + 4e8:                    "1m1s",
		3*time.Hour + 15*time.Minute:            "3h15m0s",
		-5 * time.Millisecond:                   "under 1 ms",
		59*time.Second + 900*time.Duration(1e6): "59.9 s",
	}
	for d, want := range durations {
		if got := inWords(d); got != want {
			t.Errorf("inWords(%d) = %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 112: "112th", 122: "122nd"} {
		if got := ordinal(n); got != want {
			t.Errorf("ordinal(%d) = %q, want %q", n, got, want)
		}
	}
}
