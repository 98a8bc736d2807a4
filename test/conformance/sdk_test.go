package conformance

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPythonSDK runs the SDK's own tests, which raise the real errors of the
// libraries that it knows, and its type check.
func TestPythonSDK(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(root, "build", "conformance", "python.test")
	if err := os.MkdirAll(out, 0o755); err != nil {
		t.Fatal(err)
	}
	defer lock(t, out+".lock")()
	run(t, filepath.Join(root, "plugins", "sdk", "python"), "bash", "test.sh", out)
}
