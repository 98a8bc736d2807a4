package option

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/configure.md anew")

const referenceFile = "../../../../docs/configure.md"

// The page of settings is what the table says.
func TestReference(t *testing.T) {
	page := reference()
	if *update {
		if err := os.WriteFile(referenceFile, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != page {
		t.Errorf("docs/configure.md is not what the flags are: run go test ./cmd/kconsume/internal/option -run Reference -update")
	}
}

const referenceHead = `# Configure

Every setting has three names: a flag, a variable of the environment, and a key of the YAML file (` + "`--config FILE`" + `). The
flag is stronger than the environment, the environment than the file, the file than the default. The file's keys are the
flags' names without the dashes:

` + "```yaml" + `
brokers: [127.0.0.1:9092]
group: billing
topic: [orders.confirmed]
handler: orders
retry: [5s, 30s]
` + "```" + `

` + "`kconsume config show --origin`" + ` prints what holds and where it comes from; ` + "`kconsume validate`" + ` says what is wrong with it, each
problem with its place and what to do, and exits with 78. An unknown key is an error. Secrets are never values: they are
read from files. SIGHUP has a running daemon read secrets, certificates, tokens, the log level and the handler again; every
other change needs a restart.

Commas separate brokers, topics and delays, and nothing else: arguments and variables of a handler keep theirs. A duration
is a number with a unit (` + "`500ms`, `5s`, `1m`, `2h`" + `), a size one with ` + "`KiB`, `MiB` or `GiB`" + `.

This page is generated from the program.
`

// reference is docs/configure.md.
func reference() string {
	var b strings.Builder
	b.WriteString(referenceHead)
	for _, part := range []struct {
		title   string
		options []Option
	}{
		{"General", general()}, {"Handler", handler()}, {"Retries and dead letters", retries()}, {"Delivery", delivery()},
		{"Cluster", cluster()}, {"The daemon itself", service()},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| flag | environment | default | meaning |\n|---|---|---|---|\n", part.title)
		for _, o := range For(part.options, Run) {
			fmt.Fprintf(&b, "| `--%s` | `%s` | %s | %s |\n", o.Name, o.Env(), o.shownDefault(), cell(o.Help+o.shownChoices()))
		}
	}
	return b.String()
}

func (o *Option) shownDefault() string {
	if o.Default == "" || o.Computed != nil {
		return "" // the meaning says it
	}
	return "`" + strings.ReplaceAll(o.Default, "\n", "`, `") + "`"
}

func (o *Option) shownChoices() string {
	if o.Kind != Choice {
		return ""
	}
	return ": " + strings.Join(o.Choices, ", ")
}

func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }
