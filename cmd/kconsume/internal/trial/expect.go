package trial

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/kconsume/kconsume/admin/export"
	"github.com/kconsume/kconsume/engine"
)

// Expected is one line of a file of expectations: the fields that it names, and
// no others, are compared.
type Expected struct {
	At     string // FILE:LINE
	Record int    // 0 = not said: ID names the record
	ID     string
	fields map[string]any // as JSON has them
}

// names are the fields of a Line, in its order.
func names() []string {
	var all []string
	t := reflect.TypeFor[Line]()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		all = append(all, name)
	}
	return all
}

// ReadExpected reads expectations, one on each line. The error names the place.
func ReadExpected(r io.Reader, file string) ([]Expected, error) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, export.MaxLine)
	var all []Expected
	seen := map[string]string{}
	for n := 1; s.Scan(); n++ {
		text := bytes.TrimSpace(s.Bytes())
		if len(text) == 0 {
			continue
		}
		x, err := parseExpected(text)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		x.At = fmt.Sprintf("%s:%d", file, n)
		for _, name := range []string{fmt.Sprintf("record %d", x.Record), "id " + x.ID} {
			if at := seen[name]; at != "" {
				return nil, fmt.Errorf("%s: %s is expected in %s already: remove one of them", x.At, name, at)
			}
			if name != "record 0" && name != "id " {
				seen[name] = x.At
			}
		}
		all = append(all, x)
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return all, nil
}

func parseExpected(text []byte) (Expected, error) {
	var typed Line // which tells wrong names and types
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&typed); err != nil {
		return Expected{}, readable(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Expected{}, errors.New("something follows the object: write one on each line")
	}
	switch engine.Fate(typed.Outcome) {
	case "", engine.FateDone, engine.FateDropped, engine.FateRetry, engine.FateDead, FatePause:
	default:
		return Expected{}, fmt.Errorf("unknown outcome %q: use one of done, dropped, retry, dlq, pause", typed.Outcome)
	}
	if typed.Record <= 0 && typed.ID == "" {
		return Expected{}, errors.New("it names no record: give its \"id\", or \"record\", its number from 1")
	}
	x := Expected{Record: typed.Record, ID: typed.ID, fields: map[string]any{}}
	d = json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&x.fields); err != nil {
		return Expected{}, readable(err)
	}
	return x, nil
}

// readable says what a person wrote wrong, without the names of our types.
func readable(err error) error {
	text := strings.TrimPrefix(err.Error(), "json: ")
	if name, ok := strings.CutPrefix(text, "unknown field "); ok {
		return fmt.Errorf("unknown name %s: use %s", name, strings.Join(names(), ", "))
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Field != "" {
		return fmt.Errorf("%s must not be a %s", e.Field, e.Value)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the line ends too early: write one object on each line")
	}
	return errors.New(text)
}
