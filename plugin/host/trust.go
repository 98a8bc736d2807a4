package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Trust says how strictly a handler's file is looked at before it is run.
type Trust uint8

const (
	// TrustStrict is for a handler found by name: root or this process's user
	// owns the file and each directory above it, nobody else may write to any
	// of them, and no symbolic link leads out of the file's directory.
	TrustStrict Trust = iota
	// TrustByPath is for a handler that a person names by its path: it belongs
	// to that person or to root; everything else is only a warning.
	TrustByPath
)

// Check tells whether the file at path may be run as a handler: every problem
// is one line of the error. sha is a pin in hex, empty for none.
func Check(path string, trust Trust, sha string) error {
	_, err := examine(path, trust)
	if err != nil {
		return err
	}
	if sha == "" {
		return nil
	}
	f, err := openPinned(path, sha)
	if err != nil {
		return err
	}
	return f.Close()
}

// examine returns what is odd about the file, and what forbids running it.
func examine(path string, trust Trust) (warnings []string, err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("check handler %s: %w", path, err)
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return nil, fmt.Errorf("check handler %s: %w", path, bare(err))
	}
	info, err := os.Stat(real)
	if err != nil {
		return nil, fmt.Errorf("check handler %s: %w", path, bare(err))
	}
	if problem := unrunnable(real, info); problem != "" {
		return nil, fmt.Errorf("check handler %s: %s", path, problem)
	}
	e := examination{uid: os.Geteuid(), trust: trust}
	e.owner(real, info, true)
	e.writable(real, info)
	e.special(real, info)
	e.link(abs, real)
	for _, dir := range directories(abs, real) {
		e.directory(dir)
	}
	for i, p := range e.problems {
		e.problems[i] = fmt.Errorf("check handler %s: %w", path, p)
	}
	return e.warnings, errors.Join(e.problems...)
}

// bare drops the operation and the path of an error that names the path already.
func bare(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

func unrunnable(path string, info fs.FileInfo) string {
	switch {
	case info.IsDir():
		return "it is a directory: give the handler's executable file"
	case !info.Mode().IsRegular():
		return "it is not a regular file"
	case unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS) != nil:
		return "it is not executable by this user: chmod a+x " + path
	}
	return ""
}

// directories lists each directory above both paths once, the nearest first.
// Both count: whoever may write above a link may lead it elsewhere.
func directories(abs, real string) []string {
	var dirs []string
	seen := map[string]bool{}
	for _, p := range []string{abs, real} {
		for p != filepath.Dir(p) {
			p = filepath.Dir(p)
			if !seen[p] {
				seen[p] = true
				dirs = append(dirs, p)
			}
		}
	}
	return dirs
}

// examination gathers what speaks against a file.
type examination struct {
	uid      int
	trust    Trust
	problems []error
	warnings []string
}

// report adds a problem; by path it is a warning unless it is grave.
func (e *examination) report(grave bool, format string, args ...any) {
	if e.trust == TrustStrict || grave {
		e.problems = append(e.problems, fmt.Errorf(format, args...))
		return
	}
	e.warnings = append(e.warnings, fmt.Sprintf(format, args...))
}

func (e *examination) owner(path string, info fs.FileInfo, grave bool) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != e.uid {
		e.report(grave, "%s belongs to user %d, neither root nor the user that runs kconsume (%d)", path, st.Uid, e.uid)
	}
}

func (e *examination) writable(path string, info fs.FileInfo) {
	if info.Mode().Perm()&0o022 != 0 {
		e.report(false, "%s can be written to by others than its owner (mode %04o): chmod go-w %s", path, info.Mode().Perm(), path)
	}
}

// special: what runs with rights of its own cannot be ended by us.
func (e *examination) special(path string, info fs.FileInfo) {
	if info.Mode()&fs.ModeSetuid != 0 {
		e.report(true, "%s has the setuid bit: chmod u-s %s", path, path)
	}
	if info.Mode()&fs.ModeSetgid != 0 {
		e.report(true, "%s has the setgid bit: chmod g-s %s", path, path)
	}
}

func (e *examination) link(abs, real string) {
	home, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		e.report(true, "%s: %v", filepath.Dir(abs), bare(err))
		return
	}
	if rel, err := filepath.Rel(home, real); err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		e.report(false, "it is a symbolic link out of its directory, to %s: install the file itself", real)
	}
}

func (e *examination) directory(path string) {
	info, err := os.Lstat(path)
	if err != nil {
		e.report(true, "%s: %v", path, bare(err))
		return
	}
	e.owner(path, info, false)
	if info.Mode()&fs.ModeSymlink == 0 && !(e.trust == TrustByPath && info.Mode()&fs.ModeSticky != 0) {
		e.writable(path, info)
	}
}

// openPinned opens the file and compares its SHA-256: what is executed through
// the returned descriptor is what was compared, whoever renames meanwhile.
func openPinned(path, sha string) (*os.File, error) {
	want, err := hex.DecodeString(sha)
	if err != nil || len(want) != sha256.Size {
		return nil, fmt.Errorf("check handler %s: the pin %q is not a SHA-256 in hex (64 digits)", path, sha)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("check handler %s: %w", path, bare(err))
	}
	h := sha256.New()
	if _, err = io.Copy(h, f); err != nil {
		f.Close()
		return nil, fmt.Errorf("check handler %s: %w", path, bare(err))
	}
	if got := h.Sum(nil); string(got) != string(want) {
		f.Close()
		return nil, fmt.Errorf("check handler %s: its SHA-256 is %x, not the pinned %x", path, got, want)
	}
	return f, nil
}
