package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/kconsume/kconsume/admin"
)

// stateFile is where a daemon remembers what it had in hand when it died. A
// folder that was named must be usable; without the usual one the daemon runs,
// and says what it does without.
func stateFile(in *invocation, group string, logger *slog.Logger) (string, error) {
	dir := in.opts.Text("state-dir")
	named := dir != ""
	if !named {
		dir = usualStateDir(in.getenv, os.Geteuid())
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		if named {
			return "", fail(exitConfig, "make state folder: %v: choose another --state-dir", err)
		}
		logger.Warn("there is no state folder: a record that takes this process down is not recognised; choose one with --state-dir", "error", err.Error())
		return "", nil
	}
	name := strings.TrimSuffix(admin.SocketName(group, admin.Instance(in.getenv)), ".sock")
	return filepath.Join(dir, name+".journal"), nil
}

// usualStateDir is the service manager's folder, else the user's.
func usualStateDir(getenv func(string) string, uid int) string {
	// A unit may have several; the first is the instance's own.
	if dir, _, _ := strings.Cut(getenv("STATE_DIRECTORY"), ":"); dir != "" {
		return dir
	}
	if uid == 0 {
		return "/var/lib/kconsume"
	}
	if dir := getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "kconsume")
	}
	return filepath.Join(getenv("HOME"), ".local", "state", "kconsume")
}
