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

// aliveTimeout is how long each owner of state may take to answer.
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

	// Processes are those that should run, then those that an upgrade has
	// replaced and that still answer what they have.
	Processes      []processStatus    `json:"processes"`
	Ends           map[host.Cause]int `json:"ends,omitempty"` // of processes, by cause; a stop's are not counted
	Blamed         int                `json:"blamed_records"` // found to kill their process: in the DLQ as handler_crash
	BadAnswers     int                `json:"bad_answers"`    // to nothing that was asked, or to something twice
	Upgrades       int                `json:"upgrades"`
	FailedUpgrades int                `json:"failed_upgrades"`      // that left the version of before in its place
	OutputDropped  uint64             `json:"output_dropped_bytes"` // not logged: more than is taken
}

// processStatus is one process of the handler.
type processStatus struct {
	PID      int       `json:"pid"` // 0 while there is none
	Version  string    `json:"version"`
	Replaced bool      `json:"replaced,omitempty"` // by an upgrade: it gets nothing new
	InFlight int       `json:"in_flight"`
	Late     int       `json:"late"`
	Restarts int       `json:"restarts"` // in its place, without being asked to
	Since    time.Time `json:"since"`    // when it was started, or ended
}

// handlerStatusOf is a host's status as callers are shown it.
func handlerStatusOf(h host.Status) handlerStatus {
	s := handlerStatus{
		State: string(h.State), Name: h.Name, Version: h.Version, SDK: h.SDK, PID: h.PID, Since: h.Since,
		Restarts: h.Restarts, LastExit: h.LastExit, Waiting: h.Waiting, InFlight: h.InFlight, Late: h.Late,
		Processes: []processStatus{}, Ends: h.Ends, Blamed: h.Blamed, BadAnswers: h.BadAnswers,
		Upgrades: h.Upgrades, FailedUpgrades: h.FailedUpgrades, OutputDropped: h.OutputDropped,
	}
	for _, p := range h.Processes {
		s.Processes = append(s.Processes, processStatus(p))
	}
	return s
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
	if err := d.host.Alive(ctx); err != nil {
		return nil, err
	}
	return daemonStatus{
		Status: s, Instance: d.instance, Version: d.version, PID: os.Getpid(), Started: d.started,
		Handler: handlerStatusOf(d.host.Status()),
	}, nil
}

// alive means that every owner of state answers, whatever it waits for: the
// engine's loop and the handler's host.
func (d *daemon) alive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	if err := d.engine.Alive(ctx); err != nil {
		return err
	}
	return d.host.Alive(ctx)
}

// ready means that records are taken and handled.
func (d *daemon) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	if err := d.engine.Ready(ctx); err != nil {
		return err
	}
	if err := d.host.Alive(ctx); err != nil {
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
			err = errors.New("it does not answer in time: " + err.Error())
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(printable(err.Error()) + "\n"))
	}
}
