package engine

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// On a full disk what the last process left stays, and this one goes on.
func TestJournalOnAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	path := filepath.Join(dir, "journal")
	left := "crashes 2 \"t/0/7@1\"\nbegin \"t/0/7@1\"\nbegin \"" + strings.Repeat("x", 8000) + "\"\n"
	if err := os.WriteFile(path, []byte(left), 0o600); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, bytes.Repeat([]byte("x"), 1<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	j, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	if !j.unclean || j.crashes["t/0/7@1"] != 3 {
		t.Errorf("unclean %v, %v", j.unclean, j.crashes)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != left {
		t.Errorf("it has %d bytes, %v; want the %d that were there", len(got), err, len(left))
	}
	if err := j.begin(strings.Repeat("y", 8000)); err == nil {
		t.Error("a note that was not written is not told")
	}
	if _, err := os.Stat(path + ".new"); err == nil {
		t.Error("half a journal is left")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := j.close(); err != nil {
		t.Errorf("with space again: %v", err)
	}
}
