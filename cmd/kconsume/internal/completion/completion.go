// Package completion writes the scripts by which shells complete a command
// line: bash, zsh and fish, each from the same tree of commands. They ask the
// program nothing, so that completing costs no start of it.
package completion

import (
	"slices"
	"strings"
)

// Program is the command line as a whole.
type Program struct {
	Command
	HandlerDirs []string // where packages and administrators install handlers
}

// Command is a command with its flags, or with commands of its own.
type Command struct {
	Name, Usage string
	Flags       []Flag
	Args        []Value // what its arguments are, in order
	Sub         []Command
}

// Flag is one flag. A switch takes a value only behind "=".
type Flag struct {
	Name, Alias, Usage string // without dashes
	Switch             bool
	Value              Value
}

// Kind says where a value's candidates come from.
type Kind string

const (
	Nothing  Kind = "nothing" // anything may be typed
	Words    Kind = "words"
	Files    Kind = "files"
	Dirs     Kind = "dirs"
	Handlers Kind = "handlers" // installed handlers' names, or files
)

// Value is what a flag's value or an argument may be.
type Value struct {
	Kind  Kind // "" is Nothing
	Words []string
}

func (v Value) kind() Kind {
	if v.Kind == "" {
		return Nothing
	}
	return v.Kind
}

func (v Value) equal(w Value) bool { return v.kind() == w.kind() && slices.Equal(v.Words, w.Words) }

// names are a flag's, with dashes.
func (f Flag) names() []string {
	if f.Alias == "" {
		return []string{"--" + f.Name}
	}
	return []string{"--" + f.Name, "-" + f.Alias}
}

// value of a switch is what stands behind "=".
func (f Flag) value() Value {
	if f.Switch {
		return Value{Words, []string{"true", "false"}}
	}
	return f.Value
}

// place is a command and the words that lead to it: "kconsume dlq list".
type place struct {
	Command
	path string
}

// places are a command and all below it, each before those below it.
func places(c Command, above string) []place {
	path := strings.TrimSpace(above + " " + c.Name)
	all := []place{{c, path}}
	for _, s := range c.Sub {
		all = append(all, places(s, path)...)
	}
	return all
}

// choice is a value and the places where a flag takes it; none means that it is
// the same wherever the flag is.
type choice struct {
	value Value
	paths []string
}

// named is what a flag of one name takes.
type named struct {
	flag    Flag
	choices []choice
}

// byName gathers the flags of all places, in the order of their first one.
func byName(all []place) []named {
	var out []named
	for _, p := range all {
		for _, f := range p.Flags {
			i := slices.IndexFunc(out, func(n named) bool { return n.flag.Name == f.Name })
			if i < 0 {
				out = append(out, named{flag: f})
				i = len(out) - 1
			}
			cs := out[i].choices
			j := slices.IndexFunc(cs, func(c choice) bool { return c.value.equal(f.value()) })
			if j < 0 {
				cs = append(cs, choice{value: f.value()})
				j = len(cs) - 1
			}
			cs[j].paths = append(cs[j].paths, p.path)
			out[i].choices = cs
		}
	}
	for i := range out {
		if len(out[i].choices) == 1 {
			out[i].choices[0].paths = nil
		}
	}
	return out
}

// patterns are what a shell's case compares "PATH FLAG" with.
func (n named) patterns(c choice) string {
	var out []string
	for _, name := range n.flag.names() {
		if c.paths == nil {
			out = append(out, "*' "+name+"'")
		}
		for _, p := range c.paths {
			out = append(out, quote(p+" "+name))
		}
	}
	return strings.Join(out, "|")
}

// quote is a text as one word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
