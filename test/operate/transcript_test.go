package operate

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/test/kcat"
	"github.com/kconsume/kconsume/test/operate/lab"
)

var update = flag.Bool("update", false, "write testdata/transcript.golden anew")

// terminal runs commands and keeps what was typed and shown.
type terminal struct {
	t    *testing.T
	env  []string
	dir  string
	text strings.Builder
}

// run runs a command line and returns what it printed to stdout.
func (c *terminal) run(code int, line string) string {
	c.t.Helper()
	cmd := exec.Command("bash", "-o", "pipefail", "-c", line)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = c.env, c.dir, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if _, ended := errors.AsType[*exec.ExitError](err); !ended {
			c.t.Fatal(err)
		}
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		c.t.Fatalf("%s: exit %d, want %d\n%s%s", line, got, code, &stdout, &stderr)
	}
	if strings.ContainsAny(stdout.String()+stderr.String(), "\r\x1b") {
		c.t.Errorf("%s draws, and there is no terminal: %q", line, stdout.String()+stderr.String())
	}
	fmt.Fprintf(&c.text, "$ %s\n%s%s", line, &stdout, &stderr)
	if code != 0 {
		fmt.Fprintf(&c.text, "[exit %d]\n", code)
	}
	c.text.WriteString("\n")
	return stdout.String()
}

// What differs from run to run, and what stands for it.
var varying = []struct {
	is *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*Z`), "TIME"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`), "TIME"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "DIGEST"},
	{regexp.MustCompile(`\b[0-9a-f]{20}\b`), "JOB"},
	{regexp.MustCompile(`\b\d{13}\b`), "MS"},
	{regexp.MustCompile(`[▁▂▃▄▅▆▇█]+( *[▁▂▃▄▅▆▇█]+)*`), "BARS"},
	{regexp.MustCompile(`uid \d+ \([^)]*\)`), "uid N (NAME)"},
	{regexp.MustCompile(`\d+ bytes`), "N bytes"},
	{regexp.MustCompile(` {2,}`), "  "},
	{regexp.MustCompile(` +\n`), "\n"},
}

// The story of one night, as it is told at the command line: what failed, why,
// the repair, a canary, the rest, and who did it.
func TestTranscript(t *testing.T) {
	t.Parallel()
	s := newScene(t, "orders", 1)
	var all []kcat.Record
	for i := range 8 { // of one key: they fail one after another
		value := fmt.Sprintf("order %d", i)
		if i%4 == 3 {
			value = "bad order"
		}
		all = append(all, kcat.Record{Key: []byte("customer-7"), Value: []byte(value)})
	}
	kcat.Produce(t, s.bootstrap, s.topic, 0, all)
	d := lab.Start(t, lab.Options{Bin: bin, Bootstrap: s.bootstrap, Group: s.group, Topic: s.topic, Handler: lab.Gate})
	lab.Until(t, "all have failed", func() bool {
		var page dlq.MessagePage
		return ask(t, "/v1/dlq/"+s.dlq+"/messages", &page, d.As(lab.ViewerToken)) && len(page.Messages) == len(all)
	})
	c := &terminal{t: t, dir: t.TempDir(), env: []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "XDG_RUNTIME_DIR=" + d.Runtime, "SOCKET=" + d.Socket(t), "GATE=" + d.Gate}}

	c.run(0, "kconsume dlq list")
	c.run(0, "kconsume dlq groups orders.dlq")
	var groups []dlq.Group
	parse(t, c.quiet("kconsume dlq groups orders.dlq -o json"), &groups)
	if len(groups) != 2 {
		t.Fatalf("%+v", groups)
	}
	locked := groups[0]
	c.env = append(c.env, "LOCKED="+locked.Fingerprint)
	c.run(0, `kconsume dlq list orders.dlq --fingerprint "$LOCKED" --limit 3`)
	c.run(0, "kconsume dlq show orders.dlq 0:0")
	c.run(2, `kconsume dlq replay orders.dlq --fingerprint "$LOCKED" --canary`)

	// It was not repaired: the canary says so, and saves the others.
	c.run(1, `kconsume dlq replay orders.dlq --fingerprint "$LOCKED" --canary --apply --reason "perhaps it is free by now"`)
	c.run(0, `touch "$GATE" # the table is unlocked`)
	c.run(0, `kconsume dlq replay orders.dlq --fingerprint "$LOCKED" --canary --apply --reason "the table is unlocked"`)
	c.run(0, "kconsume jobs list")
	var jobs []dlq.Job
	parse(t, c.quiet("kconsume jobs list -o json"), &jobs)
	if len(jobs) != 2 || jobs[0].Succeeded != 6 || jobs[0].Status != dlq.JobDone || jobs[1].Status != dlq.JobFailed || jobs[1].Failed != 1 {
		t.Errorf("%+v", jobs)
	}
	c.env = append(c.env, "JOB="+jobs[0].ID)
	c.run(0, `kconsume jobs show "$JOB"`)
	c.run(0, `kconsume dlq discard orders.dlq 0:3 --reason "an order of nothing"`)
	c.run(2, `kconsume dlq resolve orders.dlq --class permanent --reason "sent by hand"`)
	c.run(0, `kconsume dlq resolve orders.dlq --class permanent --reason "sent by hand" --apply`)
	c.run(0, `kconsume dlq restore orders.dlq 0:3 --reason "it was one after all"`)
	c.run(0, "kconsume dlq list orders.dlq -o json | jq -r '.[].status'")
	c.run(0, `curl -s --unix-socket "$SOCKET" http://kconsume/v1/audit | jq -r '.entries[] | [.actor.name, .actor.via, .action, .subject, (.records|tostring), .reason] | join(" | ")'`)
	c.run(0, `curl -s --unix-socket "$SOCKET" -X POST 'http://kconsume/v1/dlq/orders.dlq/replay?limit=1' | jq .replayed`)
	c.run(0, `curl -s --unix-socket "$SOCKET" -X POST 'http://kconsume/v1/dlq/orders.dlq/replay?limit=0' | jq -r .detail`)

	text := c.text.String()
	for _, v := range varying {
		text = v.is.ReplaceAllString(text, v.by)
	}
	golden := filepath.Join("testdata", "transcript.golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("the transcript is not %s:\n%s", golden, differ(string(want), text))
	}
	c.formats(t)
}

