package roff

import (
	"strings"
	"testing"
)

func TestEscaping(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{".dot first", `\&.dot first`},
		{"'quote first", `\&'quote first`},
		{`a\b`, `a\eb`},
		{"--flag-name", `\-\-flag\-name`},
		{"one\ntwo", "one two"},
		{"~/x^`", `\(ti/x\(ha\(ga`},
		{"a → b", `a \[u2192] b`},
	} {
		if got := line(c.in); got != c.want {
			t.Errorf("%q: %q; want %q", c.in, got, c.want)
		}
	}
}

func TestPage(t *testing.T) {
	p := New(Heading{Name: "kconsume-run", Section: "1", Date: "2026-11-30", Source: `k "1"`})
	p.Section("NAME")
	p.Plain("kconsume-run - consume")
	p.Item(Bold("--group")+" "+Italic("NAME"), "consumer group")
	p.Example("a", ".b")
	want := `.TH "KCONSUME\-RUN" "1" "2026\-11\-30" "k ""1""" "kconsume manual"
.nh
.ad l
.SH "NAME"
kconsume\-run \- consume
.TP
\fB\-\-group\fR \fINAME\fR
consumer group
.PP
.RS 4
.nf
a
\&.b
.fi
.RE
`
	if got := p.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if strings.Contains(p.String(), "\n\n") {
		t.Error("an empty line is a break of its own")
	}
}
