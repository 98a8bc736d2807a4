// Package console is a daemon's web pages: what its stages do, what lies in its
// DLQs, and what people do about it. They work without scripts; a script keeps
// them fresh where there is one. Every page is rendered here, and shows only
// what the role of who asks allows.
package console

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"time"

	"github.com/kconsume/kconsume/admin/dlq"
)

//go:embed static
var static embed.FS

//go:embed pages
var pages embed.FS

// Config is what the pages show.
type Config struct {
	DLQ *dlq.Service
	// Status is what GET /v1/status shows.
	Status func(context.Context) (any, error)
	// Settings are the effective settings, secrets left out; nil = none are shown.
	Settings func() []Setting
	// ActorOf is who asks.
	ActorOf func(context.Context) (dlq.Actor, bool)
	Logger  *slog.Logger // nil = slog.Default()
}

// Setting is one of the daemon's settings.
type Setting struct{ Name, Value, Origin string }

type console struct {
	cfg    Config
	logger *slog.Logger
	pages  map[string]*template.Template
}

// New is the console as a handler. Who may see it at all is decided before it.
func New(c Config) (http.Handler, error) {
	h := &console{cfg: c, logger: c.Logger, pages: map[string]*template.Template{}}
	if h.logger == nil {
		h.logger = slog.Default()
	}
	base, err := template.New("base.html").Funcs(functions()).ParseFS(pages, "pages/base.html", "pages/parts.html")
	if err != nil {
		return nil, fmt.Errorf("read the console's pages: %w", err)
	}
	names, err := fs.Glob(pages, "pages/*.html")
	if err != nil {
		return nil, fmt.Errorf("read the console's pages: %w", err)
	}
	for _, name := range names {
		page, err := template.Must(base.Clone()).ParseFS(pages, name)
		if err != nil {
			return nil, fmt.Errorf("read the console's pages: %w", err)
		}
		h.pages[name[len("pages/"):]] = page
	}
	return h.routes(), nil
}

func (h *console) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /static/", h.assets())
	mux.HandleFunc("GET /{$}", h.overview)
	mux.HandleFunc("GET /login", h.login)
	mux.HandleFunc("GET /dlq/{topic}", h.groups)
	mux.HandleFunc("GET /dlq/{topic}/messages", h.messages)
	mux.HandleFunc("GET /dlq/{topic}/messages/{partition}/{offset}", h.message)
	mux.HandleFunc("POST /dlq/{topic}/messages/{partition}/{offset}", h.act)
	mux.HandleFunc("POST /dlq/{topic}/plan", h.plan)
	mux.HandleFunc("GET /plans/{digest}", h.showPlan)
	mux.HandleFunc("POST /plans/{digest}", h.apply)
	mux.HandleFunc("GET /jobs", h.jobs)
	mux.HandleFunc("GET /jobs/{id}", h.job)
	mux.HandleFunc("POST /jobs/{id}", h.cancel)
	mux.HandleFunc("GET /audit", h.audit)
	mux.HandleFunc("GET /system", h.system)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		h.fail(w, r, &dlq.Error{Kind: dlq.KindNotFound, Text: "there is no page " + r.URL.Path + ": begin at the overview"})
	})
	return mux
}

// assets are the style and the script, which a browser may keep for a while.
func (h *console) assets() http.Handler {
	files := http.FileServerFS(static)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "private, max-age=300")
		files.ServeHTTP(w, r)
	})
}

// view is what every page has.
type view struct {
	Title   string
	Section string // of the navigation
	Actor   dlq.Actor
	Group   string
	Topics  []string
	Refresh int // seconds until the page is asked for again, 0 = never
	Flash   string
	Now     time.Time
	Data    any
}

// May reports whether the one who asks may do what a role allows.
func (v *view) May(role string) bool { return v.Actor.Role.Includes(dlq.Role(role)) }

func (h *console) view(r *http.Request, title, section string, data any) *view {
	actor, _ := h.cfg.ActorOf(r.Context())
	v := &view{Title: title, Section: section, Actor: actor, Now: time.Now(), Data: data, Flash: r.URL.Query().Get("done")}
	if h.cfg.DLQ != nil {
		v.Topics = h.cfg.DLQ.Topics()
	}
	return v
}

// show renders a page; nothing is sent before all of it is there.
func (h *console) show(w http.ResponseWriter, status int, page string, v *view) {
	var out bytes.Buffer
	if err := h.pages[page].ExecuteTemplate(&out, "base.html", v); err != nil {
		h.logger.Error("render a console page", "page", page, "error", err)
		http.Error(w, "this page cannot be shown: the log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // a browser that went away needs none
}

// fail shows why something was not done.
func (h *console) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := dlq.KindOf(err).HTTPStatus()
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("it took too long: try again")
	}
	h.show(w, status, "error.html", h.view(r, http.StatusText(status), "", struct{ Status, Text string }{http.StatusText(status), err.Error()}))
}

// status is the part of /v1/status that the pages show.
type status struct {
	Group    string      `json:"group"`
	State    string      `json:"state"`
	Since    time.Time   `json:"since"`
	Problem  string      `json:"problem"`
	InFlight int         `json:"in_flight"`
	Buffered int64       `json:"buffer_bytes"`
	Version  string      `json:"version"`
	Instance string      `json:"instance"`
	PID      int         `json:"pid"`
	Started  time.Time   `json:"started"`
	Handler  handler     `json:"handler"`
	Stages   []stage     `json:"stages"`
	Writes   []write     `json:"writes"`
	Topics   []topicText `json:"topic_problems"`
}

type handler struct {
	State    string    `json:"state"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	SDK      string    `json:"sdk"`
	PID      int       `json:"pid"`
	Since    time.Time `json:"since"`
	Restarts int       `json:"restarts"`
	LastExit string    `json:"last_exit"`
	Waiting  int       `json:"waiting"`
	InFlight int       `json:"in_flight"`
	Late     int       `json:"late"`
}

type stage struct {
	Topic      string `json:"topic"`
	Stage      string `json:"stage"`
	Of         string `json:"of"`
	Leftover   bool   `json:"leftover"`
	Lag        int64  `json:"lag"`
	Waiting    int    `json:"waiting"`
	InFlight   int    `json:"in_flight"`
	Partitions []part `json:"partitions"`
}

type part struct {
	Partition int       `json:"partition"`
	NextDue   time.Time `json:"next_due"`
	Problem   string    `json:"problem"`
}

type write struct {
	Topic   string `json:"topic"`
	Waiting int    `json:"waiting"`
	Reason  string `json:"reason"`
}

type topicText struct {
	Text string `json:"text"`
}

// readStatus takes what the pages show from the daemon's status.
func (h *console) readStatus(ctx context.Context) (status, error) {
	var s status
	v, err := h.cfg.Status(ctx)
	if err != nil {
		return s, err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return s, fmt.Errorf("read the daemon's status: %w", err)
	}
	return s, json.Unmarshal(b, &s)
}
