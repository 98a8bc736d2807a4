package admin

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// daemon is another process that has a socket.
type daemon struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func startDaemon(t *testing.T, path string) *daemon {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), holdEnv+"="+path)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := &daemon{cmd, stdin}
	t.Cleanup(d.kill)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "listening\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return d
}

func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

func (d *daemon) stop(t *testing.T) {
	t.Helper()
	if err := d.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestListenMakesDirectoryAndSocket(t *testing.T) {
	dir := filepath.Join(socketDir(t), "run", "kconsume")
	path := filepath.Join(dir, "s.sock")
	l := listen(t, path)
	for p, mode := range map[string]fs.FileMode{dir: fs.ModeDir | 0o750, path: fs.ModeSocket | 0o660} {
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != mode {
			t.Errorf("%s: mode %v, want %v", p, info.Mode(), mode)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// A second daemon neither unlinks nor replaces the first one's socket.
func TestListenLeavesALiveSocketAlone(t *testing.T) {
	path := filepath.Join(socketDir(t), "s.sock")
	d := startDaemon(t, path)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Listen(path)
	if _, ok := errors.AsType[*InUseError](err); !ok {
		t.Fatalf("%v", err)
	}
	for _, w := range []string{path, "--admin"} {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	after, err := os.Stat(path)
	if err != nil || !os.SameFile(before, after) {
		t.Fatalf("the socket was replaced: %v", err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("nobody answers there any more: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	d.stop(t)
	listen(t, path)
}

func TestListenReplacesWhatADeadDaemonLeft(t *testing.T) {
	path := filepath.Join(socketDir(t), "s.sock")
	startDaemon(t, path).kill()
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("a killed daemon's socket is gone: %v", err)
	}
	listen(t, path)
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// A program of another kind has no lock file, but it answers.
func TestListenLeavesOthersSocketsAlone(t *testing.T) {
	path := filepath.Join(socketDir(t), "s.sock")
	other, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := Listen(path); err == nil {
		t.Fatal("took it")
	}
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
}

func TestListenOneOfManyWins(t *testing.T) {
	path := filepath.Join(socketDir(t), "s.sock")
	startDaemon(t, path).kill() // all of them find a stale socket
	const n = 16
	got := make([]*Listener, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { got[i], errs[i] = Listen(path) })
	}
	wg.Wait()
	winners := 0
	for i := range n {
		if _, inUse := errors.AsType[*InUseError](errs[i]); errs[i] != nil && !inUse {
			t.Errorf("%v", errs[i])
		}
		if got[i] != nil {
			winners++
			if err := got[i].Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if winners != 1 {
		t.Errorf("%d listen", winners)
	}
}

func TestListenRefusals(t *testing.T) {
	dir := socketDir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, path, want string }{
		{"a path too long", filepath.Join(dir, strings.Repeat("n", 107)), "107"},
		{"a file", file, "else than a socket"},
		{"below a file", filepath.Join(file, "s.sock"), "--admin"},
	} {
		_, err := Listen(c.path)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "mine" {
		t.Errorf("the file: %q, %v", b, err)
	}
}

func TestSocketNames(t *testing.T) {
	for _, c := range []struct{ group, instance, want string }{
		{"billing", "", "billing-0c95c7ec.sock"},
		{"billing", "a", "billing-0c95c7ec.a-ca978112.sock"},
		{"Billing/../../etc", "", "billing-------et-718e41f3.sock"},
	} {
		if got := SocketName(c.group, c.instance); got != c.want {
			t.Errorf("%q, %q: %s, want %s", c.group, c.instance, got, c.want)
		}
	}
	seen := map[string]string{}
	for _, g := range []string{"", "a", "A", "a ", "a/", "a.", "ä", "\x00", strings.Repeat("a", 300), strings.Repeat("a", 301)} {
		n := SocketName(g, g)
		if len(n) > 60 || strings.ContainsAny(n, "/ \x00") {
			t.Errorf("%q: %q", g, n)
		}
		if other, taken := seen[n]; taken {
			t.Errorf("%q and %q share %s", g, other, n)
		}
		seen[n] = g
	}
}

func TestFindSockets(t *testing.T) {
	dir := socketDir(t)
	env := func(k string) string {
		if k == "XDG_RUNTIME_DIR" {
			return dir
		}
		return ""
	}
	runtime := RuntimeDir(env)
	if runtime != filepath.Join(dir, "kconsume") {
		t.Fatalf("runtime directory %s", runtime)
	}
	one := listen(t, filepath.Join(runtime, SocketName("billing", "")))
	two := listen(t, filepath.Join(runtime, SocketName("billing", "b")))
	listen(t, filepath.Join(runtime, SocketName("other", "")))
	got := FindSockets("billing", env)
	if len(got) != 2 || !contains(got, one.Path()) || !contains(got, two.Path()) {
		t.Errorf("%v", got)
	}
	if got := FindSockets("", env); len(got) < 3 {
		t.Errorf("all: %v", got)
	}
	if got := FindSockets("nobody", env); len(got) > 0 {
		t.Errorf("nobody's: %v", got)
	}
}

func contains(all []string, one string) bool {
	for _, s := range all {
		if s == one {
			return true
		}
	}
	return false
}

func TestRuntimeDir(t *testing.T) {
	for _, c := range []struct {
		env            map[string]string
		dir, instances string
	}{
		{map[string]string{"RUNTIME_DIRECTORY": "/run/kconsume/a", "XDG_RUNTIME_DIR": "/run/user/7"}, "/run/kconsume/a", "a"},
		{map[string]string{"RUNTIME_DIRECTORY": "/run/kconsume/a:/run/x"}, "/run/kconsume/a", "a"},
		{map[string]string{"XDG_RUNTIME_DIR": "/run/user/7"}, "/run/user/7/kconsume", ""},
	} {
		env := func(k string) string { return c.env[k] }
		if got := RuntimeDir(env); got != c.dir {
			t.Errorf("%v: %s", c.env, got)
		}
		if got := Instance(env); got != c.instances {
			t.Errorf("%v: instance %q", c.env, got)
		}
	}
}
