package package_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// completions are lines as they are typed and what a shell must offer for them.
func completions() map[string]string {
	return map[string]string{
		"kconsume d":                             "dev dlq",
		"kconsume dlq re":                        "replay resolve restore",
		"kconsume --log-level ":                  "debug error info warn",
		"kconsume --log-level debug vers":        "version",
		"kconsume run --ord":                     "--order",
		"kconsume run --order ":                  "key none partition",
		"kconsume run --group dlq --dlq-re":      "--dlq-retention",
		"kconsume dlq list --limit 3 -o ":        "json jsonl table",
		"kconsume status -o ":                    "json table",
		"kconsume dlq list orders.dlq --stat":    "--status",
		"kconsume completion ":                   "bash fish zsh",
		"kconsume man kconsume.":                 "kconsume.1 kconsume.yaml.5",
		"kconsume run --config /etc/debian_vers": "/etc/debian_version",
		"kconsume run --group ":                  "",
	}
}

func TestCompletionInFish(t *testing.T) {
	t.Parallel()
	script := filepath.Join(extracted(t), "usr/share/fish/vendor_completions.d/kconsume.fish")
	for line, want := range completions() {
		out, err := output(t, "fish", "--no-config", "-c", "source "+script+"; complete -C "+"'"+line+"'")
		if err != nil {
			t.Fatalf("%v %s", err, out)
		}
		var got []string
		for l := range strings.Lines(out) {
			word, _, _ := strings.Cut(strings.TrimSpace(l), "\t") // its meaning follows
			got = append(got, word)
		}
		slices.Sort(got)
		if g := strings.Join(got, " "); g != want {
			t.Errorf("%q: %q; want %q", line, g, want)
		}
	}
}

// zshDriver types a line and a tab in an interactive zsh and writes what its
// completion was given into a file, END when that is done.
const zshDriver = `
dir=$1 out=$2 line=$3
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "PS1=; fpath=($dir \$fpath); autoload -Uz compinit; compinit -u -D"
zpty -w z 'compadd() {
    if (( ${@[(I)-[OAD]]} )); then builtin compadd "$@"; return; fi
    local -a hits; builtin compadd -A hits "$@"; (( $#hits )) && print -rl -- $hits >>'$out'
    builtin compadd "$@"
}'
zpty -w z 'capture() { _main_complete; print END >>'$out' }; zle -C capture complete-word capture; bindkey "^I" capture'
zpty -n -w z "$line"$'\t'
for i in {1..3000}; do
    if grep -qx END $out 2>/dev/null; then break; fi
    zpty -r -t z >/dev/null
    sleep 0.01
done
zpty -d z
`

func TestCompletionInZsh(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(extracted(t), "usr/share/zsh/vendor-completions")
	for line, want := range completions() {
		out := filepath.Join(t.TempDir(), "out")
		cmd := exec.Command("zsh", "-f", "-c", zshDriver, "zsh", dir, out, line)
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, said)
		}
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		offered, done := strings.CutSuffix(string(b), "END\n")
		if !done {
			t.Fatalf("%q: zsh did not end completing: %s", line, b)
		}
		got := strings.Fields(offered)
		for i := range got { // files come without their folder
			if strings.HasPrefix(want, "/etc/") {
				got[i] = "/etc/" + filepath.Base(got[i])
			}
		}
		slices.Sort(got)
		if g := strings.Join(slices.Compact(got), " "); g != want {
			t.Errorf("%q: %q; want %q", line, g, want)
		}
	}
}
