package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/kconsume/kconsume/admin/dlq"
)

// minToken is the least length of a token, in bytes.
const minToken = 32

// Tokens are those that let callers in over TCP. A file has one a line: ROLE,
// NAME and TOKEN with blanks between them; lines that begin with # are comments.
type Tokens struct {
	path string
	all  atomic.Pointer[[]token]
}

// token is one of them; only its hash is kept.
type token struct {
	name string
	role dlq.Role
	hash [sha256.Size]byte
}

// ReadTokens reads a file. Its mode is 0640 at most.
func ReadTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path}
	return t, t.Reload()
}

// Reload reads the file again. After an error the tokens of before go on.
func (t *Tokens) Reload() error {
	const flag = "--admin-tokens"
	text, err := readAccessFile(flag, t.path, true)
	if err != nil {
		return err
	}
	lines, err := accessLines(flag, t.path, text)
	if err != nil {
		return err
	}
	var all []token
	for _, l := range lines {
		switch {
		case len(l.words) != 2:
			return fmt.Errorf("%s %s:%d: write ROLE NAME TOKEN", flag, t.path, l.number)
		case len(l.words[1]) < minToken:
			return fmt.Errorf("%s %s:%d: the token of %q has %d bytes, fewer than %d: openssl rand -hex 32 makes one", flag, t.path, l.number, l.words[0], len(l.words[1]), minToken)
		}
		all = append(all, token{l.words[0], l.role, sha256.Sum256([]byte(l.words[1]))})
	}
	if len(all) == 0 {
		return fmt.Errorf("%s %s: there is no token in it: nobody could get in", flag, t.path)
	}
	t.all.Store(&all)
	return nil
}

// has reports whether there still is a token of a name, with its role.
func (t *Tokens) has(name string, role dlq.Role) bool {
	return t != nil && slices.ContainsFunc(*t.all.Load(), func(one token) bool { return one.name == name && one.role == role })
}

// find looks a token up. The time that it takes tells nothing about the tokens.
func (t *Tokens) find(given string) (name string, role dlq.Role, ok bool) {
	hash := sha256.Sum256([]byte(given))
	for _, one := range *t.all.Load() {
		if subtle.ConstantTimeCompare(hash[:], one.hash[:]) == 1 {
			name, role, ok = one.name, one.role, true
		}
	}
	return name, role, ok
}
