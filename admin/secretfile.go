package admin

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/kconsume/kconsume/admin/dlq"
)

// maxAccessFile bounds a file of tokens or users, in bytes.
const maxAccessFile = 1 << 20

// readAccessFile reads a file that decides over rights: nobody but its owner,
// root or this user, may write to it, and where it is secret nobody but its
// group may read it.
func readAccessFile(flag, path string, secret bool) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	allowed := fs.FileMode(0o644)
	if secret {
		allowed = 0o640
	}
	switch st, ok := info.Sys().(*syscall.Stat_t); {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s %s: it is no regular file", flag, path)
	case info.Size() > maxAccessFile:
		return nil, fmt.Errorf("%s %s: it has %d bytes, at most %d are read", flag, path, info.Size(), maxAccessFile)
	case ok && st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return nil, fmt.Errorf("%s %s: it belongs to uid %d: chown it to root or to the user of kconsume", flag, path, st.Uid)
	case info.Mode().Perm()&^allowed&0o777 != 0:
		return nil, fmt.Errorf("%s %s: its mode is %04o: chmod %04o it, at most", flag, path, info.Mode().Perm(), allowed)
	}
	b := make([]byte, info.Size())
	n, err := f.ReadAt(b, 0)
	if n < len(b) && err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, path, err)
	}
	return b, nil
}

// accessLine is a line of such a file: a role and what follows it.
type accessLine struct {
	number int
	role   dlq.Role
	words  []string
}

// accessLines splits a file into its lines, empty ones and comments left out.
// No word of a line is ever put into an error: it may be a secret.
func accessLines(flag, path string, text []byte) ([]accessLine, error) {
	var out []accessLine
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxAccessFile)
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		role := dlq.Role(words[0])
		if !role.Includes(dlq.RoleViewer) {
			return nil, fmt.Errorf("%s %s:%d: the first word is no role: use viewer, reader, operator or admin", flag, path, n)
		}
		out = append(out, accessLine{n, role, words[1:]})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, path, err)
	}
	return out, nil
}
