package admin

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// maxPath is the longest path of a unix socket, in bytes.
const maxPath = 107

// maxConns bounds the connections that are served at once.
const maxConns = 64

// InUseError says that another process has the socket.
type InUseError struct{ Path string }

func (e *InUseError) Error() string {
	return fmt.Sprintf("listen on %s: another daemon listens there: stop it, or give this one a socket of its own with --admin unix:PATH", e.Path)
}

// Listener is a unix socket that is ours alone. At most maxConns of its
// connections are open at a time; further ones wait to be accepted.
type Listener struct {
	net.Listener
	path  string
	close func() error
}

// Listen makes the socket at path, mode 0660, and its directory, if need be.
// What a daemon that ended has left is replaced; the socket of one that runs is
// never touched: then the error is an *InUseError. A lock file beside the socket
// decides, so that of two that start at once one gets it.
func Listen(path string) (*Listener, error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf("listen on %s: the path has %d bytes, a unix socket's may have %d: choose a shorter one with --admin unix:PATH", path, len(path), maxPath)
	}
	if err := makeDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	lock, err := acquire(path)
	if err != nil {
		return nil, err
	}
	l, err := bind(path)
	if err != nil {
		return nil, errors.Join(err, release(lock))
	}
	out := &Listener{Listener: Limit(l, maxConns), path: path}
	out.close = sync.OnceValue(func() error {
		// The socket goes first: whoever gets the lock finds none of ours.
		return errors.Join(out.Listener.Close(), release(lock))
	})
	return out, nil
}

// Path is the socket's.
func (l *Listener) Path() string { return l.path }

// Close removes the socket.
func (l *Listener) Close() error { return l.close() }

// bind makes the socket while the lock is held.
func bind(path string) (*net.UnixListener, error) {
	if err := clear(path); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w: choose another with --admin unix:PATH", path, err)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), l.Close())
	}
	return l, nil
}

// clear removes a socket that nobody listens on. The lock tells about daemons
// of this kind, a call about everybody else.
func clear(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", path, err)
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("listen on %s: there is something else than a socket: remove it, or choose another path with --admin unix:PATH", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		return errors.Join(&InUseError{path}, c.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return &InUseError{path} // it answers in some way: a full queue, a missing right
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("listen on %s: remove what a daemon left: %w", path, err)
	}
	return nil
}

// acquire takes the lock beside a socket. It ends with its holder, however that ends.
func acquire(socket string) (*os.File, error) {
	for {
		f, err := os.OpenFile(socket+".lock", os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, fmt.Errorf("listen on %s: lock it: %w: choose another with --admin unix:PATH", socket, err)
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			defer f.Close()
			if errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, &InUseError{socket}
			}
			return nil, fmt.Errorf("listen on %s: lock it: %w", socket, err)
		}
		if same(f) {
			return f, nil
		}
		// Its holder removed it between our open and our lock: there is a newer one.
		if err := f.Close(); err != nil {
			return nil, fmt.Errorf("listen on %s: lock it: %w", socket, err)
		}
	}
}

func same(f *os.File) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(f.Name())
	return err == nil && os.SameFile(held, named)
}

func release(lock *os.File) error {
	err := os.Remove(lock.Name())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, lock.Close())
}
