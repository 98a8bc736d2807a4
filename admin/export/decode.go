package export

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// MaxLine bounds a line: the largest record that a handler can be handed, as
// base64, and something beside it.
const MaxLine = 128 << 20

// Error says where a line is wrong. Line and Column count from 1, the latter in
// characters.
type Error struct {
	File         string
	Line, Column int
	Reason       string // what is wrong and what to write
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Reason)
}

// Decoder reads records line by line.
type Decoder struct {
	file string
	r    *bufio.Reader
	line int
	buf  []byte
	err  error
}

// NewDecoder reads from r; file is what errors call it.
func NewDecoder(r io.Reader, file string) *Decoder {
	return &Decoder{file: file, r: bufio.NewReaderSize(r, 64<<10)}
}

// Line is the number of the line that Next read last.
func (d *Decoder) Line() int { return d.line }

// Next returns the next record; empty lines are passed over. At the end it
// returns io.EOF. What is wrong with a line is an *Error, after which there is
// no going on.
func (d *Decoder) Next() (Record, error) {
	for d.err == nil {
		line, err := d.read()
		if err != nil {
			d.err = err
			break
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		r, err := Parse(line)
		if err == nil {
			return r, nil
		}
		if e, ok := errors.AsType[*Error](err); ok {
			e.File, e.Line = d.file, d.line
		}
		d.err = err
	}
	return Record{}, d.err
}

// read returns the next line, valid until the next call.
func (d *Decoder) read() ([]byte, error) {
	d.line++
	d.buf = d.buf[:0]
	for {
		part, err := d.r.ReadSlice('\n')
		if len(d.buf)+len(part) > MaxLine {
			return nil, &Error{d.file, d.line, 1, fmt.Sprintf("the line has more than %d MiB: a record of that size cannot be handed to a handler", MaxLine>>20)}
		}
		d.buf = append(d.buf, part...)
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && len(d.buf) > 0, err == nil:
			return d.buf, nil
		case err == io.EOF:
			return nil, io.EOF
		}
		return nil, fmt.Errorf("read %s: %w", d.file, err)
	}
}

// Parse reads one line. What is wrong with it is an *Error without a file, in
// line 1.
func Parse(line []byte) (Record, error) {
	if at, problem := unfit(line); problem != "" {
		return Record{}, &Error{Line: 1, Column: column(line, at), Reason: problem}
	}
	p := newParser(line)
	r, err := p.record()
	if err == nil {
		err = p.end()
	}
	if err != nil {
		return Record{}, err
	}
	return r, nil
}

// column is a byte's place in characters, from 1.
func column(line []byte, at int) int {
	return utf8.RuneCount(line[:max(0, min(at, len(line)))]) + 1
}
