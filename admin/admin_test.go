package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// holdEnv makes the test binary a daemon that listens on the socket it names
// until its input ends.
const holdEnv = "KCONSUME_TEST_HOLD"

func TestMain(m *testing.M) {
	if path := os.Getenv(holdEnv); path != "" {
		os.Exit(hold(path))
	}
	goleak.VerifyTestMain(m)
}

func hold(path string) int {
	l, err := Listen(path)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("listening")
	if _, err := os.Stdin.Read(make([]byte, 1)); err == nil {
		return 1
	}
	if err := l.Close(); err != nil {
		return 1
	}
	return 0
}

// socketDir is a short directory: the paths of sockets are bounded.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func listen(t *testing.T, path string) *Listener {
	t.Helper()
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
	return l
}

// serve runs an API on a socket until the test ends.
func serve(t *testing.T, path string, status func(context.Context) (any, error)) {
	t.Helper()
	l := listen(t, path)
	logger := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, New(Config{Status: status, Logger: logger}), logger) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
