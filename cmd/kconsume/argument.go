package main

import (
	"errors"
	"flag"
	"io"
	"strings"

	"github.com/urfave/cli/v2"
)

// errHelp ends a command whose help was asked for behind its argument.
var errHelp = errors.New("help was asked for")

// arguments are a command's arguments. The library takes everything from the
// first argument on for arguments, flags too: going on would ignore them. Behind
// an argument that is wanted they are read here.
func (c command) arguments(ctx *cli.Context, path string) ([]string, error) {
	given := ctx.Args().Slice()
	switch {
	case len(c.args) == 0 && len(given) == 0:
		return nil, nil
	case len(c.args) == 0 && (given[0] == "true" || given[0] == "false"):
		return nil, fail(exitUsage, "stray argument %q: %s: a switch takes its value with =, as in --create-topics=false", given[0], path)
	case len(c.args) == 0:
		return nil, fail(exitUsage, "stray argument %q: %s: it takes none, and flags after it would be ignored: remove it", given[0], path)
	}
	rest := flag.NewFlagSet(path, flag.ContinueOnError)
	rest.SetOutput(io.Discard)
	for _, f := range ctx.Command.Flags {
		if _, ours := f.(*optionFlag); !ours {
			continue // the library's own flag for help, which it asks for by itself
		}
		if err := f.Apply(rest); err != nil {
			return nil, err
		}
	}
	var args []string
	for len(given) > 0 {
		if !strings.HasPrefix(given[0], "-") {
			args = append(args, given[0])
			given = given[1:]
			continue
		}
		switch err := rest.Parse(given); {
		case errors.Is(err, flag.ErrHelp):
			cli.HelpPrinter(ctx.App.Writer, cli.CommandHelpTemplate, ctx.Command)
			return nil, errHelp
		case err != nil:
			return nil, usageError(path, err, ctx.Command.Flags)
		}
		given = rest.Args()
	}
	return args, c.counted(args, path)
}

// counted says whether as many arguments were given as are wanted.
func (c command) counted(args []string, path string) error {
	for i, name := range c.args {
		if strings.HasPrefix(name, "[") {
			break
		}
		if i >= len(args) || args[i] == "" {
			return fail(exitUsage, "missing argument: %s: give %s", path, name)
		}
	}
	if len(args) > len(c.args) {
		return fail(exitUsage, "stray argument %q: %s: it takes %s: remove it", args[len(c.args)], path, strings.Join(c.args, " "))
	}
	return nil
}
