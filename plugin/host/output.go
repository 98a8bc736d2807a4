package host

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kconsume/kconsume/plugin/printable"
)

const (
	// A handler may fill our log with linesPerSecond, and with linesAtOnce
	// after a quiet time; what is beyond is counted, and read all the same: a
	// full pipe would stop the handler.
	linesPerSecond = 200
	linesAtOnce    = 1000
	// wordsLimit is what is kept of a line for the explanation of an exit, in bytes.
	wordsLimit = 300
	// fieldLimit bounds the fields taken from one line of JSON.
	fieldLimit = 32
)

// output turns what a handler writes into log lines, and remembers what it
// said last: that is the best explanation of an exit.
type output struct {
	log      *slog.Logger
	unlogged *atomic.Uint64 // bytes that were dropped, of all processes

	mu      sync.Mutex
	tokens  float64   // guarded by mu
	filled  time.Time // guarded by mu
	dropped int       // guarded by mu; lines since that was told last
	told    time.Time // guarded by mu; when that was
	last    []byte    // guarded by mu; the last line of stderr that is not empty
	fatal   []byte    // guarded by mu; the first line of a Go panic or fatal error
}

func newOutput(log *slog.Logger, unlogged *atomic.Uint64) *output {
	return &output{log: log, unlogged: unlogged, tokens: linesAtOnce, filled: time.Now()}
}

// stream returns the writer of one of the handler's streams, "stdout" or "stderr".
func (o *output) stream(name string) *lines {
	return &lines{emit: func(line []byte, cut int) { o.line(name, line, cut) }}
}

// line takes a line of a stream, which was cut by so many bytes.
func (o *output) line(stream string, line []byte, cut int) {
	o.unlogged.Add(uint64(cut))
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	if stream == "stderr" {
		o.remember(line)
	}
	if !o.allowed() {
		o.unlogged.Add(uint64(len(line)))
		return
	}
	level, msg, fields := parseLine(line)
	attrs := []slog.Attr{slog.String("stream", stream)}
	if cut > 0 {
		attrs = append(attrs, slog.Bool("cut", true))
	}
	if len(fields) > 0 {
		attrs = append(attrs, slog.Attr{Key: "fields", Value: slog.GroupValue(fields...)})
	}
	o.log.LogAttrs(context.Background(), level, msg, attrs...)
}

func (o *output) remember(line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	line = line[:min(wordsLimit, len(line))]
	o.last = append(o.last[:0], line...)
	if len(o.fatal) == 0 && (bytes.HasPrefix(line, []byte("panic: ")) || bytes.HasPrefix(line, []byte("fatal error: "))) {
		o.fatal = append(o.fatal, line...)
	}
}

// lastWords is the line of stderr that explains an exit best, fit to be shown;
// "" if there was none.
func (o *output) lastWords() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	words := o.last
	if len(o.fatal) > 0 {
		words = o.fatal
	}
	return printable.Line(strings.ReplaceAll(string(words), "\t", " "))
}

// allowed takes one token of the line budget.
func (o *output) allowed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	o.tokens = min(linesAtOnce, o.tokens+now.Sub(o.filled).Seconds()*linesPerSecond)
	o.filled = now
	if o.tokens < 1 {
		o.dropped++
		return false
	}
	o.tokens--
	if now.Sub(o.told) >= time.Second {
		o.told = now
		o.tellDropped()
	}
	return true
}

// tellDropped is called with mu held.
func (o *output) tellDropped() {
	if o.dropped > 0 {
		o.log.Warn("handler writes more than is logged: lines were left out", "lines", o.dropped)
		o.dropped = 0
	}
}

// Close reports the lines left out last.
func (o *output) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tellDropped()
}

// parseLine reads a line as hclog's or slog's JSON where it is that, and as
// text otherwise. Whatever the bytes are, the result is valid UTF-8.
func parseLine(line []byte) (slog.Level, string, []slog.Attr) {
	if level, msg, fields, ok := parseJSON(line); ok {
		return level, msg, fields
	}
	return textLevel(line), printable.Text(string(line)), nil
}

func parseJSON(line []byte) (level slog.Level, msg string, fields []slog.Attr, ok bool) {
	if line[0] != '{' {
		return 0, "", nil, false
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber() // numbers keep their digits
	var object map[string]any
	if d.Decode(&object) != nil || d.More() {
		return 0, "", nil, false
	}
	for _, names := range [...][3]string{{"@level", "@message", "@timestamp"}, {"level", "msg", "time"}} {
		name, okLevel := object[names[0]].(string)
		text, okText := object[names[1]].(string)
		if !okLevel || !okText {
			continue
		}
		for _, n := range names {
			delete(object, n)
		}
		return levelOf(name), printable.Text(text), attrs(object), true
	}
	return 0, "", nil, false
}

func attrs(object map[string]any) []slog.Attr {
	fields := make([]slog.Attr, 0, len(object))
	for name, value := range object {
		if s, ok := value.(string); ok {
			value = printable.Text(s)
		}
		fields = append(fields, slog.Any(printable.Text(name), value))
	}
	slices.SortFunc(fields, func(a, b slog.Attr) int { return strings.Compare(a.Key, b.Key) })
	return fields[:min(fieldLimit, len(fields))]
}

func levelOf(name string) slog.Level {
	var level slog.Level
	switch {
	case strings.EqualFold(name, "trace"):
		return slog.LevelDebug - 4
	case strings.EqualFold(name, "warning"):
		return slog.LevelWarn
	case level.UnmarshalText([]byte(name)) == nil: // ERROR+2 too
		return level
	}
	return slog.LevelInfo
}

// textLevel goes by the prefixes that log packages write, and Go's own last words.
func textLevel(line []byte) slog.Level {
	for prefix, level := range map[string]slog.Level{
		"[TRACE]": slog.LevelDebug - 4, "[DEBUG]": slog.LevelDebug, "[WARN]": slog.LevelWarn,
		"[ERROR]": slog.LevelError, "panic: ": slog.LevelError, "fatal error: ": slog.LevelError,
	} {
		if bytes.HasPrefix(line, []byte(prefix)) {
			return level
		}
	}
	return slog.LevelInfo
}

// clip cuts s to at most n bytes and lets go of the rest.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.Clone(s[:n])
}
