// Package postgres starts a real PostgreSQL for tests: a server of their own, in
// a folder of its own, on a unix socket there, with no password.
package postgres

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// superuser is the role that tests log in as.
	superuser = "tester"
	readyWord = "database system is ready to accept connections"
	startTime = time.Minute
	logLines  = 200
)

// Server is one PostgreSQL.
type Server struct {
	dir     string
	bin     string
	owner   *syscall.Credential // who runs it where that is not this user
	options []string

	mu      sync.Mutex
	process *process // guarded by mu; nil while it is stopped
	log     []string // guarded by mu; its last lines
}

// Start starts a server for one test, which ends with it. options are settings
// of the server, NAME=VALUE.
func Start(t testing.TB, options ...string) *Server {
	t.Helper()
	s, err := Open(t.Context(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Log())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Open makes a database and starts a server on it. Close it.
func Open(ctx context.Context, options ...string) (*Server, error) {
	bin, err := find()
	if err != nil {
		return nil, err
	}
	// The path of a unix socket is short, and the folder is the server's user's.
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	s := &Server{dir: dir, bin: bin, options: options}
	err = s.disown()
	if err == nil {
		err = s.initialize(ctx)
	}
	if err == nil {
		err = s.Restart()
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("start PostgreSQL: %w\n%s", err, s.Log())
	}
	return s, nil
}

// find is the folder of the programs: that of the newest version installed.
func find() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	best, newest := "", 0.0
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	for _, path := range found {
		bin := filepath.Dir(path)
		version, err := strconv.ParseFloat(filepath.Base(filepath.Dir(bin)), 64)
		if err == nil && version > newest {
			best, newest = bin, version
		}
	}
	if best == "" {
		return "", errors.New("find PostgreSQL's initdb: install it (apt-get install postgresql), or run make need")
	}
	return best, nil
}

// disown gives the folder to an unprivileged user where this one is root, whom
// PostgreSQL refuses.
func (s *Server) disown() error {
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return fmt.Errorf("find a user for the server: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return err
	}
	s.owner = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return os.Chown(s.dir, int(uid), int(gid))
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, program), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner}
	return cmd
}

func (s *Server) initialize(ctx context.Context) error {
	cmd := s.command(ctx, "initdb", "-D", s.data(), "-U", superuser, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make a database: %w: %s", err, out)
	}
	return nil
}

// URL is where clients connect; it lasts over restarts.
func (s *Server) URL() string {
	return fmt.Sprintf("host=%s user=%s dbname=postgres sslmode=disable", s.dir, superuser)
}

// Log is the end of the server's log.
func (s *Server) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log, "\n")
}

// process is one life of the server.
type process struct {
	cmd    *exec.Cmd
	ready  chan struct{} // closed when it accepts connections
	exited chan struct{} // closed when it has exited and its log is read
	err    error         // set before exited is closed
}

// Restart starts a server that is stopped, and returns when it accepts
// connections.
func (s *Server) Restart() error {
	args := []string{"-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB"}
	for _, o := range s.options {
		args = append(args, "-c", o)
	}
	p := &process{cmd: s.command(context.Background(), "postgres", args...), ready: make(chan struct{}), exited: make(chan struct{})}
	// The kernel ends it with this process, however that ends; its own processes
	// end with it. SIGQUIT: without a checkpoint.
	p.cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT
	p.cmd.SysProcAttr.Setpgid = true // Ctrl-C is for the tests, which then stop it
	log, err := p.cmd.StderrPipe()
	if err != nil {
		return err
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: Pdeathsig is about this thread
		defer close(p.exited)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			s.follow(log, p.ready)
			p.err = p.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	late := time.NewTimer(startTime)
	defer late.Stop()
	select {
	case <-p.ready:
	case <-p.exited:
		return fmt.Errorf("the server ended at once: %w", p.err)
	case <-late.C:
		_ = p.cmd.Process.Signal(syscall.SIGQUIT)
		<-p.exited
		return fmt.Errorf("the server was not ready after %v", startTime)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = p
	return nil
}

// follow keeps the last lines of the log until its end, and tells when the
// server is ready.
func (s *Server) follow(log io.Reader, ready chan struct{}) {
	told := false
	for lines := bufio.NewScanner(log); lines.Scan(); {
		s.mu.Lock()
		s.log = append(s.log[max(0, len(s.log)-logLines+1):], lines.Text())
		s.mu.Unlock()
		if !told && strings.Contains(lines.Text(), readyWord) {
			told = true
			close(ready)
		}
	}
}

// Stop stops the server at once and cuts its connections off, which an
// administrator's fast shutdown does, too: clients get SQLSTATE 57P01.
func (s *Server) Stop() error {
	s.mu.Lock()
	p := s.process
	s.process = nil
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	<-p.exited
	if p.err != nil {
		return fmt.Errorf("stop PostgreSQL: %w", p.err)
	}
	return nil
}

// Close stops the server and deletes its data.
func (s *Server) Close() error {
	err := s.Stop()
	return errors.Join(err, os.RemoveAll(s.dir))
}
