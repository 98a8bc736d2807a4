package container_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// start makes a container of a folder as an engine under Kubernetes does: its
// own mounts and processes, a root file system that cannot be written to,
// volumes of the pod's group, user 65532 without any right or way to get one.
// What it prints is in the lines of the container.
const start = `set -eu
root=$1 state=$2 chroot=$(command -v chroot)
shift 2
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount --bind /dev/null "$root/dev/null"
mount -t tmpfs -o mode=2777,gid=65532 run "$root/run"
mount -t tmpfs -o mode=2777,gid=65532 tmp "$root/tmp"
mount --bind "$state" "$root/var/lib/kconsume"
exec env -i $IMAGE_ENV HOME=/var/lib/kconsume \
  setpriv --no-new-privs --inh-caps=-all --ambient-caps=-all \
  "$chroot" --userspec=65532:65532 --groups=65532 "$root" "$@"
`

// container is a process in a container.
type container struct {
	t    *testing.T
	cmd  *exec.Cmd
	root string

	ended chan struct{} // closed when it has ended and all its lines are read
	mu    sync.Mutex
	more  *sync.Cond
	lines []string
	over  bool
}

// run starts the image's entrypoint with arguments.
func (i *image) run(t *testing.T, root, state string, args ...string) *container {
	t.Helper()
	command := append([]string{"--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "--",
		"/bin/sh", "-c", start, "container", root, state}, append(i.config.Config.Entrypoint, args...)...)
	c := &container{t: t, cmd: exec.Command("unshare", command...), root: root, ended: make(chan struct{})}
	c.more = sync.NewCond(&c.mu)
	c.cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "IMAGE_ENV=" + strings.Join(i.config.Config.Env, " ")}
	out, in := io.Pipe()
	c.cmd.Stdout, c.cmd.Stderr = in, in
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.add(lines.Text(), false)
		}
	}()
	go func() {
		defer close(c.ended)
		_ = c.cmd.Wait() // the exit code is asked for by name
		in.Close()
		<-read
		c.add("", true)
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // and with it, by --kill-child, the container
		<-c.ended
	})
	return c
}

func (c *container) add(line string, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if over {
		c.over = true
	} else {
		c.lines = append(c.lines, line)
	}
	c.more.Broadcast()
}

// await waits for a line that holds a text.
func (c *container) await(text string) string {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for seen := 0; ; c.more.Wait() {
		for ; seen < len(c.lines); seen++ {
			if strings.Contains(c.lines[seen], text) {
				return c.lines[seen]
			}
		}
		if c.over {
			c.t.Fatalf("it ended without %q:\n%s", text, strings.Join(c.lines, "\n"))
		}
	}
}

// text is all that it has printed.
func (c *container) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.lines, "\n")
}

// pid is the container's first process, as this host counts.
func (c *container) pid() int {
	c.t.Helper()
	p := c.cmd.Process.Pid
	b := read(c.t, fmt.Sprintf("/proc/%d/task/%d/children", p, p))
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		c.t.Fatalf("children of %d: %q", p, b)
	}
	return pid
}

// status are the lines of the first process' /proc/PID/status.
func (c *container) status() map[string]string {
	c.t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(string(read(c.t, fmt.Sprintf("/proc/%d/status", c.pid())))) {
		name, value, _ := strings.Cut(line, ":")
		out[name] = strings.Join(strings.Fields(value), " ")
	}
	return out
}

// code waits for the end, and returns the exit code.
func (c *container) code() int {
	<-c.ended
	return c.cmd.ProcessState.ExitCode()
}

// stop asks it to end, and returns the exit code.
func (c *container) stop() int {
	c.t.Helper()
	if err := syscall.Kill(c.pid(), syscall.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
	return c.code()
}

// exec runs a command in the container as kubectl exec does, and returns what
// it printed.
func (c *container) exec(args ...string) string {
	c.t.Helper()
	env := strings.Fields(strings.ReplaceAll(string(read(c.t, fmt.Sprintf("/proc/%d/environ", c.pid()))), "\x00", " "))
	chroot, err := exec.LookPath("chroot")
	if err != nil {
		c.t.Fatal(err)
	}
	full := append([]string{"--target", strconv.Itoa(c.pid()), "--mount", "--pid", "--", "setpriv", "--no-new-privs",
		chroot, "--userspec=65532:65532", "--groups=65532", c.root}, args...)
	cmd := exec.Command("nsenter", full...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// rootFS unpacks the image, with what an engine adds to it.
func (i *image) rootFS(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	for _, dir := range []string{root, root + "/proc", root + "/dev"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(root+"/dev/null", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	i.unpack(t, root)
	return root
}

// volume is an empty folder as a pod's of fsGroup 65532.
func volume(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chown(dir, 0, 65532); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	return dir
}
