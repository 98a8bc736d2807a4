// Package package_test installs the packages in a Debian root, runs the service
// there under a real systemd against a real Kafka, upgrades it while records
// flow, and purges it. It needs Linux and root, and the tools that make need
// installs.
package package_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/kconsume/kconsume/test/kafka"
)

// Versions of the packages that the tests install. The second is an upgrade.
const (
	firstVersion  = "0.0.0~test.1"
	secondVersion = "0.0.0~test.2"
)

var (
	broker kafka.Shared
	made   artifacts
)

// artifacts are what the tests are about, made before they run.
type artifacts struct {
	dir  string // of everything
	tree string // a copy of the project as it was when they were made
	root string // a Debian root that no test changes
}

// deb is a package's file.
func (a artifacts) deb(version, arch string) string {
	return filepath.Join(a.dir, version, "kconsume_"+version+"-1_"+arch+".deb")
}

func (a artifacts) rpm(version, arch string) string {
	return filepath.Join(a.dir, version, "kconsume-"+version+"-1."+arch+".rpm")
}

// handler is the file of a handler that a test drops in.
func (a artifacts) handler(name string) string {
	return filepath.Join(a.dir, "kconsume-handler-"+name)
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "kconsume-package-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	made.dir = dir
	if err := makeAll(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return broker.Run(m)
}

// makeAll makes the packages and the root, side by side: one computes, the other
// mostly waits for the network.
func makeAll() error {
	if os.Geteuid() != 0 {
		return errors.New("these tests install packages in a root of their own and start systemd there: run them as root")
	}
	made.tree = filepath.Join(made.dir, "tree")
	if err := copyTree("../..", made.tree); err != nil {
		return err
	}
	var rootErr error
	var making sync.WaitGroup
	making.Go(func() { made.root, rootErr = debianRoot(context.Background()) })
	err := errors.Join(
		makePackages(firstVersion, "amd64", "arm64"),
		makePackages(secondVersion, runtime.GOARCH),
		makeHandler("probe", "./test/probe"),
		makeHandler("jit", "./test/package/jit"),
	)
	making.Wait()
	return errors.Join(err, rootErr)
}

// copyTree copies the project, its history included, without what is built.
func copyTree(from, to string) error {
	const script = `mkdir -p "$2" && cd "$1" && { git ls-files -z --cached --others --exclude-standard | while IFS= read -rd '' f; do
[[ ! -e $f ]] || printf '%s\0' "$f"; done; printf '.git\0'; } | tar c --null -T - | tar x -C "$2"`
	out, err := exec.Command("bash", "-o", "pipefail", "-c", script, "bash", from, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy the project: %w\n%s", err, out)
	}
	return nil
}

func makePackages(version string, arches ...string) error {
	cmd := exec.Command("tools/package.sh", append([]string{filepath.Join(made.dir, version)}, arches...)...)
	cmd.Env = append(os.Environ(), "VERSION="+version)
	return inTree(cmd, made.tree)
}

func makeHandler(name, pkg string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-o", made.handler(name), pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	return inTree(cmd, made.tree)
}

// inTree runs a command in a copy of the project.
func inTree(cmd *exec.Cmd, tree string) error {
	cmd.Dir = tree
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

// debianRoot returns a small root of this host's release, with systemd and what
// somebody needs who writes a handler there. It is made by debootstrap the first
// time, and appears by one rename, so it is whole or absent.
func debianRoot(ctx context.Context) (string, error) {
	release, err := codename()
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache folder: %w; set XDG_CACHE_HOME or HOME", err)
	}
	const programs = "systemd,systemd-sysv,sudo,make,ca-certificates"
	dir := filepath.Join(cache, "kconsume", "root-"+release+"-"+strings.ReplaceAll(programs, ",", "-"))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("look for root: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("make cache folder: %w", err)
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", fmt.Errorf("lock root: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock root: %w", err)
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil // made while this one waited
	}
	fresh := dir + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return "", fmt.Errorf("remove half a root: %w", err)
	}
	cmd := exec.CommandContext(ctx, "debootstrap", "--variant=minbase", "--include="+programs, release, fresh)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w; run make check, which installs it\n%s", cmd, err, out)
	}
	// With a machine id it is no first boot, at which systemd would ask questions.
	if err := os.WriteFile(filepath.Join(fresh, "etc/machine-id"), []byte(strings.Repeat("7", 32)+"\n"), 0o444); err != nil {
		return "", fmt.Errorf("name the root: %w", err)
	}
	if err := os.Rename(fresh, dir); err != nil {
		return "", fmt.Errorf("keep root: %w", err)
	}
	return dir, nil
}

// codename is this host's release.
func codename() (string, error) {
	b, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", fmt.Errorf("find this host's release: %w", err)
	}
	for line := range bytes.Lines(b) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "VERSION_CODENAME="); ok {
			return strings.Trim(name, `"`), nil
		}
	}
	return "", errors.New("find this host's release: /etc/os-release has no VERSION_CODENAME: it takes Debian or Ubuntu")
}
