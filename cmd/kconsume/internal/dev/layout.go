package dev

import "strings"

// layout puts lines into columns.
type layout struct {
	width int // of the terminal, in cells; 0 = no limit, each line stays one
	color bool
	stage int // width of the longest stage's name, in cells
	// before is written once before lines that are written together.
	before string
}

// Widths of the columns, in cells. The text takes what is left.
const (
	timeWidth     = len(clockLayout)
	recordWidth   = len("2/1234")
	whatWidth     = len("order 1001")
	wideWhatWidth = 14
	nthWidth      = len("1st")
	gap           = 2
	// minText is the least room for the text beside the other columns; with
	// less it takes lines of its own.
	minText = 24
	// wideFrom is the width from which there is room to name records in full.
	wideFrom = 110
	minWidth = 20
)

var ansi = [...]string{plain: "", good: "\x1b[32m", warn: "\x1b[33m", back: "\x1b[36m", bad: "\x1b[31m", subtle: "\x1b[2m"}

func (l layout) what() int {
	if l.width == 0 || l.width >= wideFrom {
		return wideWhatWidth
	}
	return whatWidth
}

// head names the columns.
func (l layout) head() string {
	s := l.columns("time", "record", "", "stage", "") + "what happened"
	return l.paint(l.cut(s), subtle) + "\n"
}

// format is a line's text, ending in a newline.
func (l layout) format(n line) string {
	stamp := n.at.Format(clockLayout)
	if n.record == "" {
		return l.block(fill(stamp, timeWidth+gap), n.said)
	}
	nth := ""
	if n.attempt > 0 {
		nth = ordinal(n.attempt)
	}
	return l.block(l.columns(stamp, n.record, n.what, n.stage, nth), n.said)
}

// columns are all but the text. A record's number or an ordinal that has
// outgrown its column pushes the rest to the right rather than being cut.
func (l layout) columns(stamp, record, what, stage, nth string) string {
	name := fill(record, recordWidth) + " " + shorten(what, l.what()+1)
	return fill(stamp, timeWidth+gap) + fill(name, recordWidth+1+l.what()) + " " +
		fill(stage, l.stage) + " " + fill(nth, nthWidth) + strings.Repeat(" ", gap)
}

// block is a text beside a left part, or below it where there is no room.
func (l layout) block(left string, said []phrase) string {
	at := textWidth(left)
	room := l.width - at
	beside := l.width == 0 || room >= minText
	if !beside {
		left, at = l.cut(strings.TrimRight(left, " ")), gap
		room = max(l.width, minWidth) - at
	}
	var b strings.Builder
	b.WriteString(left)
	for i, p := range l.fold(said, room) {
		if i > 0 || !beside {
			b.WriteString("\n" + strings.Repeat(" ", at))
		}
		b.WriteString(l.paint(p.text, p.tone))
	}
	return b.String() + "\n"
}

// fold breaks phrases into parts that each take a line: all of them on one if
// they fit, else each phrase begins a line of its own.
func (l layout) fold(said []phrase, room int) []phrase {
	texts := make([]string, len(said))
	for i, p := range said {
		texts[i] = p.text
	}
	if all := strings.Join(texts, " "); len(said) > 0 && (l.width == 0 || textWidth(all) <= room) {
		return []phrase{{all, said[len(said)-1].tone}}
	}
	var parts []phrase
	for _, p := range said {
		for _, t := range wrap(p.text, room) {
			parts = append(parts, phrase{t, p.tone})
		}
	}
	return parts
}

// cut shortens s to the terminal.
func (l layout) cut(s string) string {
	if l.width == 0 {
		return s
	}
	return shorten(s, max(l.width, minWidth))
}

func (l layout) paint(s string, t tone) string {
	if !l.color || t == plain {
		return s
	}
	return ansi[t] + s + "\x1b[0m"
}
