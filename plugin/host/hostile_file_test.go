package host_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kconsume/kconsume/plugin/host"
)

// safeDir is a directory that nobody else may write to, nor to any above it:
// temporary directories are mostly below one that everybody may write to.
func safeDir(t *testing.T) string {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Skip("no home directory: ", err)
	}
	dir, err := os.MkdirTemp(home, ".kconsume-test-")
	if err != nil {
		t.Skip("the home directory cannot be written to: ", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	probe := filepath.Join(dir, "probe")
	writeFile(t, probe, script, 0o755)
	if err := host.Check(probe, host.TrustStrict, ""); err != nil {
		t.Skip("others may write to the home directory: ", err)
	}
	return dir
}

// script is a handler that writes down that it ran: no refused one may.
const script = "#!/bin/sh\n: >\"$0.ran\"\n"

// fileRow is a file that is not to be run, or one that may.
type fileRow struct {
	is   string
	make func(t *testing.T, dir string) (path string)
	pin  string
	// strict are words of what a strict check says, byPath of what the check
	// of a named path says; nil: nothing.
	strict, byPath []string
	// start are words of what the start says where the checks say nothing; nil:
	// it is run, and is no handler.
	start []string
	root  bool // only root can make it
}

const nobody = 65534

func fileRows() []fileRow {
	file := func(text string, mode fs.FileMode) func(*testing.T, string) string {
		return func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "kconsume-handler-h")
			writeFile(t, path, text, mode)
			return path
		}
	}
	// changed makes a good file and changes something about it.
	changed := func(change func(dir, path string) error) func(*testing.T, string) string {
		return func(t *testing.T, dir string) string {
			path := file(script, 0o755)(t, dir)
			if err := change(dir, path); err != nil {
				t.Fatal(err)
			}
			return path
		}
	}
	// instead makes something else in its place.
	instead := func(mk func(dir, path string) error) func(*testing.T, string) string {
		return func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "kconsume-handler-h")
			if err := mk(dir, path); err != nil {
				t.Fatal(err)
			}
			return path
		}
	}
	same := func(words ...string) (strict, byPath []string) { return words, words }
	refusedAlways := func(is string, mk func(*testing.T, string) string, words ...string) fileRow {
		r := fileRow{is: is, make: mk}
		r.strict, r.byPath = same(words...)
		return r
	}
	owned := refusedAlways("another user's", changed(func(_, path string) error { return os.Chown(path, nobody, -1) }), "belongs to user 65534")
	owned.root = true
	return []fileRow{
		{is: "as it should be", make: file(script, 0o755)},
		owned,
		{is: "in another user's directory", make: changed(func(dir, _ string) error { return os.Chown(dir, nobody, -1) }), strict: []string{"belongs to user 65534"}, root: true},
		{is: "writable for the group", make: file(script, 0o775), strict: []string{"can be written to by others", "chmod go-w"}},
		{is: "writable for all", make: file(script, 0o757), strict: []string{"can be written to by others", "chmod go-w"}},
		{is: "in a directory writable for the group", make: changed(func(dir, _ string) error { return os.Chmod(dir, 0o775) }), strict: []string{"can be written to by others", "chmod go-w"}},
		{is: "in a sticky directory writable for all", make: changed(func(dir, _ string) error { return os.Chmod(dir, 0o777|fs.ModeSticky) }), strict: []string{"can be written to by others", "chmod go-w"}},
		{is: "two below a directory writable for all", make: func(t *testing.T, dir string) string {
			below := filepath.Join(dir, "a", "b")
			if err := os.MkdirAll(below, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			return file(script, 0o755)(t, below)
		}, strict: []string{"can be written to by others", "chmod go-w"}},
		{is: "a link inside its directory", make: instead(func(dir, path string) error {
			return errorsOf(os.WriteFile(filepath.Join(dir, "v2"), []byte(script), 0o755), os.Symlink("v2", path))
		})},
		{is: "a link out of its directory", make: instead(func(_, path string) error { return os.Symlink("/bin/true", path) }), strict: []string{"symbolic link out of its directory", "install the file itself"}},
		refusedAlways("a link to nothing", instead(func(_, path string) error { return os.Symlink("nothing", path) }), "no such file"),
		refusedAlways("a link to itself", instead(func(_, path string) error { return os.Symlink(filepath.Base(path), path) }), "too many links"),
		refusedAlways("setuid", file(script, 0o755|fs.ModeSetuid), "setuid", "chmod u-s"),
		refusedAlways("setgid", file(script, 0o755|fs.ModeSetgid), "setgid", "chmod"),
		refusedAlways("a pipe", instead(func(_, path string) error { return unix.Mkfifo(path, 0o755) }), "not a regular file"),
		refusedAlways("a directory", instead(func(_, path string) error { return os.Mkdir(path, 0o755) }), "is a directory", "give the handler's executable file"),
		refusedAlways("a socket", instead(func(_, path string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				return err
			}
			l.SetUnlinkOnClose(false)
			return errorsOf(l.Close(), os.Chmod(path, 0o755))
		}), "not a regular file"),
		refusedAlways("not executable", file(script, 0o644), "not executable", "chmod a+x"),
		{is: "empty", make: file("", 0o755), start: []string{"neither a program for this machine nor a script"}},
		{is: "a script without an interpreter", make: file("echo\n", 0o755), start: []string{"neither a program for this machine nor a script"}},
		{is: "a script of another system (CR LF)", make: file("#!/bin/sh\r\n:\r\n", 0o755), start: []string{"first line (#!)", "does not exist"}},
		{is: "a program for another machine", make: file(foreignELF(), 0o755), start: []string{"neither a program for this machine"}},
		{is: "a program cut short", make: file("\x7fELF", 0o755), start: []string{"neither a program for this machine"}},
		{is: "not what is pinned", make: file(script, 0o755), pin: strings.Repeat("0", 64), strict: []string{"not the pinned"}, byPath: []string{"not the pinned"}},
		{is: "pinned by half a sum", make: file(script, 0o755), pin: "abcd", strict: []string{"64 digits"}, byPath: []string{"64 digits"}},
	}
}

