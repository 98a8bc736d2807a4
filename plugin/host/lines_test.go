package host

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

func TestLines(t *testing.T) {
	long := strings.Repeat("x", lineLimit)
	for _, c := range []struct {
		name   string
		writes []string
		want   []string // with the bytes that were cut off
	}{
		{"two at once", []string{"a\nb\n"}, []string{"a", "b"}},
		{"in pieces", []string{"a", "b\nc", "\n"}, []string{"ab", "c"}},
		{"without an end", []string{"a\nb"}, []string{"a", "b"}},
		{"carriage return", []string{"a\r\nb\r", "\n"}, []string{"a", "b"}},
		{"empty", []string{"\n\n"}, []string{"", ""}},
		{"at the limit", []string{long + "\nb\n"}, []string{long, "b"}},
		{"over the limit", []string{long + "yz\nb\n"}, []string{long + "+2", "b"}},
		{"over the limit in pieces", []string{long, "y", "z\nb\n"}, []string{long + "+2", "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			l := lines{emit: func(line []byte, cut int) {
				if cut > 0 {
					line = fmt.Appendf(bytes.Clone(line), "+%d", cut)
				}
				got = append(got, string(line))
			}}
			for _, w := range c.writes {
				l.Write([]byte(w))
			}
			l.Close()
			if !slices.Equal(got, c.want) {
				t.Errorf("lines %.60q, want %.60q", got, c.want)
			}
		})
	}
}

func TestLinesKeepAtMostOneLine(t *testing.T) {
	n := 0
	l := lines{emit: func([]byte, int) { n++ }}
	block := bytes.Repeat([]byte("x"), 1<<20)
	for range 10 {
		l.Write(block)
	}
	if n != 0 || cap(l.partial) > 4*lineLimit {
		t.Errorf("%d lines and %d bytes kept of 10 MiB without a line end", n, cap(l.partial))
	}
}

func FuzzOutput(f *testing.F) {
	for _, s := range []string{
		`{"@message":5}`, `{"@level":"info","@message":"x","a":{"b":[1,"\ud800"]}}`, "{", "[ERROR] x", "\xff\xfe\n\r\n",
		`{"level":"ERROR+2","msg":"m","time":1e999}`, "panic: x", strings.Repeat("[", 9000), `{"@level":"","@message":""}{}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var log bytes.Buffer
		o := newOutput(jsonLog(&log), new(atomic.Uint64))
		w := o.stream("stderr")
		w.Write(b)
		w.Close()
		o.Close()
		for line := range strings.Lines(log.String()) {
			if !jsonValid(line) {
				t.Fatalf("log line is not JSON: %q", line)
			}
		}
		o.lastWords()
	})
}
