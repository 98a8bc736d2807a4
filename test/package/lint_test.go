package package_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rpmArch is what rpm calls an architecture of Go's.
func rpmArch(arch string) string {
	if arch == "arm64" {
		return "aarch64"
	}
	return "x86_64"
}

// output runs a command of this host's in the project's folder.
func output(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = made.tree
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatalf("%v; run make check, which installs it", err)
	}
	return strings.TrimSpace(string(out)), err
}

func TestLinters(t *testing.T) {
	t.Parallel()
	for _, arch := range []string{"amd64", "arm64"} {
		out, err := output(t, "lintian", "--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0", made.deb(firstVersion, arch))
		t.Logf("lintian %s: %s", arch, out)
		if err != nil || out != "" {
			t.Errorf("lintian: %v", err)
		}
	}
	for _, arch := range []string{"x86_64", "aarch64"} {
		out, err := output(t, "rpmlint", "--config", "packaging/rpmlint.toml", made.rpm(firstVersion, arch))
		t.Logf("rpmlint %s: %s", arch, out)
		if err != nil || !strings.Contains(out, " 0 errors, 0 warnings") {
			t.Errorf("rpmlint: %v", err)
		}
	}
}

// The two systems get the same files, but for those that each has its own place for.
func TestDebAndRPMHoldTheSame(t *testing.T) {
	t.Parallel()
	listed, err := output(t, "bash", "-c", "dpkg-deb --fsys-tarfile '"+made.deb(firstVersion, "amd64")+"' | tar t | sed 's|^\\./|/|; s|/$||'")
	if err != nil {
		t.Fatal(listed)
	}
	rpm, err := output(t, "rpm", "-qlp", made.rpm(firstVersion, "x86_64"))
	if err != nil {
		t.Fatal(rpm)
	}
	own := regexp.MustCompile(`^/usr/share/(doc|licenses|lintian|zsh)(/|$)`)
	only := func(a, b []string) (out []string) {
		for _, f := range a {
			if !slices.Contains(b, f) && !own.MatchString(f) && strings.Contains(f, "kconsume") {
				out = append(out, f)
			}
		}
		return out
	}
	inDeb, inRPM := strings.Fields(listed), strings.Fields(rpm)
	if d, r := only(inDeb, inRPM), only(inRPM, inDeb); len(d) > 0 || len(r) > 0 {
		t.Errorf("only in the deb: %q; only in the rpm: %q", d, r)
	}
	if len(inRPM) < 40 {
		t.Errorf("the rpm holds %d files", len(inRPM))
	}
}

func TestManPagesAreClean(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(extracted(t), "usr/share/man/man*/*.gz"))
	if err != nil || len(pages) < 10 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		if out, err := output(t, "bash", "-c", "man --warnings -E UTF-8 -l -Tutf8 -Z '"+page+"' 2>&1 >/dev/null"); err != nil || out != "" {
			t.Errorf("%s: %v %s", filepath.Base(page), err, out)
		}
	}
}

// extracted is a folder that holds the deb's files.
func extracted(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := output(t, "dpkg-deb", "--extract", made.deb(firstVersion, runtime.GOARCH), dir); err != nil {
		t.Fatal(out)
	}
	return dir
}

const unit = "packaging/systemd/kconsume@.service"

// The unit's exposure, and that the document names each line that is left with
// its reason.
func TestExposure(t *testing.T) {
	out, err := output(t, "systemd-analyze", "security", "--no-pager", "--offline=true", unit)
	if err != nil {
		t.Fatal(out)
	}
	level := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindStringSubmatch(out)
	if level == nil {
		t.Fatal(out)
	}
	t.Log(level[0])
	if n, err := strconv.ParseFloat(level[1], 64); err != nil || n > 1.5 {
		t.Errorf("exposure %s; want at most 1.5", level[1])
	}
	doc, err := os.ReadFile(filepath.Join(made.tree, "docs/install.md"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "✗") {
			continue
		}
		t.Log(strings.TrimSpace(line))
		if name := strings.Fields(line)[1]; !strings.Contains(string(doc), "| `"+strings.ReplaceAll(name, "|", `\|`)+"` |") {
			t.Errorf("docs/install.md does not tell why %s is left", name)
		}
	}
}

// Two builds of one commit are one, wherever, by whom and when they are made.
func TestReproducible(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := copyTree(made.tree, filepath.Join(dir, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	again := filepath.Join(dir, "dist")
	err := inTree(exec.Command("unshare", "--uts", "bash", "-c", `hostname elsewhere; umask 077; exec env "$@"`, "bash",
		"VERSION="+firstVersion, "TZ=Pacific/Kiritimati", "LC_ALL=C", "USER=somebody", "tools/package.sh", again), filepath.Join(dir, "elsewhere"))
	if err != nil {
		t.Fatal(err)
	}
	sums := func(dir string) string {
		b, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	first := sums(filepath.Join(made.dir, firstVersion))
	t.Logf("first\n%ssecond\n%s", first, sums(again))
	if first != sums(again) {
		t.Error("they differ")
	}
	for line := range strings.Lines(first) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		b, err := os.ReadFile(filepath.Join(again, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(b)); got != sum {
			t.Errorf("%s: %s; SHA256SUMS says %s", name, got, sum)
		}
		t.Logf("%s: %.1f MB", name, float64(len(b))/1e6)
	}
}