// quiet runs a command that is no part of the transcript.
func (c *terminal) quiet(line string) string {
	c.t.Helper()
	before := c.text.String()
	out := c.run(0, line)
	c.text.Reset()
	c.text.WriteString(before)
	return out
}

// formats checks that what programs read can be read, flags before and behind
// the arguments alike.
func (c *terminal) formats(t *testing.T) {
	t.Helper()
	for _, one := range []struct {
		line string
		into any
	}{
		{"kconsume dlq list -o json", new([]dlq.Summary)},
		{"kconsume dlq -o json list", nil},
		{"kconsume dlq list -o json orders.dlq --all", new([]dlq.Message)},
		{"kconsume dlq list orders.dlq --all --status new,failed_again -o json", new([]dlq.Message)},
		{"kconsume dlq groups orders.dlq -o json", new([]dlq.Group)},
		{"kconsume dlq show orders.dlq 0:0 -o json", new(dlq.Detail)},
		{"kconsume dlq show -o json orders.dlq 0:0", new(dlq.Detail)},
		{"kconsume jobs list -o json", new([]dlq.Job)},
		{`kconsume jobs show "$JOB" -o json`, new(dlq.Job)},
		{`kconsume jobs watch "$JOB" -o json`, new(dlq.Job)},
		{"kconsume dlq restore orders.dlq 0:7 -o json --reason x", new(dlq.Message)},
		{"kconsume status -o json", new(map[string]any)},
	} {
		if one.into != nil {
			parse(t, c.quiet(one.line), one.into)
		}
	}
	for _, line := range []string{"kconsume dlq list orders.dlq -o jsonl", "kconsume dlq groups orders.dlq -o jsonl", "kconsume jobs list -o jsonl", "kconsume dlq export orders.dlq"} {
		out := c.quiet(line)
		n := 0
		for one := range strings.Lines(out) {
			parse(t, one, new(map[string]any))
			n++
		}
		if n < 2 {
			t.Errorf("%s: %d lines", line, n)
		}
	}
	c.run(64, "kconsume dlq list orders.dlq --limt 5")
	c.run(64, "kconsume dlq show orders.dlq")
	c.run(64, "kconsume dlq discard orders.dlq 0:7")
	c.run(1, "kconsume dlq list nothing.dlq")
	c.run(75, "kconsume dlq restore orders.dlq 0:0 --reason x")
}

func parse(t *testing.T, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}

// differ shows the lines from the first that differs on.
func differ(want, got string) string {
	w, g := strings.SplitAfter(want, "\n"), strings.SplitAfter(got, "\n")
	i := 0
	for i < len(w) && i < len(g) && w[i] == g[i] {
		i++
	}
	show := func(lines []string) string { return strings.Join(lines[min(i, len(lines)):min(i+12, len(lines))], "") }
	return fmt.Sprintf("from line %d on it should be\n%s\nand is\n%s", i+1, show(w), show(g))
}
