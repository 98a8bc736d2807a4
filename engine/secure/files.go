package secure

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	mostSecret = 64 << 10 // bytes of a file with a secret
	mostPublic = 4 << 20  // of one with certificates: a system's bundle has a quarter of a megabyte
	// secretMode are the bits that the mode of a file with a secret may have.
	secretMode = 0o640
)

// file is a file that a setting names.
type file struct {
	flag, path string
	secret     bool
}

// stamp tells one content of a file from the next.
type stamp struct {
	device, inode uint64
	size          int64
	changed       time.Time
	mode          fs.FileMode
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), changed: info.ModTime(), mode: info.Mode()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.device, s.inode = uint64(sys.Dev), sys.Ino
	}
	return s
}

// stamp looks at the file without reading it.
func (f file) stamp() (stamp, error) {
	info, err := os.Stat(f.path)
	if err != nil {
		return stamp{}, f.unreadable(err)
	}
	return stampOf(info), nil
}

// read reads the file, if it may be used.
func (f file) read() ([]byte, stamp, error) {
	// Without NONBLOCK the opening of a pipe would wait for a writer.
	h, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, stamp{}, f.unreadable(err)
	}
	defer h.Close()
	info, err := h.Stat()
	if err != nil {
		return nil, stamp{}, f.unreadable(err)
	}
	if err := f.usable(info); err != nil {
		return nil, stamp{}, err
	}
	data, err := io.ReadAll(io.LimitReader(h, f.most()+1))
	if err != nil {
		return nil, stamp{}, f.unreadable(err)
	}
	if int64(len(data)) > f.most() {
		return nil, stamp{}, f.tooLarge()
	}
	return data, stampOf(info), nil
}

func (f file) most() int64 {
	if f.secret {
		return mostSecret
	}
	return mostPublic
}

func (f file) usable(info fs.FileInfo) error {
	mode := info.Mode()
	switch {
	case !mode.IsRegular():
		return setting("--%s: %s is no regular file: give one", f.flag, f.path)
	case info.Size() > f.most():
		return f.tooLarge()
	case f.secret && mode.Perm()&^secretMode != 0:
		return setting("--%s: %s has mode %04o, which lets others at a secret: chmod 0640 %s, or stricter", f.flag, f.path, mode.Perm(), f.path)
	}
	return nil
}

func (f file) tooLarge() error {
	return setting("--%s: %s is larger than %d KiB: that is not what it should hold", f.flag, f.path, f.most()>>10)
}

func (f file) unreadable(err error) error {
	todo := "check the path"
	if errors.Is(err, fs.ErrPermission) {
		todo = "let the user that runs this read it, by its group and mode 0640"
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return setting("--%s: cannot read %s: %v: %s", f.flag, f.path, err, todo)
}

// secretOf is the secret in a file's content: all of it but the end of the line.
func (f file) secretOf(data []byte) (string, error) {
	data = bytes.TrimSuffix(data, []byte("\n"))
	data = bytes.TrimSuffix(data, []byte("\r"))
	switch {
	case len(data) == 0:
		return "", setting("--%s: %s is empty: write the secret into it", f.flag, f.path)
	case bytes.ContainsRune(data, 0):
		return "", setting("--%s: %s holds a zero byte: it must be text", f.flag, f.path)
	}
	return string(data), nil
}

// kept is a value made of files. It is made anew once one of them has changed;
// as long as that fails the last one stays in use. Safe for concurrent use.
type kept[T any] struct {
	files []file
	make  func(contents [][]byte) (T, error)
	log   *slog.Logger

	mu     sync.Mutex
	value  T
	stamps []stamp   // of the files that value was made of, nil = there is none yet
	digest [32]byte  // of their contents
	readAt time.Time // when these were read
	said   string    // the failure that was logged
}

// settled is how old a file's time must have been when it was read: a change in
// the same tick of the clock would not show in it.
const settled = 2 * time.Second

func (k *kept[T]) get() (T, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fresh() {
		return k.value, nil
	}
	switch err := k.load(); {
	case err == nil:
		k.said = ""
	case k.stamps == nil:
		return k.value, err
	case err.Error() != k.said:
		k.said = err.Error()
		k.log.Warn("a changed file is not taken: what it held before stays in use", "error", k.said)
	}
	return k.value, nil
}

// fresh reports whether the files are those that the value was made of.
func (k *kept[T]) fresh() bool {
	for i, f := range k.files {
		if s, err := f.stamp(); err != nil || k.stamps == nil || s != k.stamps[i] || k.readAt.Sub(s.changed) < settled {
			return false
		}
	}
	return k.stamps != nil
}

// load reads the files, and makes the value anew if they hold something else.
func (k *kept[T]) load() (err error) {
	at, contents, stamps := time.Now(), make([][]byte, len(k.files)), make([]stamp, len(k.files))
	digest := sha256.New()
	for i, f := range k.files {
		if contents[i], stamps[i], err = f.read(); err != nil {
			return err
		}
		fmt.Fprintf(digest, "%d:%s", len(contents[i]), contents[i])
	}
	sum := [32]byte(digest.Sum(nil))
	if k.stamps == nil || sum != k.digest {
		value, err := k.make(contents)
		if err != nil {
			return err
		}
		if k.stamps != nil {
			k.log.Info("read a changed file again", "file", k.files[0].path, "setting", "--"+k.files[0].flag)
		}
		k.value = value
	}
	k.stamps, k.digest, k.readAt = stamps, sum, at
	return nil
}

// keepSecret keeps what make makes of one file's secret.
func keepSecret[T any](f file, log *slog.Logger, make func(secret string) (T, error)) *kept[T] {
	return &kept[T]{files: []file{f}, log: log, make: func(contents [][]byte) (T, error) {
		secret, err := f.secretOf(contents[0])
		if err != nil {
			var none T
			return none, err
		}
		return make(secret)
	}}
}

// String hides what a value was made of from whatever prints it.
func (k *kept[T]) String() string { return fmt.Sprintf("kept(%d files)", len(k.files)) }

// GoString is String.
func (k *kept[T]) GoString() string { return k.String() }
