// Package newproject makes a project of a handler in each language as a person
// does: kconsume plugin new, make test, make install. Tools that are missing are
// installed, and the libraries are fetched from their registries; what is
// fetched is kept in build/newproject.
package newproject

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// language is what a project in it needs.
type language struct {
	name  string
	tools []string // PROGRAM=PACKAGE, as for tools/need.sh
	vars  []string // for make
}

// languages are all of them; kept is where Maven's repository goes, which
// otherwise would hold an SDK of this checkout.
func languages(kept string) []language {
	return []language{
		{"go", []string{"make=make"}, nil},
		{"python", []string{"make=make", "python3=python3-venv"}, nil},
		{"node", []string{"make=make", "node=nodejs", "npm=npm"}, nil},
		{"java", []string{"make=make", "javac=default-jdk-headless", "mvn=maven"}, []string{"MVN=mvn -q -B -Dmaven.repo.local=" + filepath.Join(kept, "m2")}},
	}
}

// person runs commands in a directory of their own.
type person struct {
	dir string
	env []string
}

func (p *person) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = p.dir, p.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestNewProject(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(root, "build", "newproject")
	dir, err := os.MkdirTemp("", "kc") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeAll(t, dir) })
	kconsume := filepath.Join(dir, "bin", "kconsume")
	p := &person{dir, append(os.Environ(), "XDG_RUNTIME_DIR="+dir,
		"PIP_CACHE_DIR="+filepath.Join(kept, "pip"), "npm_config_cache="+filepath.Join(kept, "npm"))}
	(&person{root, p.env}).run(t, "go", "build", "-o", kconsume, "./cmd/kconsume")

	for _, l := range languages(kept) {
		t.Run(l.name, func(t *testing.T) {
			p.run(t, filepath.Join(root, "tools", "need.sh"), l.tools...)
			project := filepath.Join(dir, l.name)
			began := time.Now()
			p.run(t, kconsume, "plugin", "new", "order-mails", "--lang", l.name, "--dir", project, "--sdk", root)
			vars := append(l.vars, "KCONSUME="+kconsume, "DESTDIR="+filepath.Join(dir, "root"))
			out := p.run(t, "make", append([]string{"-C", project, "test"}, vars...)...)
			if !strings.Contains(out, ": 5 records: 1 done, 1 dropped, 1 retry, 2 dlq\n") {
				t.Errorf("it does not do what it says:\n%s", out)
			}
			t.Logf("from nothing to the first handled record: %.1fs", time.Since(began).Seconds())
			p.run(t, "make", append([]string{"-C", project, "install"}, vars...)...)
			installed := filepath.Join(dir, "root/usr/local/libexec/kconsume/handlers/kconsume-handler-order-mails")
			if info, err := os.Stat(installed); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("installed as %v, %v", info, err)
			}
			removeAll(t, filepath.Join(dir, "root"))
		})
	}
}

// removeAll removes a tree.
func removeAll(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}
