// Package suite is what suites with real processes begin with: the programs of
// this project, built, and the patience to see what they do.
package suite

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Build builds packages of this project into a folder, by what the programs are
// called there.
func Build(dir string, packages map[string]string) error {
	for name, pkg := range packages {
		out, err := exec.Command("go", "build", "-o", filepath.Join(dir, name), "github.com/kconsume/kconsume/"+pkg).CombinedOutput()
		if err != nil {
			return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
	}
	return nil
}

// Until asks again and again until ok says so. The patience only keeps a broken
// test from hanging.
func Until(t testing.TB, patience time.Duration, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", patience, what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
