package completion

import (
	"fmt"
	"strings"
)

// bashWalk finds out at which command the cursor is, and in which flag's value.
// Readline makes words of their own of "=" and of what is around it.
const bashWalk = `_NAME() {
    local cur=${COMP_WORDS[COMP_CWORD]} at=NAME flag='' last='' args=0 word i
    local subs='' flags='' kind='' words=''
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $word == '=' ]]; then
            flag=$last
        elif [[ $flag ]]; then
            flag='' last=''
        elif [[ $word == -* ]]; then
            last=${word%%=*}
            if [[ $word != *=* ]] && _NAME_value "$at" "$last" && [[ $kind != switch ]]; then
                flag=$last
            fi
        else
            _NAME_command "$at"
            if [[ " $subs " == *" $word "* ]]; then
                at+=" $word"
            else
                ((args += 1))
            fi
        fi
    done
    if [[ $cur == '=' ]]; then
        cur='' flag=$last
    fi
    _NAME_command "$at"
    if [[ $flag ]]; then
        _NAME_value "$at" "$flag" || return 0
        if [[ $kind == switch ]]; then kind=words; fi
    elif [[ $cur == -* ]]; then
        kind=words words=$flags
    elif [[ $subs ]]; then
        kind=words words=$subs
    else
        _NAME_argument "$at" "$args" || return 0
    fi
    case $kind in
    words) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur") ;;
    files) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    dirs) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    handlers)
        if [[ $cur == */* ]]; then
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        else
            mapfile -t COMPREPLY < <(compgen -W "$(_NAME_handlers)" -- "$cur")
        fi
        ;;
    esac
}

_NAME_handlers() {
    local dir file
    for dir in HANDLERDIRS; do
        for file in "$dir"/kconsume-handler-*; do
            if [[ -e $file ]]; then echo "${file##*/kconsume-handler-}"; fi
        done
    done
}

complete -F _NAME NAME
`

// Bash is a script for bash 4.2 and later.
func Bash(root Program) string {
	all := places(root.Command, "")
	var b strings.Builder
	fmt.Fprintf(&b, "# bash completion for %s\n\n", root.Name)
	fmt.Fprintf(&b, "# The commands and flags at a command.\n_%s_command() {\n    subs='' flags=''\n    case $1 in\n", root.Name)
	for _, p := range all {
		var subs, flags []string
		for _, s := range p.Sub {
			subs = append(subs, s.Name)
		}
		for _, f := range p.Flags {
			flags = append(flags, f.names()...)
		}
		fmt.Fprintf(&b, "    %s) subs=%s flags=%s ;;\n", quote(p.path), quote(strings.Join(subs, " ")), quote(strings.Join(flags, " ")))
	}
	fmt.Fprintf(&b, "    esac\n}\n\n# What a flag takes.\n_%s_value() {\n    kind='' words=''\n    case \"$1 $2\" in\n", root.Name)
	for _, n := range byName(all) {
		for _, c := range n.choices {
			kind := c.value.kind()
			if n.flag.Switch {
				kind = "switch"
			}
			fmt.Fprintf(&b, "    %s) kind=%s words=%s ;;\n", n.patterns(c), kind, quote(strings.Join(c.value.Words, " ")))
		}
	}
	fmt.Fprintf(&b, "    *) return 1 ;;\n    esac\n}\n\n# What an argument is.\n_%s_argument() {\n    kind='' words=''\n    case \"$1 $2\" in\n", root.Name)
	arguments(&b, all, func(pattern string, v Value) string {
		return fmt.Sprintf("    %s) kind=%s words=%s ;;\n", pattern, v.kind(), quote(strings.Join(v.Words, " ")))
	})
	fmt.Fprintf(&b, "    *) return 1 ;;\n    esac\n}\n\n")
	b.WriteString(strings.NewReplacer("NAME", root.Name, "HANDLERDIRS", strings.Join(root.HandlerDirs, " ")).Replace(bashWalk))
	return b.String()
}

// arguments writes a case for each argument that has candidates.
func arguments(b *strings.Builder, all []place, write func(pattern string, v Value) string) {
	for _, p := range all {
		for i, v := range p.Args {
			if v.kind() != Nothing {
				b.WriteString(write(quote(fmt.Sprintf("%s %d", p.path, i)), v))
			}
		}
	}
}