func errorsOf(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

// foreignELF is the head of a program for a machine that this one is not.
func foreignELF() string {
	machine := uint16(183) // AArch64
	if runtime.GOARCH == "arm64" {
		machine = 62 // x86-64
	}
	head := make([]byte, 120)
	copy(head, "\x7fELF\x02\x01\x01")
	binary.LittleEndian.PutUint16(head[16:], 2) // executable
	binary.LittleEndian.PutUint16(head[18:], machine)
	binary.LittleEndian.PutUint32(head[20:], 1)
	binary.LittleEndian.PutUint64(head[32:], 64) // program headers
	binary.LittleEndian.PutUint16(head[52:], 64)
	binary.LittleEndian.PutUint16(head[54:], 56)
	binary.LittleEndian.PutUint16(head[56:], 1)
	return string(head)
}

func TestHostileFiles(t *testing.T) {
	root := safeDir(t)
	table := []string{"| file | looked up by name | named by path |", "|---|---|---|"}
	for i, r := range fileRows() {
		t.Run(r.is, func(t *testing.T) {
			if r.root && os.Geteuid() != 0 {
				t.Skip("only root can give files away")
			}
			said := [2]string{}
			for j, trust := range []host.Trust{host.TrustStrict, host.TrustByPath} {
				dir := filepath.Join(root, fmt.Sprintf("%d-%d", i, j))
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				words := r.strict
				if trust == host.TrustByPath {
					words = r.byPath
				}
				said[j] = r.try(t, dir, trust, words)
			}
			table = append(table, fmt.Sprintf("| %s | %s | %s |", r.is, said[0], said[1]))
		})
	}
	t.Log("\n" + strings.Join(table, "\n"))
}

// try checks the file and starts it, and returns what is said.
func (r *fileRow) try(t *testing.T, dir string, trust host.Trust, words []string) string {
	t.Helper()
	path := r.make(t, dir)
	checked := host.Check(path, trust, r.pin)
	if (checked != nil) != (words != nil) {
		t.Errorf("trust %d: Check says %v", trust, checked)
	}
	_, err := host.Inspect(t.Context(), host.Config{
		Path: path, Trust: trust, SHA256: r.pin, SocketDir: shortDir(t), StartTimeout: patience, Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		t.Fatalf("trust %d: it was started, and is no handler", trust)
	}
	if words == nil {
		words = r.start
		if words == nil {
			words = []string{"exited before its handshake", "is it a kconsume handler?", "exit status 0"}
		}
	} else if checked != nil && err.Error() != checked.Error() {
		t.Errorf("trust %d: the start says %v, Check says %v", trust, err, checked)
	}
	for _, w := range append(words, path) {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("trust %d: %q lacks %q", trust, err, w)
		}
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if !oneLine(line) {
			t.Errorf("not fit for a terminal: %q", line)
		}
	}
	ran, _ := filepath.Glob(filepath.Join(dir, "*.ran"))
	if checked != nil && len(ran) > 0 {
		t.Errorf("trust %d: it was refused, and run", trust)
	}
	return strings.NewReplacer(path, "FILE", dir, "DIR", "\n", "; ", "check handler FILE: ", "").Replace(err.Error())
}

// TestSwapAfterHash replaces a pinned file all the time by another one, which
// must not be run, whenever the replacement happens.
func TestSwapAfterHash(t *testing.T) {
	dir := t.TempDir()
	path, ran := filepath.Join(dir, "handler"), filepath.Join(dir, "ran")
	pinned := []byte("#!/bin/sh\nexit 42\n")
	evil := []byte("#!/bin/sh\n: >" + ran + "\n")
	install := func(n int, text []byte) {
		next := filepath.Join(dir, fmt.Sprintf("next-%d", n))
		writeFile(t, next, string(text), 0o755)
		if err := os.Rename(next, path); err != nil {
			t.Error(err)
		}
	}
	install(0, pinned)
	quit := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-quit:
				return
			default:
				install(n, [][]byte{pinned, evil}[n%2])
			}
		}
	})
	l := newLab(t, "", 0)
	l.cfg.Path, l.cfg.Args, l.cfg.SHA256 = path, nil, fmt.Sprintf("%x", sha256.Sum256(pinned))
	executed, refused := 0, 0
	for range 300 {
		_, err := host.Inspect(t.Context(), l.cfg)
		switch {
		case err == nil:
			t.Error("it was started, and is no handler")
		case strings.Contains(err.Error(), "exit status 42"):
			executed++
		case strings.Contains(err.Error(), "not the pinned"):
			refused++
		default:
			t.Error(err)
		}
	}
	close(quit)
	swapping.Wait()
	t.Logf("executed %d times, refused %d times", executed, refused)
	if _, err := os.Lstat(ran); err == nil {
		t.Error("what is not pinned was run")
	}
}

