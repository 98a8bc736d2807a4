package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kconsume/kconsume/test/suite"
)

func testRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// binaries builds what the modes run.
func binaries(t *testing.T) settings {
	t.Helper()
	dir := t.TempDir()
	s := settings{
		kconsume: filepath.Join(dir, "kconsume"), handler: filepath.Join(dir, "handler"),
		partitions: 12, rate: 800, rest: time.Second,
	}
	if err := suite.Build(dir, map[string]string{"kconsume": "cmd/kconsume", "handler": "test/chaos/handler"}); err != nil {
		t.Fatal(err)
	}
	return s
}

// output is a file whose content the test shows when it ends.
func output(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Close()
		b, err := os.ReadFile(f.Name())
		t.Logf("%s%v", b, map[bool]any{true: "", false: err}[err == nil])
	})
	return f
}

// A share of the long run: a few faults of each kind, the same checks.
func TestChaos(t *testing.T) {
	s := binaries(t)
	s.duration, s.members = 60*time.Second, 3
	if err := runChaos(t.Context(), s, output(t)); err != nil {
		t.Fatal(err)
	}
}

func TestHalved(t *testing.T) {
	if err := runHalved(t.Context(), binaries(t), output(t)); err != nil {
		t.Fatal(err)
	}
}

func TestModesAreNamed(t *testing.T) {
	err := settings{mode: "nope"}.run(t.Context(), os.Stdout)
	if want := `mode "nope": one of chaos, deploy, parked, idle, halved`; fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
