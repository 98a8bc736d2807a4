package admin

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/kconsume/kconsume/admin/dlq"
)

// guard gives every answer its headers, and turns away what comes from a page
// of somebody else's.
func (a *api) guard(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.denied(r, dlq.Actor{}, "cross_origin")
		a.problem(w, http.StatusForbidden, "the request comes from another site's page")
	}))
	inner := cross.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		start := time.Now()
		if _, overSocket := PeerOf(r.Context()); !overSocket && !a.cfg.TCP.knownHost(r.Host) && a.cfg.TCP.Address != "" {
			a.denied(r, dlq.Actor{}, "host")
			a.problem(w, http.StatusForbidden, "this daemon is not called "+r.Host+": use the address that --admin gives, or a name in its certificate")
			return
		}
		inner.ServeHTTP(w, r)
		p, _ := PeerOf(r.Context())
		a.logger.Debug("admin request", "method", r.Method, "path", r.URL.Path, "uid", p.UID, "pid", p.PID, "took", time.Since(start))
	})
}

// admit lets a request in, or answers it.
func (a *api) admit(w http.ResponseWriter, r *http.Request, needs dlq.Role) (dlq.Actor, bool) {
	actor, err := a.cfg.Access.identify(r)
	if err != nil {
		status := http.StatusForbidden
		if errors.Is(err, errNobody) || errors.Is(err, errBadToken) {
			status = http.StatusUnauthorized
			w.Header().Set("WWW-Authenticate", `Bearer realm="kconsume"`)
		}
		a.denied(r, actor, "unknown")
		a.problem(w, status, err.Error())
		return actor, false
	}
	if !actor.Role.Includes(needs) {
		a.denied(r, actor, "role")
		a.problem(w, http.StatusForbidden, "this needs the role "+string(needs)+": "+actor.Name+" is "+string(actor.Role))
		return actor, false
	}
	return actor, true
}

// deniedEvery bounds the log lines about denials; all are counted.
const deniedEvery = 10 * time.Second

// denials are those that were not logged yet.
type denials struct {
	mu     sync.Mutex
	silent int
	next   time.Time
}

func (a *api) denied(r *http.Request, actor dlq.Actor, why string) {
	a.metrics.Denied.WithLabelValues(why).Inc()
	d := &a.denials
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); now.Before(d.next) {
		d.silent++
		return
	} else {
		d.next = now.Add(deniedEvery)
	}
	a.logger.Warn("admin request denied", "why", why, "actor", actor.Name, "method", r.Method, "path", r.URL.Path, "from", r.RemoteAddr, "others_not_logged", d.silent)
	d.silent = 0
}

// page serves the console to who may see it, and lets others show a token.
func (a *api) page(w http.ResponseWriter, r *http.Request) {
	if a.cfg.Console == nil {
		a.problem(w, http.StatusNotFound, "there is no "+r.URL.Path)
		return
	}
	switch r.URL.Path {
	case "/login":
		a.login(w, r)
		return
	case "/logout":
		if c, err := r.Cookie(sessionCookie); err == nil && r.Method == http.MethodPost {
			a.cfg.Access.sessions.end(c.Value)
		}
		http.SetCookie(w, &http.Cookie{Name: sessionCookie, Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode})
		http.Redirect(w, r, "/login", http.StatusSeeOther)
		return
	}
	actor, err := a.cfg.Access.identify(r)
	switch {
	case strings.HasPrefix(r.URL.Path, "/static/"): // holds nothing of anybody's
	case errors.Is(err, errNobody) && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		http.Redirect(w, r, "/login?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		return
	default:
		var ok bool
		if actor, ok = a.admit(w, r, dlq.RoleViewer); !ok {
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), handlerTimeout)
	defer cancel()
	a.cfg.Console.ServeHTTP(w, r.WithContext(context.WithValue(ctx, actorKey{}, actor)))
}

// login takes a token from a form and gives a cookie for it.
func (a *api) login(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		a.cfg.Console.ServeHTTP(w, r)
		return
	}
	actor, err := a.cfg.Access.token(r.PostFormValue("token"))
	if err != nil {
		a.denied(r, dlq.Actor{}, "unknown")
		http.Redirect(w, r, "/login?failed=1&next="+url.QueryEscape(r.PostFormValue("next")), http.StatusSeeOther)
		return
	}
	http.SetCookie(w, a.cfg.Access.sessions.begin(actor, r.TLS != nil))
	http.Redirect(w, r, local(r.PostFormValue("next")), http.StatusSeeOther)
}

// local is a path of ours, and nobody else's.
func local(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.Contains(next, `\`) {
		return "/"
	}
	return next
}
