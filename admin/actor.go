package admin

import (
	"crypto/tls"
	"errors"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/kconsume/kconsume/admin/dlq"
)

// Access says who may do what. Over the socket the kernel tells who calls: root
// and the daemon's own user are admins, members of OperatorGroup operators, and
// Users has the last word on everybody else. Over TCP a token or a client
// certificate tells.
type Access struct {
	OperatorGroup string  // "" = none
	Users         *Users  // nil = none
	Tokens        *Tokens // nil = none
	sessions      sessions
}

// Reload reads the files of tokens and users again. What is wrong stays as it
// was before; the error has a line for each.
func (a *Access) Reload() error {
	var errs []error
	if a.Tokens != nil {
		errs = append(errs, a.Tokens.Reload())
	}
	if a.Users != nil {
		errs = append(errs, a.Users.Reload())
	}
	return errors.Join(errs...)
}

// DefaultOperatorGroup is the group whose members operate DLQs over the socket.
const DefaultOperatorGroup = "kconsume"

// Ways in which an actor is known.
const (
	viaSocket  = "socket"
	viaToken   = "token"
	viaMTLS    = "mtls"
	viaConsole = "console"
)

var (
	errNobody   = errors.New("no token and no certificate: send Authorization: Bearer TOKEN, one of those in the --admin-tokens file")
	errBadToken = errors.New("the token is not one of those in the --admin-tokens file")
	errNoRole   = errors.New("no role: ask an administrator to add you to group kconsume or to the --admin-users file")
)

// identify tells who makes a request.
func (a *Access) identify(r *http.Request) (dlq.Actor, error) {
	if p, ok := PeerOf(r.Context()); ok {
		return a.peer(p)
	}
	if c, err := r.Cookie(sessionCookie); err == nil {
		if actor, ok := a.sessions.find(c.Value); ok && a.Tokens.has(actor.Name, actor.Role) {
			return actor, nil // for as long as its token is there
		}
	}
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return dlq.Actor{}, errBadToken
		}
		return a.token(strings.TrimSpace(token))
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return a.certificate(r.TLS)
	}
	return dlq.Actor{}, errNobody
}

func (a *Access) token(token string) (dlq.Actor, error) {
	if a.Tokens == nil {
		return dlq.Actor{}, errBadToken
	}
	name, role, ok := a.Tokens.find(token)
	if !ok {
		return dlq.Actor{}, errBadToken
	}
	return dlq.Actor{Name: name, Via: viaToken, Role: role}, nil
}

func (a *Access) certificate(state *tls.ConnectionState) (dlq.Actor, error) {
	subject := state.VerifiedChains[0][0].Subject
	actor := dlq.Actor{Name: subject.String(), Via: viaMTLS}
	role, ok := a.Users.role(kindCert, subject.CommonName)
	if !ok {
		return actor, errNoRole
	}
	actor.Role = role
	return actor, nil
}

// peer is the process at the other end of the socket.
func (a *Access) peer(p Peer) (dlq.Actor, error) {
	uid := strconv.Itoa(p.UID)
	actor := dlq.Actor{Name: "uid " + uid, Via: viaSocket}
	u, _ := user.LookupId(uid) // nil: whose it is is not known
	if u != nil {
		actor.Name = "uid " + uid + " (" + u.Username + ")"
	}
	if p.UID == 0 || p.UID == os.Geteuid() {
		actor.Role = dlq.RoleAdmin
		return actor, nil
	}
	if u != nil && u.Username != "" {
		if role, ok := a.Users.role(kindUser, u.Username); ok {
			actor.Role = role
			return actor, nil
		}
	}
	if role, ok := a.Users.role(kindUID, uid); ok {
		actor.Role = role
		return actor, nil
	}
	if a.operator(p, u) {
		actor.Role = dlq.RoleOperator
		return actor, nil
	}
	return actor, errNoRole
}

// operator reports whether a process, or its user if it is known, is in the
// group of operators.
func (a *Access) operator(p Peer, u *user.User) bool {
	g, err := user.LookupGroup(a.OperatorGroup)
	if err != nil {
		return false
	}
	if g.Gid == strconv.Itoa(p.GID) {
		return true
	}
	if u == nil {
		return false
	}
	groups, err := u.GroupIds()
	return err == nil && slices.Contains(groups, g.Gid)
}
