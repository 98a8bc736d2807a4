package admin

import (
	"crypto/rand"
	"net/http"
	"sync"
	"time"

	"github.com/kconsume/kconsume/admin/dlq"
)

const (
	sessionCookie = "kconsume_session"
	sessionTime   = 12 * time.Hour
	maxSessions   = 1000
)

// sessions are the browsers that have shown a token. They do not outlive the
// process.
type sessions struct {
	mu  sync.Mutex
	all map[string]session // by the cookie's value
}

type session struct {
	actor dlq.Actor
	until time.Time
}

// begin makes a session and its cookie. Where there are too many the one that
// ends first gives way.
func (s *sessions) begin(actor dlq.Actor, secure bool) *http.Cookie {
	id := rand.Text() + rand.Text()
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]session{}
	}
	first := ""
	for other, one := range s.all {
		if now.After(one.until) {
			delete(s.all, other)
		} else if first == "" || one.until.Before(s.all[first].until) {
			first = other
		}
	}
	if len(s.all) >= maxSessions {
		delete(s.all, first)
	}
	actor.Via = viaConsole
	s.all[id] = session{actor, now.Add(sessionTime)}
	return &http.Cookie{
		Name: sessionCookie, Value: id, Path: "/", MaxAge: int(sessionTime / time.Second),
		HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode,
	}
}

func (s *sessions) find(id string) (dlq.Actor, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.all[id]
	return one.actor, ok && time.Now().Before(one.until)
}

func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, id)
}
