package export

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/kconsume/kconsume/plugin"
)

// maxAttempt bounds "attempt", as the engine bounds what a header says.
const maxAttempt = 1 << 20

// parser walks over one line token by token, since only that tells the place of
// what is wrong, and a name given twice.
type parser struct {
	text []byte
	dec  *json.Decoder
}

func newParser(text []byte) *parser {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return &parser{text, d}
}

// here is where the next token begins.
func (p *parser) here() int {
	at := int(p.dec.InputOffset())
	return at + len(p.text[at:]) - len(bytes.TrimLeft(p.text[at:], " \t\r\n,:"))
}

func (p *parser) fail(at int, format string, args ...any) error {
	return &Error{Line: 1, Column: column(p.text, at), Reason: fmt.Sprintf(format, args...)}
}

func (p *parser) token() (json.Token, int, error) {
	at := p.here()
	t, err := p.dec.Token()
	if err == nil {
		return t, at, nil
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		// The offset counts the bytes read, the wrong one included.
		return nil, at, p.fail(max(at, int(e.Offset)-1), "%s", strings.TrimPrefix(e.Error(), "json: "))
	}
	return nil, at, p.fail(len(p.text), "the line ends too early: one record is one line of JSON")
}

// end says that nothing may follow.
func (p *parser) end() error {
	at := p.here()
	if _, err := p.dec.Token(); err != io.EOF {
		return p.fail(at, "something follows the record: write one record on each line")
	}
	return nil
}

// object reads {"name":value,…}; value reads the value of a name that it knows.
func (p *parser) object(what string, names []string, value func(name string) error) error {
	t, at, err := p.token()
	if err != nil {
		return err
	}
	if t != json.Delim('{') {
		return p.fail(at, "%s must be an object, {…}", what)
	}
	return p.fields(names, value)
}

// fields reads on to the end of an object whose { has been read.
func (p *parser) fields(names []string, value func(name string) error) error {
	var seen []string
	for p.dec.More() {
		t, at, err := p.token()
		if err != nil {
			return err
		}
		name, _ := t.(string) // JSON allows nothing else here
		known := false
		for _, n := range names {
			known = known || n == name
		}
		for _, s := range seen {
			if s == name {
				return p.fail(at, "%q is given twice", name)
			}
		}
		if !known {
			return p.fail(at, "unknown name %s: use %s", strconv.Quote(name), strings.Join(names, ", "))
		}
		seen = append(seen, name)
		if err := value(name); err != nil {
			return err
		}
	}
	_, _, err := p.token()
	return err
}

func (p *parser) record() (Record, error) {
	r := Record{Offset: -1, Timestamp: -1}
	names := []string{"topic", "partition", "offset", "timestamp", "key", "value", "headers", "attempt", "about"}
	err := p.object("a record", names, func(name string) (err error) {
		switch name {
		case "topic":
			r.Topic, err = p.string(name)
		case "partition":
			r.Partition, err = number[int32](p, name, 0, math.MaxInt32)
		case "offset":
			r.Offset, err = number[int64](p, name, 0, math.MaxInt64)
		case "timestamp":
			r.Timestamp, err = number[int64](p, name, math.MinInt64, math.MaxInt64)
		case "attempt":
			r.Attempt, err = number[int](p, name, 1, maxAttempt)
		case "key":
			r.Key, err = p.bytes()
		case "value":
			r.Value, err = p.bytes()
		case "headers":
			r.Headers, err = p.headers()
		case "about":
			r.About, err = p.raw()
		}
		return err
	})
	return r, err
}

func (p *parser) string(name string) (string, error) {
	t, at, err := p.token()
	if err != nil {
		return "", err
	}
	s, ok := t.(string)
	if !ok {
		return "", p.fail(at, "%s must be a string", name)
	}
	return s, nil
}

func number[T int | int32 | int64](p *parser, name string, least, most int64) (T, error) {
	t, at, err := p.token()
	if err != nil {
		return 0, err
	}
	if n, ok := t.(json.Number); ok {
		if i, err := n.Int64(); err == nil && least <= i && i <= most {
			return T(i), nil
		}
	}
	return 0, p.fail(at, "%s must be a whole number from %d to %d", name, least, most)
}

// bytes reads text, null, or {"base64":"…"}.
func (p *parser) bytes() ([]byte, error) {
	t, at, err := p.token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case nil:
		return nil, nil
	case string:
		return append([]byte{}, t...), nil
	case json.Delim:
		if t == '{' {
			return p.base64(at)
		}
	}
	return nil, p.fail(at, "bytes must be a string, null, or {\"base64\":\"…\"}: write JSON inside a string, with \\\" for \"")
}

// base64 reads on behind {.
func (p *parser) base64(at int) ([]byte, error) {
	var out []byte
	err := p.fields([]string{"base64"}, func(name string) error {
		at := p.here()
		s, err := p.string(name)
		if err != nil {
			return err
		}
		if out, err = base64.StdEncoding.Strict().DecodeString(s); err != nil || strings.ContainsAny(s, "\r\n") {
			return p.fail(at, "this is not base64 in its standard form, padded with =")
		}
		return nil
	})
	if err == nil && out == nil {
		err = p.fail(at, "an object here must be {\"base64\":\"…\"}: write JSON inside a string, with \\\" for \"")
	}
	return out, err
}

func (p *parser) headers() ([]plugin.Header, error) {
	t, at, err := p.token()
	if err != nil {
		return nil, err
	}
	if t != json.Delim('[') {
		return nil, p.fail(at, "headers must be a list, [{\"key\":…,\"value\":…},…]: names repeat, and their order counts")
	}
	var hs []plugin.Header
	for p.dec.More() {
		var h plugin.Header
		err := p.object("a header", []string{"key", "value"}, func(name string) error {
			at := p.here()
			b, err := p.bytes()
			switch {
			case err != nil:
				return err
			case name == "value":
				h.Value = b
			case b == nil:
				return p.fail(at, "a header's key must not be null")
			default:
				h.Key = string(b)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		hs = append(hs, h)
	}
	_, _, err = p.token()
	return hs, err
}

func (p *parser) raw() (json.RawMessage, error) {
	at := p.here()
	var raw json.RawMessage
	if p.dec.Decode(&raw) == nil {
		return raw, nil
	}
	// Only a decoder that begins here counts from here.
	err := json.NewDecoder(bytes.NewReader(p.text[at:])).Decode(&raw)
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return nil, p.fail(at+int(e.Offset)-1, "%s", e.Error())
	}
	return nil, p.fail(len(p.text), "the line ends too early: one record is one line of JSON")
}
