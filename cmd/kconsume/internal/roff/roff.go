// Package roff writes manual pages in the macros of man(7).
package roff

import (
	"fmt"
	"strings"
)

// Page is a manual page that grows from top to bottom.
type Page struct{ b strings.Builder }

// Heading is what stands at the top and the bottom of a page.
type Heading struct {
	Name    string
	Section string // 1 for commands, 5 for files
	Date    string // of what it describes, "" = not known
	Source  string // name and version of the program
}

// New begins a page.
func New(h Heading) *Page {
	p := &Page{}
	fmt.Fprintf(&p.b, ".TH %s %s %s %s %s\n", quote(strings.ToUpper(h.Name)), quote(h.Section), quote(h.Date), quote(h.Source), quote("kconsume manual"))
	// Left aligned and not hyphenated: what is described is to be typed.
	p.b.WriteString(".nh\n.ad l\n")
	return p
}

// Section begins a section.
func (p *Page) Section(title string) { fmt.Fprintf(&p.b, ".SH %s\n", quote(title)) }

// Subsection begins a part of a section.
func (p *Page) Subsection(title string) { fmt.Fprintf(&p.b, ".SS %s\n", quote(title)) }

// Text adds a paragraph. Line ends in it are spaces.
func (p *Page) Text(text string) { fmt.Fprintf(&p.b, ".PP\n%s\n", line(text)) }

// Plain adds a line as a section's first, such as the one that tells the page's name.
func (p *Page) Plain(text string) { fmt.Fprintf(&p.b, "%s\n", line(text)) }

// Item adds a term and what it means. The term may hold Bold and Italic.
func (p *Page) Item(term Term, text string) {
	fmt.Fprintf(&p.b, ".TP\n%s\n%s\n", string(term), line(text))
}

// Usage adds a line that shows how something is called.
func (p *Page) Usage(t Term) { fmt.Fprintf(&p.b, ".PP\n%s\n", string(t)) }

// Example adds lines as they are typed.
func (p *Page) Example(lines ...string) {
	p.b.WriteString(".PP\n.RS 4\n.nf\n")
	for _, l := range lines {
		p.b.WriteString(line(l) + "\n")
	}
	p.b.WriteString(".fi\n.RE\n")
}

func (p *Page) String() string { return p.b.String() }

// Term is text with fonts, escaped already.
type Term string

// Bold is what is typed as it stands.
func Bold(s string) Term { return Term(`\fB` + escape(s) + `\fR`) }

// Italic is what something else is typed for.
func Italic(s string) Term { return Term(`\fI` + escape(s) + `\fR`) }

// Roman is text in the usual font.
func Roman(s string) Term { return Term(escape(s)) }

// line is text on one line that no macro begins.
func line(s string) string {
	s = escape(strings.Join(strings.Split(s, "\n"), " "))
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

// escape keeps a hyphen one that can be copied, and what is not ASCII readable
// in every locale.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '~':
			b.WriteString(`\(ti`)
		case r == '^':
			b.WriteString(`\(ha`)
		case r == '`':
			b.WriteString(`\(ga`)
		case r > 126:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func quote(s string) string { return `"` + strings.ReplaceAll(escape(s), `"`, `""`) + `"` }
