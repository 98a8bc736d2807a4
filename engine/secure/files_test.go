package secure

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// replace puts a new file in a file's place, as who rotates secrets does.
func replace(t *testing.T, path, content string) {
	t.Helper()
	next := path + ".next"
	write(t, next, content, 0o600)
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

func TestSecretFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, mode := range []os.FileMode{0o400, 0o440, 0o600, 0o640} {
		write(t, at("good-"+mode.String()), "hunter2", mode)
	}
	for _, mode := range []os.FileMode{0o644, 0o604, 0o660, 0o641, 0o700} {
		write(t, at("bad-"+mode.String()), "hunter2", mode)
	}
	write(t, at("newline"), "hunter2\n", 0o600)
	write(t, at("windows"), "hunter2\r\n", 0o600)
	write(t, at("spaces"), " hunter2 \n\n", 0o600)
	write(t, at("empty"), "\n", 0o600)
	write(t, at("zero"), "hunter2\x00", 0o600)
	write(t, at("large"), strings.Repeat("hunter2", mostSecret/7+1), 0o600)
	if err := syscall.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(at("newline"), at("link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, want, says string }{
		{"good--r--------", "hunter2", ""},
		{"good--r--r-----", "hunter2", ""},
		{"good--rw-------", "hunter2", ""},
		{"good--rw-r-----", "hunter2", ""},
		{"newline", "hunter2", ""},
		{"windows", "hunter2", ""},
		{"spaces", " hunter2 \n", ""},
		{"link", "hunter2", ""}, // as mounted secrets are
		{"bad--rw-r--r--", "", "has mode 0644, which lets others at a secret: chmod 0640 "},
		{"bad--rw----r--", "", "has mode 0604"},
		{"bad--rw-rw----", "", "has mode 0660"},
		{"bad--rw-r----x", "", "has mode 0641"},
		{"bad--rwx------", "", "has mode 0700"},
		{"empty", "", "is empty"},
		{"zero", "", "holds a zero byte"},
		{"large", "", "is larger than 64 KiB"},
		{"pipe", "", "is no regular file"},
		{".", "", "is no regular file"},
		{"none", "", "no such file or directory: check the path"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := keepSecret(file{flag: "sasl-password-file", path: at(c.name), secret: true}, slog.New(slog.DiscardHandler), func(s string) (string, error) { return s, nil })
			got, err := k.get()
			if c.says == "" {
				if err != nil || got != c.want {
					t.Fatalf("%q, %v", got, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "--sasl-password-file") || KindOf(err) != Setting {
				t.Fatalf("%q, %v, want %q", got, err, c.says)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the secret is in %v", err)
			}
		})
	}
}

// A file is read once, and again when it is another; a bad one in its place
// changes nothing but the log.
func TestKeptFollowsItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	write(t, path, "one\n", 0o600)
	var log strings.Builder
	made := 0
	k := keepSecret(file{flag: "sasl-password-file", path: path, secret: true}, slog.New(slog.NewTextHandler(&log, nil)), func(s string) (string, error) { made++; return s, nil })
	expect := func(want string, reads int) {
		t.Helper()
		if got, err := k.get(); err != nil || got != want || made != reads {
			t.Fatalf("%q, %v, made %d times; want %q, %d", got, err, made, want, reads)
		}
	}
	expect("one", 1)
	expect("one", 1)
	replace(t, path, "two\n")
	expect("two", 2)
	// The same name, place, size and time: two changes in one tick of the clock.
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, "owt\n", 0o600)
	if err := os.Chtimes(path, time.Time{}, info.ModTime()); err != nil {
		t.Fatal(err)
	}
	expect("owt", 3)
	// Another time, and the same content.
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	expect("owt", 3)
	if !k.fresh() {
		t.Error("an old file that was read is read again")
	}
	if log.Len() == 0 || strings.Contains(log.String(), "WARN") {
		t.Fatalf("a change is told, and is no problem: %s", log.String())
	}

	write(t, path, "bad\n", 0o644)
	expect("owt", 3)
	expect("owt", 3)
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("a bad file is told %d times: %s", n, log.String())
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expect("owt", 3)
	write(t, path, "three\n", 0o600)
	expect("three", 4)
	for _, secret := range []string{"one", "two", "owt", "three"} {
		if strings.Contains(log.String(), "="+secret) {
			t.Errorf("%s is in the log: %s", secret, log.String())
		}
	}
}
