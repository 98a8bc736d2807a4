package admin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// systemRuntime is where packaged daemons have their runtime directories.
const systemRuntime = "/run/kconsume"

// RuntimeDir is the directory of a daemon's sockets, for an environment:
// the service manager's RUNTIME_DIRECTORY, else the user's, else /run/kconsume
// for root, else a private one below the directory for temporary files.
func RuntimeDir(getenv func(string) string) string {
	// The service manager lists several directories with colons; the first is ours.
	if dir, _, _ := strings.Cut(getenv("RUNTIME_DIRECTORY"), ":"); dir != "" {
		return dir
	}
	if dir := getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "kconsume")
	}
	if os.Geteuid() == 0 {
		return systemRuntime
	}
	return filepath.Join(os.TempDir(), "kconsume-"+strconv.Itoa(os.Geteuid()))
}

// Instance is the service manager's name for this daemon: RUNTIME_DIRECTORY's
// last part, "" for a daemon that was started by hand.
func Instance(getenv func(string) string) string {
	dir, _, _ := strings.Cut(getenv("RUNTIME_DIRECTORY"), ":")
	if dir == "" {
		return ""
	}
	return filepath.Base(dir)
}

// FindSockets lists the sockets of a group's daemons on this host, of every
// group for "": in this user's runtime directory and in those of the services.
func FindSockets(group string, getenv func(string) string) []string {
	pattern := "*" + socketSuffix
	if group != "" {
		pattern = short(group) + ".*"
	}
	var found []string
	seen := map[string]bool{}
	for _, dir := range []string{RuntimeDir(getenv), systemRuntime, systemRuntime + "/*"} {
		// The only error is a bad pattern: ours holds no special characters but the star.
		matches, _ := filepath.Glob(filepath.Join(escape(dir), pattern))
		for _, m := range matches {
			info, err := os.Stat(m)
			if err == nil && info.Mode()&fs.ModeSocket != 0 && !seen[m] {
				seen[m] = true
				found = append(found, m)
			}
		}
	}
	return found
}

// escape keeps a pattern's special characters in a directory's name literal,
// but for our own star.
func escape(dir string) string {
	if strings.HasPrefix(dir, systemRuntime) {
		return dir
	}
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(dir)
}

// makeDir makes a socket's directory, for us and our group only. One below a
// directory that others write to must be ours.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make the directory: %w: choose another with --admin unix:PATH", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("look at the directory: %w", err)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		if info, err = os.Stat(dir); err != nil {
			return fmt.Errorf("look at the directory: %w", err)
		}
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && strings.HasPrefix(dir, os.TempDir()) && int(st.Uid) != os.Geteuid() && st.Uid != 0 {
		return fmt.Errorf("directory %s belongs to uid %d: choose another with --admin unix:PATH", dir, st.Uid)
	}
	if !info.IsDir() {
		return errors.New(dir + " is not a directory: choose another with --admin unix:PATH")
	}
	return nil
}
