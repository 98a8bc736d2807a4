package option

import (
	"fmt"
	"time"
)

// Source is where a value comes from.
type Source string

const (
	FromFlag    Source = "flag"
	FromEnv     Source = "env"
	FromFile    Source = "file"
	FromDefault Source = "default"
)

// Origin is the place of a value.
type Origin struct {
	Source Source
	At     string // "--retry", "KCONSUME_RETRY", "kconsume.yaml:3", "" for a default
}

// Set is a value for every setting of a table.
type Set struct {
	table  []Option
	values map[string]value
}

type value struct {
	v      any
	origin Origin
}

// Sources are where values may come from.
type Sources struct {
	Flags map[string][]string // what was given, in order; a name that is absent was not
	Env   func(string) (string, bool)
	File  *File // may be nil
}

// Resolve finds the value of each setting. It returns everything that is wrong,
// each an *Error; a setting that is wrong keeps its default.
func Resolve(table []Option, from Sources) (*Set, []error) {
	s := &Set{table: table, values: make(map[string]value, len(table))}
	var errs []error
	for i := range table {
		o := &table[i]
		v, origin, wrong := o.resolve(from)
		if wrong != nil {
			errs = append(errs, &Error{wrong.what, origin.where(o), wrong.todo})
			v, origin, _ = o.resolve(Sources{Env: func(string) (string, bool) { return "", false }})
		}
		s.values[o.Name] = value{v, origin}
	}
	for i := range table { // these follow from the others
		o := &table[i]
		if o.Computed != nil && s.values[o.Name].origin.Source == FromDefault {
			s.values[o.Name] = value{o.Computed(s), Origin{Source: FromDefault}}
		}
	}
	return s, errs
}

// where names a value's place in an error.
func (o Origin) where(opt *Option) string {
	if o.Source == FromFile {
		return o.At + " " + opt.Name
	}
	return o.At
}

// resolve takes the first source that has a value.
func (o *Option) resolve(from Sources) (any, Origin, *badValue) {
	if given, ok := from.Flags[o.Name]; ok {
		origin := Origin{FromFlag, "--" + o.Name}
		if !o.Kind.list() {
			if other := differing(given); other != "" {
				return nil, origin, bad("give it once", "two values, %q and %q", given[0], other)
			}
			v, wrong := o.scalar(given[0])
			return v, origin, wrong
		}
		v, wrong := o.items(o.gather(given))
		return v, origin, wrong
	}
	if text, ok := from.Env(o.Env()); ok {
		return o.text(text, Origin{FromEnv, o.Env()})
	}
	if from.File != nil {
		if e, ok := from.File.entries[o.Name]; ok {
			origin := Origin{FromFile, fmt.Sprintf("%s:%d", from.File.path, e.line)}
			if e.list {
				v, wrong := o.items(e.values)
				return v, origin, wrong
			}
			if o.Kind == Lines && e.values[0] != "" {
				v, wrong := o.items(e.values)
				return v, origin, wrong
			}
			return o.text(e.values[0], origin)
		}
	}
	if o.Default == "" && !o.Kind.list() {
		return o.zero(), Origin{Source: FromDefault}, nil
	}
	return o.text(o.Default, Origin{Source: FromDefault})
}

// text parses a value that is written as one text.
func (o *Option) text(text string, origin Origin) (any, Origin, *badValue) {
	if !o.Kind.list() {
		v, wrong := o.scalar(text)
		return v, origin, wrong
	}
	v, wrong := o.items(o.split(text))
	return v, origin, wrong
}

// gather joins a repeated flag's values. Given once and empty it is an empty list.
func (o *Option) gather(given []string) []string {
	if o.Kind == Lines {
		if len(given) == 1 && given[0] == "" {
			return nil
		}
		return given
	}
	var all []string
	for _, g := range given {
		all = append(all, o.split(g)...)
	}
	return all
}

func differing(given []string) string {
	for _, g := range given[1:] {
		if g != given[0] {
			return g
		}
	}
	return ""
}

func (o *Option) zero() any {
	switch o.Kind {
	case Duration:
		return time.Duration(0)
	case Number, Size:
		return 0
	case Bool:
		return false
	}
	return ""
}

func get[T any](s *Set, name string) T {
	v, ok := s.values[name].v.(T)
	if !ok {
		panic(fmt.Sprintf("option %s is read as %T and is %T", name, v, s.values[name].v))
	}
	return v
}

// Text is a Text's or a Choice's value.
func (s *Set) Text(name string) string { return get[string](s, name) }

// List is a List's or a Lines' value, never nil.
func (s *Set) List(name string) []string { return get[[]string](s, name) }

// Duration is a Duration's value.
func (s *Set) Duration(name string) time.Duration { return get[time.Duration](s, name) }

// Durations is a Durations' value, never nil.
func (s *Set) Durations(name string) []time.Duration { return get[[]time.Duration](s, name) }

// Int is a Number's or a Size's value.
func (s *Set) Int(name string) int { return get[int](s, name) }

// Bool is a Bool's value.
func (s *Set) Bool(name string) bool { return get[bool](s, name) }

// Start is a Start's value: one of its choices, or a time.
func (s *Set) Start(name string) (choice string, at time.Time) {
	if at, ok := s.values[name].v.(time.Time); ok {
		return "", at
	}
	return s.Text(name), time.Time{}
}

// Origin is where a setting's value comes from.
func (s *Set) Origin(name string) Origin { return s.values[name].origin }

// Given reports whether a setting was given at all.
func (s *Set) Given(name string) bool { return s.values[name].origin.Source != FromDefault }

// Missing are the names among those given that have no value.
func (s *Set) Missing(names []string) []string {
	var missing []string
	for _, n := range names {
		switch v := s.values[n].v.(type) {
		case string:
			if v != "" {
				continue
			}
		case []string:
			if len(v) > 0 {
				continue
			}
		}
		missing = append(missing, n)
	}
	return missing
}

// Setting is one setting as it is shown.
type Setting struct {
	Name   string
	Value  any // what JSON shows: string, number, bool or list of strings
	Origin Origin
}

// Settings are all of them but those that the file cannot say, in the table's order.
func (s *Set) Settings() []Setting {
	var out []Setting
	for _, o := range s.table {
		if o.NotInFile {
			continue
		}
		v := s.values[o.Name]
		out = append(out, Setting{o.Name, o.shown(v.v), v.origin})
	}
	return out
}

func (o *Option) shown(v any) any {
	switch v := v.(type) {
	case time.Duration:
		if v == 0 && o.Zero != "" {
			return o.Zero
		}
		return FormatDuration(v)
	case []time.Duration:
		texts := make([]string, 0, len(v))
		for _, d := range v {
			texts = append(texts, FormatDuration(d))
		}
		return texts
	case time.Time:
		return v.Format(time.RFC3339)
	case int:
		if o.Kind == Size {
			return FormatSize(v)
		}
	}
	return v
}
