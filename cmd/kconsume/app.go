package main

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
	"github.com/urfave/cli/v2"
)

// command is one command of ours.
type command struct {
	name, usage, description string

	use      option.Use
	required []string          // settings that must have a value
	defaults map[string]string // of settings for which this command has others than the table
	hidden   bool              // from people: kconsume itself runs it
	args     []string          // what its arguments are called, in order; those in brackets may be left out
	forms    []string          // of -o, beside the table's
	// tolerant commands are told what is wrong with the settings and go on.
	tolerant bool
	action   func(context.Context, *invocation) error
	sub      []command
}

// invocation is one call of a command.
type invocation struct {
	*system
	opts     *option.Set
	reread   func() (*option.Set, []error) // the settings as they are now
	args     []string                      // the arguments of a command that takes some
	problems []error                       // what is wrong with the settings, for tolerant commands
}

// options are the command's settings.
func (c command) options() []option.Option {
	options := option.For(option.Table(), c.use)
	for i := range options {
		if d, ok := c.defaults[options[i].Name]; ok {
			options[i].Default = d
		}
		if options[i].Name == "output" {
			options[i].Choices = append(options[i].Choices, c.forms...)
		}
	}
	return options
}

func commands() []command {
	return []command{
		runCommand(),
		devCommand(),
		devHandlerCommand(),
		validateCommand(),
		{name: "config", usage: "show settings", sub: []command{configShowCommand()}},
		{name: "topics", usage: "plan and create the topics beside the main ones", sub: []command{topicsPlanCommand(), topicsApplyCommand()}},
		{name: "retries", usage: "show what waits for a retry, and take over a renamed group's records", sub: []command{retriesListCommand(), retriesAdoptCommand()}},
		dlqCommand(),
		jobsCommand(),
		consoleCommand(),
		pluginCommand(),
		statusCommand(),
		completionCommand(),
		manCommand(),
		versionCommand(),
	}
}

func newApp(s *system) *cli.App {
	g := given{}
	var global []option.Option
	for _, o := range option.Table() {
		if o.Global {
			global = append(global, o)
		}
	}
	app := &cli.App{
		Name:           "kconsume",
		Usage:          "consume Kafka topics with retry topics, dead letter queues and handler plugins",
		Version:        readBuild().Version,
		Writer:         s.stdout,
		ErrWriter:      s.stderr,
		Flags:          flagsOf(global, g),
		ExitErrHandler: func(*cli.Context, error) {}, // run reports
	}
	app.OnUsageError = func(_ *cli.Context, err error, _ bool) error {
		return usageError("kconsume", err, app.Flags)
	}
	app.Commands = build(s, g, "kconsume", commands())
	app.Action = group("kconsume", commands())
	return app
}

// build turns our commands into the library's.
func build(s *system, g given, parent string, cs []command) []*cli.Command {
	var out []*cli.Command
	for _, c := range cs {
		path := parent + " " + c.name
		cc := &cli.Command{Name: c.name, Usage: c.usage, Description: c.description, Hidden: c.hidden}
		if len(c.sub) > 0 {
			cc.Subcommands = build(s, g, path, c.sub)
			cc.Action = group(path, c.sub)
		} else {
			cc.HideHelpCommand = true
			cc.ArgsUsage = cmp.Or(strings.Join(c.args, " "), " ") // none
			cc.Flags = flagsOf(c.options(), g)
			cc.Action = func(ctx *cli.Context) error { return c.call(ctx, s, g, path) }
		}
		cc.OnUsageError = func(_ *cli.Context, err error, _ bool) error {
			return usageError(path, err, cc.Flags)
		}
		out = append(out, cc)
	}
	return out
}

// group is the action where a command is missing or unknown.
func group(path string, cs []command) cli.ActionFunc {
	var names []string
	for _, c := range cs {
		if !c.hidden {
			names = append(names, c.name)
		}
	}
	return func(ctx *cli.Context) error {
		name := ctx.Args().First()
		if name == "" {
			return fail(exitUsage, "no command given: %s: give one of %s", path, strings.Join(names, ", "))
		}
		todo := "give one of " + strings.Join(names, ", ")
		if near := option.Nearest(name, names); near != "" {
			todo = "did you mean " + near + "?"
		}
		return fail(exitUsage, "unknown command %q: %s: %s", name, path, todo)
	}
}

// call resolves the settings and runs the command.
func (c command) call(ctx *cli.Context, s *system, g given, path string) error {
	args, err := c.arguments(ctx, path)
	if errors.Is(err, errHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if names := g.misplaced(c.use); len(names) > 0 {
		return fail(exitUsage, "flag %s has no function here: %s: remove it", strings.Join(names, ", "), path)
	}
	opts, errs := resolve(s, g, c.options())
	if len(errs) > 0 && !c.tolerant {
		return errors.Join(errs...)
	}
	if missing := opts.Missing(c.required); len(missing) > 0 {
		errs = append(errs, fail(exitUsage, "missing settings: %s: give --%s", path, strings.Join(missing, ", --")))
		if !c.tolerant {
			return errors.Join(errs...)
		}
	}
	reread := func() (*option.Set, []error) { return resolve(s, g, c.options()) }
	return c.action(ctx.Context, &invocation{system: s, opts: opts, reread: reread, args: args, problems: errs})
}

// resolve reads a command's settings from the command line, the environment
// and the file that one of these names. The file is checked as a whole.
func resolve(s *system, g given, used []option.Option) (*option.Set, []error) {
	from := option.Sources{Flags: g, Env: s.env}
	first, _ := option.Resolve(used, from)
	var errs []error
	if option.Find(used, "config") != nil && first.Text("config") != "" {
		from.File, errs = option.ReadFile(first.Text("config"), option.Table())
	}
	opts, wrong := option.Resolve(used, from)
	return opts, append(errs, wrong...)
}
