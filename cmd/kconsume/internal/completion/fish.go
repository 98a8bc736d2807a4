package completion

import (
	"fmt"
	"strings"
)

const fishWalk = `# Where on the line the cursor is: the command, and how many arguments are before it.
function __NAME_at
    set -l at NAME
    set -l args 0
    set -l value 0
    for word in (commandline -opc)[2..-1]
        if test $value = 1
            set value 0
        else if string match -q -- '-*' $word
            if contains -- $word $__NAME_valued
                set value 1
            end
        else if contains -- "$at $word" $__NAME_commands
            set at "$at $word"
        else
            set args (math $args + 1)
        end
    end
    echo $at
    echo $args
end

function __NAME_is
    set -l where (__NAME_at)
    test "$where[1]" = "$argv"
end

function __NAME_argument
    set -l where (__NAME_at)
    test "$where[2]" = $argv[1]; and test "$where[1]" = "$argv[2..-1]"
end

function __NAME_handlers
    for file in HANDLERGLOBS
        string replace -r '.*/kconsume-handler-' '' $file
    end
end

`

// Fish is a script for fish 3.
func Fish(root Program) string {
	all := places(root.Command, "")
	var paths, valued []string
	for _, p := range all {
		paths = append(paths, p.path)
	}
	for _, n := range byName(all) {
		if !n.flag.Switch {
			valued = append(valued, n.flag.names()...)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# fish completion for %s\n\n", root.Name)
	fmt.Fprintf(&b, "set -g __%s_commands %s\n", root.Name, quoteAll(paths))
	fmt.Fprintf(&b, "set -g __%s_valued %s\n\n", root.Name, quoteAll(valued))
	globs := strings.Join(root.HandlerDirs, "/kconsume-handler-* ") + "/kconsume-handler-*"
	b.WriteString(strings.NewReplacer("NAME", root.Name, "HANDLERGLOBS", globs).Replace(fishWalk))
	fmt.Fprintf(&b, "complete -c %s -f\n", root.Name)
	for _, p := range all {
		for _, s := range p.Sub {
			fmt.Fprintf(&b, "complete -c %s -n %s -a %s -d %s\n", root.Name, fishQuote("__"+root.Name+"_is "+p.path), fishQuote(s.Name), fishQuote(s.Usage))
		}
		for _, f := range p.Flags {
			fmt.Fprintf(&b, "complete -c %s -n %s -l %s%s%s -d %s\n", root.Name, fishQuote("__"+root.Name+"_is "+p.path), f.Name, fishAlias(f), fishFlag(root.Name, f), fishQuote(f.Usage))
		}
		for i, v := range p.Args {
			if v.kind() != Nothing {
				fmt.Fprintf(&b, "complete -c %s -n %s%s\n", root.Name, fishQuote(fmt.Sprintf("__%s_argument %d %s", root.Name, i, p.path)), fishValue(root.Name, v))
			}
		}
	}
	return b.String()
}

func fishAlias(f Flag) string {
	if f.Alias == "" {
		return ""
	}
	return " -s " + f.Alias
}

// fishFlag: a switch has no value of its own in fish.
func fishFlag(name string, f Flag) string {
	if f.Switch {
		return ""
	}
	return " -r" + fishValue(name, f.Value)
}

func fishValue(name string, v Value) string {
	switch v.kind() {
	case Words:
		return " -f -a " + fishQuote(strings.Join(v.Words, " "))
	case Files:
		return " -F"
	case Dirs:
		return " -f -a " + fishQuote("(__fish_complete_directories)")
	case Handlers:
		return " -F -a " + fishQuote("(__"+name+"_handlers)")
	}
	return " -f"
}

// fishQuote: within quotes fish takes a backslash for an escape.
func fishQuote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
}
