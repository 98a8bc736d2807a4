package completion

import (
	"fmt"
	"strings"
)

const zshWalk = `_NAME() {
    local at=NAME flag='' word kind=''
    local -i i args=0
    local -a subs flags values
    for ((i = 2; i < CURRENT; i++)); do
        word=$words[i]
        if [[ -n $flag ]]; then
            flag=''
        elif [[ $word == -* ]]; then
            if [[ $word != *=* ]] && _NAME_value $at $word && [[ $kind != switch ]]; then
                flag=$word
            fi
        else
            _NAME_command $at
            if (( ${subs[(I)${word}:*]} )); then
                at+=" $word"
            else
                (( args += 1 ))
            fi
        fi
    done
    _NAME_command $at
    if [[ -z $flag && $PREFIX == --*=* ]]; then
        flag=${PREFIX%%=*}
        compset -P '*='
    fi
    if [[ -n $flag ]]; then
        _NAME_value $at $flag || return 1
    elif [[ $PREFIX == -* ]]; then
        _describe -o option flags
        return
    elif (( $#subs )); then
        _describe command subs
        return
    else
        _NAME_argument $at $args || return 1
    fi
    case $kind in
    (words|switch) compadd -a values ;;
    (files) _files ;;
    (dirs) _files -/ ;;
    (handlers)
        values=( ${^=:-HANDLERDIRS}/kconsume-handler-*(N:t) )
        values=( ${values#kconsume-handler-} )
        compadd -a values
        if [[ $PREFIX == */* ]]; then _files; fi
        ;;
    esac
}

if [[ $funcstack[1] == _NAME ]]; then
    _NAME "$@"
else
    compdef _NAME NAME
fi
`

// Zsh is a script for zsh 5: a file _kconsume in one of $fpath, or to be sourced.
func Zsh(root Program) string {
	all := places(root.Command, "")
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %s\n\n# The commands and flags at a command, each with what it does.\n_%s_command() {\n    subs=() flags=()\n    case $1 in\n", root.Name, root.Name)
	for _, p := range all {
		fmt.Fprintf(&b, "    (%s)\n", quote(p.path))
		for _, s := range p.Sub {
			fmt.Fprintf(&b, "        subs+=(%s)\n", quote(s.Name+":"+s.Usage))
		}
		for _, f := range p.Flags {
			for _, name := range f.names() {
				fmt.Fprintf(&b, "        flags+=(%s)\n", quote(name+":"+f.Usage))
			}
		}
		b.WriteString("        ;;\n")
	}
	fmt.Fprintf(&b, "    esac\n}\n\n# What a flag takes.\n_%s_value() {\n    kind='' values=()\n    case \"$1 $2\" in\n", root.Name)
	for _, n := range byName(all) {
		for _, c := range n.choices {
			kind := c.value.kind()
			if n.flag.Switch {
				kind = "switch"
			}
			fmt.Fprintf(&b, "    (%s) kind=%s values=(%s) ;;\n", n.patterns(c), kind, quoteAll(c.value.Words))
		}
	}
	fmt.Fprintf(&b, "    (*) return 1 ;;\n    esac\n}\n\n# What an argument is.\n_%s_argument() {\n    kind='' values=()\n    case \"$1 $2\" in\n", root.Name)
	arguments(&b, all, func(pattern string, v Value) string {
		return fmt.Sprintf("    (%s) kind=%s values=(%s) ;;\n", pattern, v.kind(), quoteAll(v.Words))
	})
	fmt.Fprintf(&b, "    (*) return 1 ;;\n    esac\n}\n\n")
	b.WriteString(strings.NewReplacer("NAME", root.Name, "HANDLERDIRS", strings.Join(root.HandlerDirs, " ")).Replace(zshWalk))
	return b.String()
}

func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quote(w)
	}
	return strings.Join(quoted, " ")
}
