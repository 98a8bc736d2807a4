package main

import (
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
	"github.com/urfave/cli/v2"
)

// given is what the command line gave: the values of each flag, in order. The
// library's own list flags would split them at commas.
type given map[string][]string

// optionFlag is a setting as a flag. It only notes what was given; the option
// package gives it a meaning.
type optionFlag struct {
	option.Option
	given given
}

func flagsOf(options []option.Option, g given) []cli.Flag {
	var fs []cli.Flag
	for _, o := range options {
		fs = append(fs, &optionFlag{o, g})
	}
	return fs
}

// Apply defines the flag.
func (f *optionFlag) Apply(set *flag.FlagSet) error {
	for _, name := range f.Names() {
		set.Var(&rawValue{f}, name, f.Help)
	}
	return nil
}

// Names are the flag's name and its alias.
func (f *optionFlag) Names() []string {
	if f.Alias == "" {
		return []string{f.Name}
	}
	return []string{f.Name, f.Alias}
}

// IsSet reports whether the flag was given.
func (f *optionFlag) IsSet() bool { return len(f.given[f.Name]) > 0 }

// String is the flag's line in the help.
func (f *optionFlag) String() string {
	names := "--" + f.Name
	if f.Alias != "" {
		names += ", -" + f.Alias
	}
	switch {
	case f.Kind == option.Bool && f.Default == "true":
		names += "[=false]"
	case f.Arg != "":
		names += " " + f.Arg
	}
	return fmt.Sprintf("%s\t%s%s [$%s]", names, f.Help, f.notes(), f.Env())
}

func (f *optionFlag) notes() string {
	var notes []string
	if len(f.Choices) > 0 && f.Kind == option.Choice {
		notes = append(notes, strings.Join(f.Choices, ", "))
	}
	if f.Default != "" {
		notes = append(notes, "default: "+strings.ReplaceAll(f.Default, "\n", ", "))
	}
	if len(notes) == 0 {
		return ""
	}
	return " (" + strings.Join(notes, "; ") + ")"
}

// What follows is what the library asks of a flag for help and manual pages.

// TakesValue reports whether a value follows the flag.
func (f *optionFlag) TakesValue() bool { return f.Kind != option.Bool }

// GetUsage is the help's text.
func (f *optionFlag) GetUsage() string { return f.Help }

// GetValue is the default.
func (f *optionFlag) GetValue() string { return f.Default }

// GetDefaultText is the default as it is shown.
func (f *optionFlag) GetDefaultText() string { return strings.ReplaceAll(f.Default, "\n", ", ") }

// GetEnvVars is the name in the environment.
func (f *optionFlag) GetEnvVars() []string { return []string{f.Env()} }

// IsVisible reports whether help shows the flag.
func (f *optionFlag) IsVisible() bool { return true }

// rawValue notes a flag's values.
type rawValue struct{ of *optionFlag }

func (v *rawValue) Set(s string) error {
	v.of.given[v.of.Name] = append(v.of.given[v.of.Name], s)
	return nil
}

func (v *rawValue) String() string {
	if v.of == nil || !v.of.IsSet() {
		return ""
	}
	all := v.of.given[v.of.Name]
	return all[len(all)-1]
}

func (v *rawValue) IsBoolFlag() bool { return v.of.Kind == option.Bool }

// usageError turns what the flag parser says into one line of ours.
func usageError(command string, err error, flags []cli.Flag) error {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		name = "--" + strings.TrimLeft(name, "-")
		return fail(exitUsage, "unknown flag %s: %s: %s", name, command, suggestFlag(name, command, flags))
	}
	if name, ok := strings.CutPrefix(text, "flag needs an argument: -"); ok {
		return fail(exitUsage, "flag --%s has no value: %s: write --%s VALUE", strings.TrimLeft(name, "-"), command, strings.TrimLeft(name, "-"))
	}
	return fail(exitUsage, "%s: %s: see %s --help", text, command, command)
}

func suggestFlag(name, command string, flags []cli.Flag) string {
	var names []string
	for _, f := range flags {
		names = append(names, f.Names()[0])
	}
	if near := option.Nearest(strings.TrimPrefix(name, "--"), names); near != "" {
		return "did you mean --" + near + "?"
	}
	return "see " + command + " --help"
}

// misplaced names the flags that were given before the command and have no
// function in it.
func (g given) misplaced(use option.Use) []string {
	var names []string
	for _, o := range option.Table() {
		if _, ok := g[o.Name]; ok && o.Use&use == 0 {
			names = append(names, "--"+o.Name)
		}
	}
	slices.Sort(names)
	return names
}
