package host

import (
	"bytes"
	"sync"
)

// lineLimit bounds one line of a handler's output, in bytes.
const lineLimit = 8 << 10

// lines cuts a stream of bytes into lines and hands each to emit, without its
// line end. The part of a line beyond lineLimit is dropped: cut tells how many
// bytes that were.
// It keeps at most one line and never fails. It may be written to from several
// goroutines.
type lines struct {
	emit func(line []byte, cut int)

	mu      sync.Mutex
	partial []byte // guarded by mu
	cut     int    // guarded by mu
}

// Write never fails.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	for {
		line, rest, ended := bytes.Cut(p, []byte{'\n'})
		if !ended {
			l.add(line)
			return n, nil
		}
		if len(l.partial) == 0 && len(line) <= lineLimit {
			l.emit(trimCR(line), 0)
		} else {
			l.add(line)
			l.flush()
		}
		p = rest
	}
}

func (l *lines) add(p []byte) {
	if room := lineLimit - len(l.partial); len(p) > room {
		p, l.cut = p[:room], l.cut+len(p)-room
	}
	l.partial = append(l.partial, p...)
}

func (l *lines) flush() {
	l.emit(trimCR(l.partial), l.cut)
	l.partial, l.cut = l.partial[:0], 0
}

// Close hands over what stands after the last line end.
func (l *lines) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.partial) > 0 {
		l.flush()
	}
	return nil
}

func trimCR(line []byte) []byte { return bytes.TrimSuffix(line, []byte{'\r'}) }
