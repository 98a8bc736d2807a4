package admin

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// Config is what the API answers from.
type Config struct {
	// Status is what GET /v1/status shows, as JSON. Its error is shown to the caller.
	Status func(context.Context) (any, error)
	Logger *slog.Logger // nil = slog.Default()
}

// Problem is an error answer: application/problem+json.
type Problem struct {
	Type   string `json:"type"` // "about:blank": the status says it all
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

type api struct {
	cfg    Config
	logger *slog.Logger
}

// New is the API as a handler.
func New(c Config) http.Handler {
	a := &api{cfg: c, logger: c.Logger}
	if a.logger == nil {
		a.logger = slog.Default()
	}
	mux := http.NewServeMux()
	mux.Handle("/v1/status", a.only(http.MethodGet, a.status))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.problem(w, http.StatusNotFound, "there is no "+r.URL.Path)
	})
	return a.guard(mux)
}

// guard gives every request its time and its answer headers, and logs who asked.
func (a *api) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		ctx, cancel := context.WithTimeout(r.Context(), handlerTimeout)
		defer cancel()
		start := time.Now()
		next.ServeHTTP(w, r.WithContext(ctx))
		p, _ := PeerOf(ctx)
		a.logger.Debug("admin request", "method", r.Method, "path", r.URL.Path, "uid", p.UID, "pid", p.PID, "took", time.Since(start))
	})
}

// only answers one method, GET for HEAD too.
func (a *api) only(method string, next http.HandlerFunc) http.Handler {
	allow := []string{method}
	if method == http.MethodGet {
		allow = append(allow, http.MethodHead)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, m := range allow {
			if r.Method == m {
				next(w, r)
				return
			}
		}
		w.Header().Set("Allow", strings.Join(allow, ", "))
		a.problem(w, http.StatusMethodNotAllowed, r.Method+" is not for "+r.URL.Path)
	})
}

func (a *api) status(w http.ResponseWriter, r *http.Request) {
	s, err := a.cfg.Status(r.Context())
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		a.problem(w, http.StatusServiceUnavailable, "the engine did not answer in time: try again")
	case err != nil:
		a.problem(w, http.StatusInternalServerError, err.Error())
	default:
		a.json(w, http.StatusOK, "application/json", s)
	}
}

func (a *api) problem(w http.ResponseWriter, status int, detail string) {
	a.json(w, status, "application/problem+json", Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail,
	})
}

func (a *api) json(w http.ResponseWriter, status int, kind string, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		a.logger.Error("encode answer", "error", err)
		http.Error(w, "", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	if _, err := w.Write(append(body, '\n')); err != nil {
		a.logger.Debug("write answer", "error", err)
	}
}
