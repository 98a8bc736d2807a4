package conformance

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSDK runs each SDK's own tests and checks, which raise the real errors of
// the libraries that it knows. Go's are beside its code.
func TestSDK(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, language := range languages()[1:] {
		t.Run(language, func(t *testing.T) {
			out := filepath.Join(root, "build", "conformance", language+".test")
			if err := os.MkdirAll(out, 0o755); err != nil {
				t.Fatal(err)
			}
			defer lock(t, out+".lock")()
			run(t, filepath.Join(root, "plugins", "sdk", language), "bash", "test.sh", out)
		})
	}
}
