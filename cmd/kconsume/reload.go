package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"sync"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
	"github.com/kconsume/kconsume/plugin/host"
)

// reloadable are the settings that SIGHUP takes up.
func reloadable() []string { return []string{"handler-sha256", "log-level"} }

// reloader does what SIGHUP asks for: the settings named above, the tokens and
// users that may call, the certificates that are served, and the handler's file
// are read again. Where one of these is wrong, what was there before goes on and
// the log says so. Every other setting that has changed is named: it needs a
// restart.
type reloader struct {
	in      *invocation
	host    *host.Host
	ends    *endpoints
	level   *slog.LevelVar
	manager *notifier
	logger  *slog.Logger
}

// on reloads at each signal until end is called.
func (r *reloader) on(signals <-chan os.Signal) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for {
			select {
			case <-signals:
				r.reload(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		waiting.Wait()
	}
}

// reload logs what it did and what is wrong, a line each.
func (r *reloader) reload(ctx context.Context) {
	defer r.manager.reloading()()
	if err := r.ends.reload(); err != nil {
		for _, e := range leaves(err) {
			r.logger.Error("cannot reload who may call: what was read before goes on", "error", e)
		}
	}
	next, problems := r.in.reread()
	for _, p := range problems {
		r.logger.Error("cannot reload the settings: those of before go on, and the handler is not started anew", "error", p)
	}
	if len(problems) > 0 {
		return
	}
	r.take(next)
	if _, err := r.host.Reload(ctx, host.ReloadConfig{SHA256: next.Text("handler-sha256")}); err != nil && ctx.Err() == nil {
		r.logger.Error("cannot upgrade", "error", err)
	}
}

// take puts the settings into effect that can be, and names the others. A pin
// that is no longer given needs a restart, too: until then it holds.
func (r *reloader) take(next *option.Set) {
	r.level.Set(logLevel(next))
	r.logger.Info("settings read again", "log_level", next.Text("log-level"))
	var stale []string
	for _, name := range changed(r.in.opts, next) {
		if !slices.Contains(reloadable(), name) || name == "handler-sha256" && next.Text(name) == "" {
			stale = append(stale, name)
		}
	}
	if len(stale) > 0 {
		r.logger.Warn("settings have changed that need a restart: those of before go on", "settings", stale)
	}
}

// changed names the settings that differ, those aside that only follow from
// others. It tells no values: some hold what is secret.
func changed(before, after *option.Set) (names []string) {
	old := map[string]option.Setting{}
	for _, s := range before.Settings() {
		old[s.Name] = s
	}
	for _, s := range after.Settings() {
		was := old[s.Name]
		given := was.Origin.Source != option.FromDefault || s.Origin.Source != option.FromDefault
		if given && !reflect.DeepEqual(was.Value, s.Value) {
			names = append(names, s.Name)
		}
	}
	return names
}

// reload reads again who may call, and what certificates callers are shown.
func (e *endpoints) reload() error { return errors.Join(e.access.Reload(), e.tcp.Check()) }
