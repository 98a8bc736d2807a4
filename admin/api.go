package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/metrics"
	"github.com/kconsume/kconsume/plugin/printable"
)

// Config is what the API answers from.
type Config struct {
	// Status is what GET /v1/status shows, as JSON. Its error is shown to the caller.
	Status func(context.Context) (any, error)
	DLQ    *dlq.Service // nil = there is none to operate
	Access *Access      // nil = DefaultOperatorGroup over the socket, and no TCP
	// TCP is what the API listens on there; its zero value = only on the socket.
	TCP TCP
	// Console is served at /, nil = none. It finds who calls by ActorOf.
	Console http.Handler
	Metrics *metrics.Admin // nil = not counted
	Logger  *slog.Logger   // nil = slog.Default()
}

// Problem is an error answer: application/problem+json.
type Problem struct {
	Type   string `json:"type"` // "about:blank": the status says it all
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"` // what failed, and what to do next
	Kind   string `json:"kind,omitempty"`   // dlq.Kind
}

type api struct {
	cfg     Config
	routes  map[string]route
	logger  *slog.Logger
	metrics *metrics.Admin
	denials denials
}

// New is the API as a handler, for the socket and for TCP alike.
func New(c Config) http.Handler {
	_, h := newAPI(c)
	return h
}

func newAPI(c Config) (*api, http.Handler) {
	a := &api{cfg: c, routes: map[string]route{}, logger: c.Logger, metrics: c.Metrics}
	if a.logger == nil {
		a.logger = slog.Default()
	}
	if a.metrics == nil {
		a.metrics = metrics.NewAdmin(nil)
	}
	if a.cfg.Access == nil {
		a.cfg.Access = &Access{OperatorGroup: DefaultOperatorGroup}
	}
	mux := http.NewServeMux()
	a.handle(mux, "/v1/status", route{get: a.status, role: dlq.RoleViewer})
	a.handle(mux, "/v1/openapi.yaml", route{get: a.openAPI, role: dlq.RoleViewer})
	if c.DLQ != nil {
		a.dlqRoutes(mux)
	}
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		a.problem(w, http.StatusNotFound, "there is no "+r.URL.Path)
	})
	a.profiles(mux)
	mux.HandleFunc("/", a.page)
	return a, a.guard(mux)
}

// route is one path of the API.
type route struct {
	get  http.HandlerFunc // nil = not for GET
	post http.HandlerFunc
	role dlq.Role
	long bool // it may take longer than others
}

// longTimeout is what a long request gets.
const longTimeout = 10 * time.Minute

func (a *api) handle(mux *http.ServeMux, path string, t route) {
	a.routes[path] = t
	mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		next := t.get
		var allow []string
		if t.get != nil {
			allow = append(allow, http.MethodGet, http.MethodHead)
		}
		if t.post != nil {
			allow = append(allow, http.MethodPost)
		}
		switch r.Method {
		case http.MethodGet, http.MethodHead:
		case http.MethodPost:
			next = t.post
		default:
			next = nil
		}
		if next == nil {
			w.Header().Set("Allow", strings.Join(allow, ", "))
			a.problem(w, http.StatusMethodNotAllowed, r.Method+" is not for "+r.URL.Path)
			return
		}
		actor, ok := a.admit(w, r, t.role)
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), a.timeout(w, t))
		defer cancel()
		counted := &counting{ResponseWriter: w, status: http.StatusOK}
		next(counted, r.WithContext(context.WithValue(ctx, actorKey{}, actor)))
		a.metrics.Requests.WithLabelValues(path, statusClass(counted.status)).Inc()
	})
}

func (a *api) timeout(w http.ResponseWriter, t route) time.Duration {
	if !t.long {
		return handlerTimeout
	}
	// The server's own limits are for ordinary requests. Where they cannot be
	// moved, as in a test, they do not exist.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(longTimeout))
	return longTimeout
}

// counting remembers the status of an answer.
type counting struct {
	http.ResponseWriter
	status int
}

func (c *counting) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

func (c *counting) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func statusClass(status int) string { return fmt.Sprintf("%dxx", status/100) }

type actorKey struct{}

// ActorOf is who makes a request that was let in.
func ActorOf(ctx context.Context) (dlq.Actor, bool) {
	a, ok := ctx.Value(actorKey{}).(dlq.Actor)
	return a, ok
}

func (a *api) status(w http.ResponseWriter, r *http.Request) {
	s, err := a.cfg.Status(r.Context())
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		a.problem(w, http.StatusServiceUnavailable, "the engine did not answer in time: try again")
	case err != nil:
		a.problem(w, http.StatusInternalServerError, err.Error())
	default:
		a.json(w, http.StatusOK, s)
	}
}

func (a *api) problem(w http.ResponseWriter, status int, detail string) {
	a.write(w, status, "application/problem+json", Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail,
	})
}

func (a *api) json(w http.ResponseWriter, status int, v any) {
	a.write(w, status, "application/json", v)
}

func (a *api) write(w http.ResponseWriter, status int, kind string, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		a.logger.Error("encode answer", "error", err)
		http.Error(w, "", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	if _, err := w.Write(append(printable.JSON(body), '\n')); err != nil {
		a.logger.Debug("write answer", "error", err)
	}
}
