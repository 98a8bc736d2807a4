package export

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Bytes are bytes as they stand in JSON: null for nil, a string where they are
// UTF-8, and {"base64":"…"} where they are not.
type Bytes []byte

// MarshalJSON writes b.
func (b Bytes) MarshalJSON() ([]byte, error) {
	switch {
	case b == nil:
		return []byte("null"), nil
	case !utf8.Valid(b):
		return fmt.Appendf(nil, `{"base64":"%s"}`, base64.StdEncoding.EncodeToString(b)), nil
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(string(b)); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (b *Bytes) UnmarshalJSON(text []byte) error {
	if at, problem := unfit(text); problem != "" {
		return fmt.Errorf("byte %d: %s", at, problem)
	}
	p := newParser(text)
	v, err := p.bytes()
	if e, ok := errors.AsType[*Error](err); ok {
		return errors.New(e.Reason)
	}
	*b = v
	return err
}

// unfit finds what JSON's reader would silently replace, so that other bytes
// would come out than were meant: invalid UTF-8, and half a surrogate pair.
func unfit(line []byte) (at int, problem string) {
	if !utf8.Valid(line) {
		for at < len(line) {
			r, n := utf8.DecodeRune(line[at:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			at += n
		}
		return at, "this is not UTF-8: write such bytes as {\"base64\":\"…\"}"
	}
	for i := 0; i < len(line); i++ {
		if line[i] != '\\' {
			continue
		}
		at, i = i, i+1
		r, ok := escaped(line, at)
		if !ok || !utf16.IsSurrogate(r) {
			continue
		}
		low, _ := escaped(line, at+6)
		if utf16.DecodeRune(r, low) == utf8.RuneError {
			return at, fmt.Sprintf("%s is half a surrogate pair and no character: write both halves, or the bytes as {\"base64\":\"…\"}", line[at:at+6])
		}
		i = at + 11
	}
	return 0, ""
}

// escaped is the code unit of the \uXXXX at a place.
func escaped(line []byte, at int) (rune, bool) {
	if at+6 > len(line) || line[at] != '\\' || line[at+1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(line[at+2:at+6]), 16, 16)
	return rune(n), err == nil
}
