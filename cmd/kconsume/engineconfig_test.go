package main

import (
	"reflect"
	"testing"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
	"github.com/kconsume/kconsume/engine"
)

func settings(t *testing.T, vars map[string]string) *option.Set {
	t.Helper()
	s, errs := option.Resolve(option.Table(), option.Sources{Env: func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return s
}

// A flag that does nothing must not exist: each of the engine's changes its
// configuration.
func TestEverySettingReachesTheEngine(t *testing.T) {
	base := engineConfig(settings(t, nil))
	elsewhere := map[string]bool{ // read by the process itself
		"config": true, "log-level": true, "log-format": true, "metrics": true, "admin": true, "admin-tokens": true, "admin-users": true, "admin-tls-cert": true, "admin-tls-key": true, "admin-client-ca": true, "state-dir": true, "critical": true,
		"handler": true, "handler-dir": true, "handler-sha256": true, "handler-arg": true, "handler-procs": true, "handler-tls": true, "handler-env": true,
	}
	other := map[option.Kind]string{
		option.Text: "x", option.List: "x:1", option.Duration: "77s", option.Durations: "77s", option.Number: "77", option.Size: "77MiB", option.Start: "2024-01-02T03:04:05Z",
	}
	for _, o := range option.For(option.Table(), option.Run) {
		if elsewhere[o.Name] {
			continue
		}
		value := other[o.Kind]
		if o.Name == "headers" {
			value = "kconsume,spring"
		}
		switch o.Kind {
		case option.Lines:
			value = "x=outbox"
		case option.Choice:
			value = o.Choices[len(o.Choices)-1]
		case option.Bool:
			value = map[string]string{"true": "false", "false": "true"}[o.Default]
		}
		if reflect.DeepEqual(engineConfig(settings(t, map[string]string{o.Env(): value})), base) {
			t.Errorf("%s=%s changes nothing", o.Env(), value)
		}
	}
}

// The defaults that flags show are those that the engine has.
func TestDefaultsAgree(t *testing.T) {
	given := map[string]string{"KCONSUME_BROKERS": "b:1", "KCONSUME_GROUP": "g", "KCONSUME_TOPIC": "t"}
	ours, err := engineConfig(settings(t, given)).Topology()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := engine.Config{Brokers: []string{"b:1"}, Group: "g", Topics: []string{"t"}}.Topology()
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(ours, theirs) {
		t.Errorf("%v, the engine's %v", ours, theirs)
	}
}