// TestPinHoldsForEachStart replaces a pinned file while it runs.
func TestPinHoldsForEachStart(t *testing.T) {
	l := newLab(t, "well", 0)
	path := filepath.Join(l.dir, "handler")
	text := "#!/bin/sh\nexec " + os.Args[0] + " \"$@\"\n"
	writeFile(t, path, text, 0o755)
	l.cfg.Path, l.cfg.SHA256 = path, fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
	l.start()
	ran := filepath.Join(l.dir, "ran")
	writeFile(t, path+".evil", "#!/bin/sh\n: >"+ran+"\n", 0o755)
	writeFile(t, path+".good", text, 0o755)
	if err := os.Rename(path+".evil", path); err != nil {
		t.Fatal(err)
	}
	l.send(0, 0, good, exit, good)
	if !soon(func() bool { return strings.Contains(l.host.Status().LastExit, "not the pinned") }) {
		t.Errorf("why it does not start: %+v", l.host.Status())
	}
	if err := os.Rename(path+".good", path); err != nil {
		t.Fatal(err)
	}
	if !l.await(func() bool { return len(l.acked) == 3 }) {
		t.Errorf("not answered: %+v", l.host.Status())
	}
	if _, err := os.Lstat(ran); err == nil {
		t.Error("what is not pinned was run")
	}
}

// TestOthersCannotReachTheSocket tries to as another user.
func TestOthersCannotReachTheSocket(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	l := newLab(t, "well", 0)
	l.start()
	found, err := filepath.Glob(filepath.Join(l.cfg.SocketDir, "*", "*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("sockets %v, %v", found, err)
	}
	connect := func() error {
		s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		return unix.Connect(s, &unix.SockaddrUnix{Name: found[0]})
	}
	if err := connect(); err != nil {
		t.Errorf("as ourselves: %v", err)
	}
	asNobody := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and the thread ends with us, for it is nobody's
		if _, _, no := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), nobody, ^uintptr(0)); no != 0 {
			asNobody <- no
			return
		}
		asNobody <- connect()
	}()
	if err := <-asNobody; err != unix.EACCES {
		t.Errorf("as another user: %v", err)
	}
	for dir := found[0]; dir != l.cfg.SocketDir; {
		dir = filepath.Dir(dir)
		if info, err := os.Lstat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
}

// TestHandlerGetsNoneOfOurFiles lists what a handler has open when it begins:
// neither what we have opened nor what we were started with.
func TestHandlerGetsNoneOfOurFiles(t *testing.T) {
	ours, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	inherited, err := unix.Dup(int(ours.Fd())) // survives an exec, as ours does not
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(inherited)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dir := t.TempDir()
	path, list := filepath.Join(dir, "handler"), filepath.Join(dir, "list")
	writeFile(t, path, "#!/bin/sh\nls -l /proc/$$/fd >"+list+"\n", 0o755)
	l := newLab(t, "", 0)
	l.cfg.Path, l.cfg.Args = path, nil
	if _, err := host.Inspect(t.Context(), l.cfg); err == nil {
		t.Fatal("it is no handler")
	}
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	var pipes int
	for line := range strings.Lines(string(text)) {
		_, file, ok := strings.Cut(strings.TrimSpace(line), " -> ")
		switch {
		case !ok, file == "/dev/null", file == path, file == list:
		case strings.HasPrefix(file, "pipe:"):
			pipes++
		default:
			t.Errorf("the handler has %s", file)
		}
	}
	if pipes != 3 {
		t.Errorf("the handler has %d pipes, not those of stdout, stderr and the lifeline:\n%s", pipes, text)
	}
}
