package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Config says which handler runs and how. Zero durations and a zero
// concurrency mean the defaults.
type Config struct {
	Path string   // of the executable
	Args []string // without the program's name
	// Env is NAME=VALUE. Besides it the handler sees PATH, HOME, LANG, TZ and
	// what the handshake needs, and nothing else of our environment.
	Env []string
	// Name is how logs call the handler; by default it follows from Path.
	Name string
	// SHA256 pins the executable, in hex: what is compared is what is executed.
	// The pin of a script does not cover the files that it starts.
	SHA256 string
	Trust  Trust

	Concurrency int // handler calls that run at once, in all processes together, 64
	// Procs is the number of processes, 1: what a handler that has one thread
	// needs to use more than one processor.
	Procs int
	// Watch upgrades the handler by itself when its file has changed; see
	// Host.Reload.
	Watch bool
	// SocketDir holds the handler's socket: private to this user (0700) and
	// short. It is made if it is missing.
	SocketDir string
	// TLS on the socket, besides the directory that guards it: each process gets
	// a certificate of its own, and knows us by ours. Its SDK has to serve it.
	TLS bool

	StartTimeout time.Duration // from the start to the handler's Hello, 10s
	// Grace is what a process gets to end by itself, and what an answer may
	// take beyond the outer deadline of its delivery, 5s.
	Grace time.Duration
	// A restart waits BackoffMin (250ms) after a crash, twice as long after
	// each further one up to BackoffMax (60s), less a random part. A process
	// that lived for BackoffMax starts the count anew.
	BackoffMin, BackoffMax time.Duration

	Logger *slog.Logger // slog.Default by default

	beat      time.Duration  // between heartbeats
	look      time.Duration  // between looks at the file
	probation time.Duration  // that an upgrade's processes must live for, doing nothing
	unlogged  *atomic.Uint64 // bytes of output that were dropped
}

// missedBeats is how many heartbeats without an echo tell a frozen process.
const missedBeats = 3

// socketSuffix is what go-plugin adds to the directory: two names of its own.
const socketSuffix = len("/plugin-dir4294967295/plugin4294967295")

// complete returns a copy with the defaults filled in.
func (c Config) complete() (*Config, error) {
	if c.Path == "" {
		return nil, errors.New("start handler: no path given")
	}
	abs, err := filepath.Abs(c.Path)
	if err != nil {
		return nil, fmt.Errorf("start handler %s: %w", c.Path, err)
	}
	c.Path = abs
	c.Name = cmp.Or(c.Name, strings.TrimPrefix(filepath.Base(c.Path), Prefix))
	c.Concurrency = max(0, c.Concurrency)
	c.Concurrency = cmp.Or(c.Concurrency, 64)
	c.StartTimeout = cmp.Or(c.StartTimeout, 10*time.Second)
	c.Grace = cmp.Or(c.Grace, 5*time.Second)
	c.BackoffMin = cmp.Or(c.BackoffMin, 250*time.Millisecond)
	c.BackoffMax = max(cmp.Or(c.BackoffMax, time.Minute), c.BackoffMin)
	c.Procs = max(1, c.Procs)
	c.beat = cmp.Or(c.beat, time.Second)
	c.look = cmp.Or(c.look, time.Second)
	c.probation = cmp.Or(c.probation, 500*time.Millisecond)
	c.unlogged = new(atomic.Uint64)
	c.Logger = cmp.Or(c.Logger, slog.Default()).With("handler", c.Name)
	return &c, c.prepareSocketDir()
}

// each is how many calls one process may run at once.
func (c *Config) each() int { return portion(c.Concurrency, c.Procs) }

func (c *Config) prepareSocketDir() error {
	dir, err := filepath.Abs(c.SocketDir)
	if err != nil || c.SocketDir == "" {
		return fmt.Errorf("prepare socket directory %q: no absolute path (%w)", c.SocketDir, err)
	}
	c.SocketDir = dir
	if over := len(dir) + socketSuffix - socketPathLimit; over > 0 {
		return fmt.Errorf("prepare socket directory %s: its path is %d bytes too long for a unix socket below it: use a shorter runtime directory", dir, over)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("prepare socket directory: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("prepare socket directory: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("prepare socket directory %s: it is not a directory of this user", dir)
	}
	if info.Mode()&fs.ModePerm&0o077 != 0 {
		return fmt.Errorf("prepare socket directory %s: others may enter it (mode %04o): chmod 700 it, or name one that does not exist", dir, info.Mode().Perm())
	}
	return nil
}
