package option

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kconsume/kconsume/engine/topology"
)

// badValue is a value that cannot be. It does not know where it was written.
type badValue struct{ what, todo string }

func bad(todo, format string, args ...any) *badValue {
	return &badValue{fmt.Sprintf(format, args...), todo}
}

// split makes a list of one text: at commas for List and Durations, at line
// ends for Lines. An empty text is an empty list, never one of one empty value.
func (o *Option) split(text string) []string {
	separator := ","
	if o.Kind == Lines {
		separator = "\n"
		text = strings.TrimSuffix(text, "\n")
	}
	if text == "" {
		return nil
	}
	parts := strings.Split(text, separator)
	if o.Kind != Lines {
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
	}
	return parts
}

// scalar parses the one value of an option that is no list.
func (o *Option) scalar(text string) (any, *badValue) {
	if text == "" && !o.Empty {
		return nil, bad("give a value, or leave it out", "empty value")
	}
	switch o.Kind {
	case Duration:
		return o.duration(text)
	case Number:
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, bad("write a whole number of at least 1", "bad number %q", text)
		}
		return n, nil
	case Size:
		return parseSize(text)
	case Bool:
		switch text {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		return nil, bad("write true or false", "bad value %q", text)
	case Choice, Start:
		return o.choose(text)
	}
	return text, o.check(text)
}

func (o *Option) check(text string) *badValue {
	if o.Check == nil || text == "" {
		return nil
	}
	if todo := o.Check(text); todo != "" {
		return bad(todo, "bad value %q", o.Redacted(text))
	}
	return nil
}

func (o *Option) choose(text string) (any, *badValue) {
	for _, c := range o.Choices {
		if c == text {
			return text, nil
		}
	}
	if o.Kind != Start {
		return nil, bad("write one of "+strings.Join(o.Choices, ", "), "bad value %q", text)
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, bad("write "+strings.Join(o.Choices, ", ")+" or a time such as 2006-01-02T15:04:05Z", "bad value %q", text)
	}
	return t, nil
}

func (o *Option) duration(text string) (any, *badValue) {
	if o.Zero != "" && text == o.Zero {
		return time.Duration(0), nil
	}
	d, wrong := parseDuration(text)
	if wrong != nil {
		return nil, wrong
	}
	if d <= 0 {
		return nil, bad("write one longer than zero", "bad duration %q", text)
	}
	return d, nil
}

func parseDuration(text string) (time.Duration, *badValue) {
	d, err := time.ParseDuration(text)
	if err == nil && (d != 0 || text != "0") {
		return d, nil
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, bad("write "+text+"s for seconds", "duration %q has no unit", text)
	}
	return 0, bad("write a number and a unit, such as 5s, 500ms or 1h30m", "bad duration %q", text)
}

// items parses the values of a list.
func (o *Option) items(texts []string) (any, *badValue) {
	if o.Kind != Durations {
		for i, t := range texts {
			if t == "" && o.Kind == List {
				return nil, bad("remove the comma too many", "value %d is empty", i+1)
			}
			if wrong := o.check(t); wrong != nil {
				return nil, wrong
			}
		}
		if o.CheckAll != nil {
			if wrong, todo := o.CheckAll(texts); wrong != "" {
				return nil, bad(todo, "%s", wrong)
			}
		}
		return append([]string{}, texts...), nil
	}
	ds := make([]time.Duration, 0, len(texts))
	for i, t := range texts {
		d, wrong := parseDuration(t)
		if wrong != nil {
			return nil, bad(wrong.todo, "%s in tier %d", wrong.what, i+1)
		}
		ds = append(ds, d)
	}
	return ds, nil
}

type sizeUnit struct {
	name  string
	bytes int64
}

// sizeUnits are in the order in which suffixes must be tried.
func sizeUnits() []sizeUnit {
	return []sizeUnit{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1}}
}

func parseSize(text string) (any, *badValue) {
	for _, u := range sizeUnits() {
		digits, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt/u.bytes {
			break
		}
		return int(n * u.bytes), nil
	}
	return nil, bad("write a number of bytes, or one with a unit such as 512KiB, 32MiB or 1GiB", "bad size %q", text)
}

// FormatSize is a size in its largest whole unit.
func FormatSize(n int) string {
	for _, u := range []sizeUnit{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n > 0 && int64(n)%u.bytes == 0 {
			return strconv.FormatInt(int64(n)/u.bytes, 10) + u.name
		}
	}
	return strconv.Itoa(n)
}

// FormatDuration is a duration in its largest whole unit.
func FormatDuration(d time.Duration) string {
	if d == 0 || d%time.Millisecond != 0 {
		return d.String()
	}
	return topology.FormatDelay(d)
}
