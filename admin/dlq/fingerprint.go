package dlq

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxNormal bounds a normalised text, in bytes.
const maxNormal = 200

// Fingerprint is a short hash of what a record failed with: its class and its
// normalised message. It stands in state entries, so it must never change for
// the same text.
func Fingerprint(class, normal string) string {
	sum := sha256.Sum256([]byte(class + "\x00" + normal))
	return hex.EncodeToString(sum[:8])
}

// Normalise takes out of a message what differs from record to record: numbers,
// dates, addresses, identifiers in hex or otherwise with digits among letters,
// and whatever stands in quotes. Each becomes #, and several in a row one #.
func Normalise(message string) string {
	n := normaliser{in: message}
	for n.at < len(n.in) && len(n.out) < maxNormal {
		n.step()
	}
	out := strings.TrimSpace(string(n.out))
	if len(out) > maxNormal {
		cut := maxNormal
		for cut > 0 && !utf8.RuneStart(out[cut]) {
			cut--
		}
		out = strings.TrimSpace(out[:cut])
	}
	return out
}

// normaliser goes through the text once.
type normaliser struct {
	in  string
	at  int
	out []byte
}

func (n *normaliser) step() {
	r, size := utf8.DecodeRuneInString(n.in[n.at:])
	switch {
	case quote(r) && n.quoted(byte(r)):
	case word(r):
		n.token()
	case r == utf8.RuneError && size == 1, unicode.IsSpace(r), unicode.IsControl(r):
		n.at += size
		if len(n.out) > 0 && n.out[len(n.out)-1] != ' ' {
			n.out = append(n.out, ' ')
		}
	default:
		n.out = append(n.out, n.in[n.at:n.at+size]...)
		n.at += size
	}
}

func quote(r rune) bool { return r == '"' || r == '\'' || r == '`' }

func word(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_')
}

// quoted takes a text in quotes out. An apostrophe within a word is no quote,
// nor is a quote that is never closed.
func (n *normaliser) quoted(q byte) bool {
	if before, _ := utf8.DecodeLastRuneInString(n.in[:n.at]); n.at > 0 && word(before) {
		return false
	}
	for i := n.at + 1; i < len(n.in); i++ {
		switch n.in[i] {
		case '\\':
			i++
		case q:
			if after, _ := utf8.DecodeRuneInString(n.in[i+1:]); q != '"' && i+1 < len(n.in) && word(after) {
				continue
			}
			n.at = i + 1
			n.hole(q, q)
			return true
		}
	}
	return false
}

// token copies a word, or takes it out.
func (n *normaliser) token() {
	if size := uuid(n.in[n.at:]); size > 0 {
		n.at += size
		n.hole()
		return
	}
	end := n.at
	for end < len(n.in) {
		r, size := utf8.DecodeRuneInString(n.in[end:])
		if !word(r) {
			break
		}
		end += size
	}
	if end < len(n.in) && n.in[end] == '@' {
		if size := host(n.in[end+1:]); size > 0 {
			n.at = end + 1 + size
			n.hole()
			return
		}
	}
	text := n.in[n.at:end]
	n.at = end
	if identifier(text) {
		n.hole()
		return
	}
	// A word that merely has a number in it: utf8, attempt_3.
	for i := 0; i < len(text); {
		if !digit(text[i]) {
			n.out = append(n.out, text[i])
			i++
			continue
		}
		for i < len(text) && digit(text[i]) {
			i++
		}
		n.hole()
	}
}

func digit(b byte) bool { return b >= '0' && b <= '9' }

func hexDigit(b byte) bool { return digit(b) || b >= 'a' && b <= 'f' || b >= 'A' && b <= 'F' }

// uuid is the length of a UUID at the beginning, 0 if there is none.
func uuid(s string) int {
	const size = 36
	if len(s) < size || len(s) > size && hexDigit(s[size]) {
		return 0
	}
	for i := range size {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if s[i] != '-' {
				return 0
			}
		} else if !hexDigit(s[i]) {
			return 0
		}
	}
	return size
}

// host is the length of a domain at the beginning: what follows @.
func host(s string) int {
	n := 0
	for n < len(s) && (s[n] == '.' || s[n] == '-' || s[n] >= 'a' && s[n] <= 'z' || s[n] >= 'A' && s[n] <= 'Z' || digit(s[n])) {
		n++
	}
	return len(strings.TrimRight(s[:n], ".-"))
}

// Words of letters and digits are identifiers from these sizes on.
const (
	hexWord   = 6  // hexadecimal digits only, with a number among them
	hexOnly   = 8  // hexadecimal digits only
	mixedWord = 16 // letters with a digit among them
	turns     = 2  // changes between letters and digits
)

// identifier reports whether a word is there to name one thing.
func identifier(s string) bool {
	digits, hexes, changes := 0, 0, 0
	for i := range len(s) {
		if digit(s[i]) {
			digits++
		}
		if hexDigit(s[i]) {
			hexes++
		}
		if i > 0 && digit(s[i]) != digit(s[i-1]) && s[i] != '_' && s[i-1] != '_' {
			changes++
		}
	}
	switch {
	case hexes == len(s) && (digits > 0 && len(s) >= hexWord || len(s) >= hexOnly):
		return true
	case strings.HasPrefix(s, "0x") && hexes >= len(s)-1:
		return true
	case digits == 0:
		return false
	}
	return len(s) >= mixedWord || changes >= turns
}

// hole writes #, in brackets if they are given, and joins it with one just
// before: the parts of a date, an address, a version or a list.
func (n *normaliser) hole(brackets ...byte) {
	if len(brackets) == 2 {
		n.out = append(n.out, brackets[0], '#', brackets[1])
		return
	}
	kept := n.out
	if len(kept) > 0 && kept[len(kept)-1] == ' ' {
		kept = kept[:len(kept)-1]
	}
	if len(kept) > 1 && strings.IndexByte("-.:,/+_", kept[len(kept)-1]) >= 0 && kept[len(kept)-2] == '#' {
		n.out = kept[:len(kept)-1]
		return
	}
	if len(n.out) > 0 && n.out[len(n.out)-1] == '#' {
		return
	}
	n.out = append(n.out, '#')
}
