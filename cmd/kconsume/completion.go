package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/completion"
	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
)

func completionCommand() command {
	shell := func(name, usage string, script func(completion.Program) string) command {
		return command{name: name, usage: usage, action: func(_ context.Context, in *invocation) error {
			if _, err := fmt.Fprint(in.stdout, script(completionTree())); err != nil {
				return fmt.Errorf("print completion: %w", err)
			}
			return nil
		}}
	}
	return command{name: "completion", usage: "print a shell's completion of kconsume", sub: []command{
		shell("bash", "for bash: source it, or install it as bash-completion/completions/kconsume", completion.Bash),
		shell("zsh", "for zsh: source it, or install it as _kconsume in a directory of $fpath", completion.Zsh),
		shell("fish", "for fish: source it, or install it as vendor_completions.d/kconsume.fish", completion.Fish),
	}}
}

// completionTree are the commands as shells complete them.
func completionTree() completion.Program {
	table := option.Table()
	root := completion.Program{HandlerDirs: strings.Split(option.Find(table, "handler-dir").Default, "\n")}
	root.Name, root.Flags = "kconsume", []completion.Flag{
		{Name: "help", Alias: "h", Usage: "show help", Switch: true},
		{Name: "version", Alias: "v", Usage: "print the version", Switch: true},
	}
	for _, o := range table {
		if o.Global {
			root.Flags = append(root.Flags, completedFlag(o))
		}
	}
	root.Sub = completedCommands(commands())
	return root
}

func completedCommands(cs []command) (out []completion.Command) {
	for _, c := range cs {
		if c.hidden {
			continue
		}
		done := completion.Command{Name: c.name, Usage: c.usage, Sub: completedCommands(c.sub)}
		done.Flags = []completion.Flag{{Name: "help", Alias: "h", Usage: "show help", Switch: true}}
		for _, o := range c.options() {
			done.Flags = append(done.Flags, completedFlag(o))
		}
		for _, a := range c.args {
			done.Args = append(done.Args, completedArgument(a))
		}
		out = append(out, done)
	}
	return out
}

func completedFlag(o option.Option) completion.Flag {
	f := completion.Flag{Name: o.Name, Alias: o.Alias, Usage: o.Help, Switch: o.Kind == option.Bool}
	switch {
	case len(o.Choices) > 0:
		f.Value = completion.Value{Kind: completion.Words, Words: o.Choices}
	case o.Name == "handler":
		f.Value = completion.Value{Kind: completion.Handlers}
	case o.Arg == "FILE":
		f.Value = completion.Value{Kind: completion.Files}
	case o.Arg == "DIR":
		f.Value = completion.Value{Kind: completion.Dirs}
	}
	return f
}

func completedArgument(name string) completion.Value {
	switch strings.Trim(name, "[]") {
	case "FILE|NAME":
		return completion.Value{Kind: completion.Handlers}
	case "PAGE":
		return completion.Value{Kind: completion.Words, Words: pageNames()}
	}
	return completion.Value{}
}
