package conformance

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

const handlerFile = "kconsume-handler-conformance"

// languages are all that have an SDK, in the matrix's order.
func languages() []string { return []string{"go", "python", "node", "java"} }

// setUp builds a language's conformance handler, if it has changed, and returns
// its path.
func setUp(t testing.TB, language string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	build := filepath.Join(root, "build", "conformance")
	if err := os.MkdirAll(build, 0o755); err != nil {
		t.Fatal(err)
	}
	defer lock(t, filepath.Join(build, language+".lock"))()
	if language == "go" {
		out := filepath.Join(build, "go", handlerFile)
		run(t, root, "go", "build", "-o", out, "./test/conformance/handler")
		return out
	}
	source := filepath.Join(root, "plugins", "sdk", language)
	out := filepath.Join(build, language+"-"+hashOf(t, source))
	done := filepath.Join(out, ".done")
	if _, err := os.Stat(done); err != nil {
		clearOld(t, build, language)
		if err := os.MkdirAll(out, 0o755); err != nil {
			t.Fatal(err)
		}
		run(t, source, "bash", filepath.Join("conformance", "setup.sh"), out)
		if err := os.WriteFile(done, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(out, handlerFile)
}

// lock keeps other runs of the suite out until the returned function is called.
func lock(t testing.TB, path string) (unlock func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatalf("lock %s: %v", path, err)
	}
	return func() { f.Close() }
}

func run(t testing.TB, dir, name string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = dir
	var output bytes.Buffer
	c.Stdout, c.Stderr = &output, &output
	if err := c.Run(); err != nil {
		t.Fatalf("set up in %s with %s: %v\n%s", dir, strings.Join(append([]string{name}, args...), " "), err, output.Bytes())
	}
}

// hashOf is the hash of a language's own files: what is built or installed
// beside them does not count.
func hashOf(t testing.TB, source string) string {
	t.Helper()
	built := []string{"node_modules", "target", "build", "dist", "__pycache__"}
	sum := sha256.New()
	err := filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(d.Name(), ".")
		switch {
		case d.IsDir() && (hidden || slices.Contains(built, d.Name())):
			return fs.SkipDir
		case hidden || !d.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s %d\n", path, len(content))
		sum.Write(content)
		return nil
	})
	if err != nil {
		t.Fatalf("read the SDK: %v", err)
	}
	return hex.EncodeToString(sum.Sum(nil))[:12]
}

func clearOld(t testing.TB, build, language string) {
	t.Helper()
	old, err := filepath.Glob(filepath.Join(build, language+"-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range old {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}
