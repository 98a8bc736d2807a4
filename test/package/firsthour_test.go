package package_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/kconsume/kconsume/test/kcat"
)

// fence is a block of a document: what it is in, and its text.
var fence = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```")

// blocks are the blocks of a document that are in a language, in order.
func blocks(t *testing.T, document, language string) (out []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + document)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range fence.FindAllStringSubmatch(string(text), -1) {
		if b[1] == language {
			out = append(out, b[2])
		}
	}
	return out
}

// follow runs the commands of a block one after the other in a folder, as
// somebody who reads them would, and shows each with what it printed.
func (m *machine) follow(folder, block string, change *strings.Replacer) {
	m.t.Helper()
	for line := range strings.Lines(block) {
		if line = strings.TrimSpace(change.Replace(line)); line != "" {
			m.sh("cd " + folder + " && " + line)
		}
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(out))
}

// fetchModules has this host's cache hold what a new handler needs.
func fetchModules(t *testing.T) {
	t.Helper()
	dir := t.TempDir() + "/orders"
	for _, cmd := range []*exec.Cmd{
		exec.Command("go", "run", "./cmd/kconsume", "plugin", "new", "orders", "--lang", "go", "--sdk", made.tree, "--dir", dir),
		exec.Command("go", "-C", dir, "mod", "tidy"),
	} {
		if err := inTree(cmd, made.tree); err != nil {
			t.Fatal(err)
		}
	}
}

// A stranger's first hour: every command of "install" and of "a handler in five
// minutes", in order, on a fresh root that has Go. The SDK is taken from a
// checkout, as no registry has it, and modules from this host's cache.
func TestFirstHour(t *testing.T) {
	const topic, group = "orders", "billing"
	createTopic(t, topic)
	fetchModules(t)
	m := boot(t, "--bind-ro="+goEnv(t, "GOROOT")+":/usr/local/go", "--bind-ro="+goEnv(t, "GOMODCACHE")+":/modules", "--bind-ro="+made.tree+":/usr/src/kconsume")
	m.write("/usr/local/bin/go", 0o755, []byte("#!/bin/sh\nexport GOPROXY=file:///modules/cache/download GOSUMDB=off GOFLAGS=-modcacherw GOTOOLCHAIN=local GOCACHE=/tmp/go\nexec /usr/local/go/bin/go \"$@\"\n"))
	m.sh("echo 127.0.0.1 localhost $(hostname) >>/etc/hosts") // sudo looks for it
	m.copy(made.deb(firstVersion, runtime.GOARCH), fmt.Sprintf("/srv/kconsume_%s-1_%s.deb", firstVersion, runtime.GOARCH), 0o644)
	m.write("/srv/orders.yaml", 0o644, []byte(strings.ReplaceAll(blocks(t, "install.md", "yaml")[0], "kafka1.example:9092", broker.Cluster(t).Bootstrap())))

	install, five := blocks(t, "install.md", "sh"), blocks(t, "HANDLERS.md", "sh")
	m.follow("/srv", install[0], strings.NewReplacer("VERSION", firstVersion, "amd64", runtime.GOARCH))

	change := strings.NewReplacer(
		"--lang go", "--lang go --sdk /usr/src/kconsume",
		"kconsume dev", "cd orders && timeout --preserve-status --signal=INT 10 kconsume dev",
	)
	m.follow("/srv", five[0], change)
	makeInstall, _, _ := strings.Cut(five[1], "\n")
	m.sh("cd /srv/orders && " + makeInstall)

	m.follow("/srv", install[1], strings.NewReplacer(
		"sudo install -D kconsume-handler-orders /usr", "sudo install -D orders/build/kconsume-handler-orders /usr",
		"sudoedit", "EDITOR='cp /srv/orders.yaml' sudoedit",
	))
	kcat.Produce(t, broker.Cluster(t).Bootstrap(), topic, 0, []kcat.Record{
		{Key: []byte("a"), Value: []byte(`{"id":"a-1","total":1200}`)}, {Key: []byte("b"), Value: []byte(`{"total":5}`)},
	})
	until(t, "both records are settled", func() bool { return lag(t, group, topic) == 0 })
	m.sh("systemctl status --no-pager kconsume@orders | grep -vE '(level|time)='")
	m.sh("sudo kconsume status | head -12")
	m.sh("sudo kconsume dlq groups orders.dlq")
}
