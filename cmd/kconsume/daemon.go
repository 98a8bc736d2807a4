package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/kconsume/kconsume/admin/console"
	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/plugin/host"
)

// aliveTimeout is how long the engine's loop may take to answer /livez.
const aliveTimeout = 10 * time.Second

// daemon is what the endpoints of a running process tell about.
type daemon struct {
	instance string
	version  string
	started  time.Time
	engine   *engine.Engine
	host     *host.Host
	settings []console.Setting
}

// daemonStatus is GET /v1/status: the engine's own status and what is around it.
type daemonStatus struct {
	engine.Status
	Instance string        `json:"instance,omitempty"` // of a service
	Version  string        `json:"version"`
	PID      int           `json:"pid"`
	Started  time.Time     `json:"started"`
	Handler  handlerStatus `json:"handler"`
}

type handlerStatus struct {
	State    string    `json:"state"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	SDK      string    `json:"sdk"`
	PID      int       `json:"pid"` // 0 while there is no process
	Since    time.Time `json:"since"`
	Restarts int       `json:"restarts"`
	LastExit string    `json:"last_exit,omitempty"`
	Waiting  int       `json:"waiting"`   // deliveries not yet sent to it
	InFlight int       `json:"in_flight"` // deliveries it has not answered
	Late     int       `json:"late"`      // calls that run on past their deadline
}

// handlerVersion is name@version of the handler that runs now.
func (d *daemon) handlerVersion() string {
	s := d.host.Status()
	if s.Name == "" {
		return ""
	}
	return s.Name + "@" + s.Version
}

func (d *daemon) status(ctx context.Context) (any, error) {
	s, err := d.engine.Status(ctx)
	if err != nil {
		return nil, err
	}
	h := d.host.Status()
	return daemonStatus{
		Status: s, Instance: d.instance, Version: d.version, PID: os.Getpid(), Started: d.started,
		Handler: handlerStatus{
			State: string(h.State), Name: h.Name, Version: h.Version, SDK: h.SDK, PID: h.PID, Since: h.Since,
			Restarts: h.Restarts, LastExit: h.LastExit, Waiting: h.Waiting, InFlight: h.InFlight, Late: h.Late,
		},
	}, nil
}

// alive means that the engine's loop answers, whatever it waits for.
func (d *daemon) alive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	return d.engine.Alive(ctx)
}

// ready means that records are taken and handled.
func (d *daemon) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	if err := d.engine.Ready(ctx); err != nil {
		return err
	}
	if s := d.host.Status(); s.State != host.StateRunning {
		return fmt.Errorf("handler is %s: %s", s.State, s.LastExit)
	}
	return nil
}

// health is a check as an endpoint: 200 ok, or 503 and why not.
func health(check func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		err := check(r.Context())
		if err == nil {
			_, _ = w.Write([]byte("ok\n")) // a caller that went away needs no answer
			return
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = errors.New("the engine does not answer")
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(err.Error() + "\n"))
	}
}
