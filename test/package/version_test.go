package package_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A later version of the tree is a later one to dpkg and to rpm.
func TestVersionsAreOrdered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	git("init", "-q")
	script, err := os.ReadFile(filepath.Join(made.tree, "tools/version.sh"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "tools"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tools/version.sh"), script, 0o755); err != nil {
		t.Fatal(err)
	}
	git("add", "tools")
	version := func() string {
		t.Helper()
		out, err := exec.Command(filepath.Join(dir, "tools/version.sh")).CombinedOutput()
		if err != nil {
			t.Fatalf("%v %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	var got []string
	step := func(want string, commands ...[]string) {
		t.Helper()
		for _, c := range commands {
			git(c...)
		}
		v := version()
		if !regexp.MustCompile("^" + want + "$").MatchString(v) {
			t.Errorf("version %s; want %s", v, want)
		}
		got = append(got, v)
	}
	commit := []string{"commit", "-q", "--allow-empty", "-m", "x"}
	step(`0\.0\.0~\d{14}\.g[0-9a-f]{7,}`, commit)
	step(`1\.2\.0~rc\.1`, []string{"tag", "v1.2.0-rc.1"})
	step(`1\.2\.0~rc\.1\+1\.g[0-9a-f]{7,}`, commit)
	step(`1\.2\.0`, []string{"tag", "v1.2.0"})
	step(`1\.2\.0\+2\.g[0-9a-f]{7,}`, commit, commit)
	step(`1\.10\.0`, []string{"tag", "v1.10.0"})
	if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	step(`1\.10\.0\+dirty`)
	for i := 1; i < len(got); i++ {
		if err := exec.Command("dpkg", "--compare-versions", got[i-1]+"-1", "lt", got[i]+"-1").Run(); err != nil {
			t.Errorf("dpkg: %s is not before %s", got[i-1], got[i])
		}
		out, err := exec.Command("rpm", "--eval", `%{lua: print(rpm.vercmp("`+got[i-1]+`", "`+got[i]+`"))}`).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != "-1" {
			t.Errorf("rpm: %s is not before %s: %s %v", got[i-1], got[i], out, err)
		}
	}
	t.Logf("%s", strings.Join(got, " < "))
}
