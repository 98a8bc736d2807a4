package host

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCheck(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	file := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		write(t, path, "#!/bin/sh\n", mode)
		return path
	}
	good := file("good", 0o755)
	link := filepath.Join(dir, "link")
	inside := filepath.Join(dir, "inside")
	fifo := filepath.Join(dir, "fifo")
	write(t, filepath.Join(other, "target"), "", 0o755)
	for _, err := range []error{os.Symlink(filepath.Join(other, "target"), link), os.Symlink("good", inside), unix.Mkfifo(fifo, 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(open, "h"), "", 0o755)
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("#!/bin/sh\n")))
	for _, c := range []struct {
		name, path string
		trust      Trust
		sha        string
		errs       []string
	}{
		{"by path", good, TrustByPath, "", nil},
		{"link by path", link, TrustByPath, "", nil},
		{"writable by path", file("w", 0o777), TrustByPath, "", nil},
		{"open parent by path", filepath.Join(open, "h"), TrustByPath, "", nil},
		{"pin", good, TrustByPath, sum, nil},
		{"pin in capitals", good, TrustByPath, strings.ToUpper(sum), nil},
		{"wrong pin", good, TrustByPath, strings.Repeat("0", 64), []string{sum, "not the pinned"}},
		{"short pin", good, TrustByPath, "abc", []string{"64 digits"}},
		{"missing", filepath.Join(dir, "none"), TrustByPath, "", []string{"no such file"}},
		{"directory", dir, TrustByPath, "", []string{"is a directory"}},
		{"fifo", fifo, TrustByPath, "", []string{"not a regular file"}},
		{"not executable", file("x", 0o644), TrustByPath, "", []string{"not executable", "chmod a+x"}},
		{"writable", file("gw", 0o775), TrustStrict, "", []string{"gw can be written to", "chmod go-w"}},
		{"open parent", filepath.Join(open, "h"), TrustStrict, "", []string{open + " can be written to"}},
		{"link out", link, TrustStrict, "", []string{"symbolic link out of its directory", filepath.Join(other, "target")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Check(c.path, c.trust, c.sha)
			wantError(t, err, c.errs)
			if err == nil {
				return
			}
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !strings.HasPrefix(line, "check handler "+c.path+": ") {
					t.Errorf("line %q does not say what was checked", line)
				}
			}
		})
	}
	if _, problems := examine(inside, TrustStrict); problems != nil && strings.Contains(problems.Error(), "symbolic link out") {
		t.Errorf("a link inside its directory: %v", problems)
	}
	if warnings, _ := examine(filepath.Join(open, "h"), TrustByPath); len(warnings) == 0 {
		t.Error("no warning for a directory that all may write to")
	}
}

func TestCheckOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	path := filepath.Join(t.TempDir(), "h")
	write(t, path, "", 0o755)
	if err := os.Chown(path, 12345, -1); err != nil {
		t.Fatal(err)
	}
	for _, trust := range []Trust{TrustStrict, TrustByPath} {
		wantError(t, Check(path, trust, ""), []string{"belongs to user 12345"})
	}
}

func TestCheckStrictAcceptsSystemFiles(t *testing.T) {
	path, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(path, TrustStrict, ""); err != nil {
		t.Error(err)
	}
}
