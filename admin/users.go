package admin

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/kconsume/kconsume/admin/dlq"
)

// What a line of a users file names.
const (
	kindUser = "user" // of this host, by name
	kindUID  = "uid"
	kindCert = "cert" // the common name of a client's certificate
)

// Users are the roles of people. A file has one a line: ROLE and user:NAME,
// uid:NUMBER or cert:COMMON-NAME; lines that begin with # are comments.
type Users struct {
	path  string
	roles atomic.Pointer[map[string]dlq.Role]
}

// ReadUsers reads a file, which nobody but its owner may write to.
func ReadUsers(path string) (*Users, error) {
	u := &Users{path: path}
	return u, u.Reload()
}

// Reload reads the file again. After an error the roles of before go on.
func (u *Users) Reload() error {
	const flag = "--admin-users"
	text, err := readAccessFile(flag, u.path, false)
	if err != nil {
		return err
	}
	lines, err := accessLines(flag, u.path, text)
	if err != nil {
		return err
	}
	roles := map[string]dlq.Role{}
	for _, l := range lines {
		who := strings.Join(l.words, " ")
		kind, name, _ := strings.Cut(who, ":")
		switch {
		case name == "" || kind != kindUser && kind != kindUID && kind != kindCert:
			return fmt.Errorf("%s %s:%d: write ROLE and user:NAME, uid:NUMBER or cert:COMMON-NAME", flag, u.path, l.number)
		case roles[who] != "":
			return fmt.Errorf("%s %s:%d: %s is named twice", flag, u.path, l.number, who)
		}
		roles[who] = l.role
	}
	u.roles.Store(&roles)
	return nil
}

func (u *Users) role(kind, name string) (dlq.Role, bool) {
	if u == nil {
		return "", false
	}
	r, ok := (*u.roles.Load())[kind+":"+name]
	return r, ok
}
