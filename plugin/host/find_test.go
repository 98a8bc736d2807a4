package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	write(t, filepath.Join(first, Prefix+"orders"), "", 0o755)
	write(t, filepath.Join(second, Prefix+"orders"), "", 0o755)
	write(t, filepath.Join(second, Prefix+"invoices"), "", 0o755)
	write(t, filepath.Join(second, "orderz"), "", 0o755)
	missing := filepath.Join(first, "missing")
	dirs := []string{missing, first, second}
	for _, c := range []struct {
		name string
		dirs []string
		want string // path
		errs []string
	}{
		{"orders", dirs, filepath.Join(first, Prefix+"orders"), nil},
		{"invoices", dirs, filepath.Join(second, Prefix+"invoices"), nil},
		{filepath.Join(second, "orderz"), nil, filepath.Join(second, "orderz"), nil},
		{"order", dirs, "", []string{missing, first, second, "did you mean orders?"}},
		{Prefix + "orders", dirs, "", []string{"did you mean orders?"}},
		{"payments", dirs, "", []string{"there are invoices, orders"}},
		{"orders", []string{missing}, "", []string{missing, "there is no handler in any of them"}},
		{"orders", nil, "", []string{"--handler-dir is empty"}},
		{"", dirs, "", []string{"no name given"}},
		{"./nowhere", dirs, "", []string{"./nowhere", "no such file"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Find(c.name, c.dirs)
			if got != c.want {
				t.Errorf("path %q, want %q", got, c.want)
			}
			wantError(t, err, c.errs)
		})
	}
}

// wantError checks that err holds each of the texts; no text means no error.
func wantError(t *testing.T, err error, texts []string) {
	t.Helper()
	if (err == nil) != (len(texts) == 0) {
		t.Fatalf("error %v, want one with %q", err, texts)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q lacks %q", err, text)
		}
	}
}

func TestNearestComesFirst(t *testing.T) {
	got := nearest("orders", []string{"order-s", "ordersX", "oxders2", "orders2", "zebra"})
	if len(got) != 3 || got[2] == "oxders2" || strings.Contains(strings.Join(got, " "), "zebra") {
		t.Errorf("nearest %q", got)
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
}
