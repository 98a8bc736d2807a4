package main

import (
	"bytes"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/plugin/host"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.yaml.in/yaml/v3"
)

// schema is a part of the API's document.
type schema struct {
	Ref        string `yaml:"$ref"`
	Required   []string
	Properties map[string]schema
	Items      *schema
}

// The document tells of each field that the status has, and of no other.
func TestStatusIsDescribed(t *testing.T) {
	b, err := os.ReadFile("../../admin/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct{ Schemas map[string]schema }
	}
	if err := yaml.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	var check func(at string, s schema, of reflect.Type)
	check = func(at string, s schema, of reflect.Type) {
		if s.Ref != "" {
			s = doc.Components.Schemas[s.Ref[strings.LastIndex(s.Ref, "/")+1:]]
		}
		if of.Kind() == reflect.Slice {
			of = of.Elem()
			if s.Items == nil {
				t.Errorf("%s is a list", at)
				return
			}
			check(at, *s.Items, of)
			return
		}
		if of.Kind() != reflect.Struct || of == reflect.TypeFor[time.Time]() {
			return
		}
		fields, always := map[string]reflect.Type{}, []string{}
		for _, f := range reflect.VisibleFields(of) {
			name, how, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				continue // embedded
			}
			fields[name] = f.Type
			if how == "" {
				always = append(always, name)
			}
		}
		if got, want := slices.Sorted(maps.Keys(s.Properties)), slices.Sorted(maps.Keys(fields)); !slices.Equal(got, want) {
			t.Errorf("%s: the document has %q, the status %q", at, got, want)
		}
		slices.Sort(always)
		if slices.Sort(s.Required); !slices.Equal(s.Required, always) {
			t.Errorf("%s: the document requires %q, the status always has %q", at, s.Required, always)
		}
		for name, typ := range fields {
			check(at+"."+name, s.Properties[name], typ)
		}
	}
	check("status", schema{Ref: "#/components/schemas/Daemon"}, reflect.TypeFor[daemonStatus]())
}

func TestHandlerStatusHasAllThatTheHostKnows(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	h := host.Status{
		State: host.StateRunning, Name: "orders", Version: "7", SDK: "go 1", PID: 11, Restarts: 12, Since: at, LastExit: "exit status 1",
		InFlight: 13, Waiting: 14, Late: 15, BadAnswers: 16, Ends: map[host.Cause]int{host.CauseExit: 17}, Blamed: 18, Upgrades: 19, FailedUpgrades: 20, OutputDropped: 21,
		Processes: []host.ProcessStatus{{PID: 11, Version: "7", InFlight: 22, Since: at}, {PID: 23, Version: "6", Replaced: true, InFlight: 24, Late: 25, Restarts: 26, Since: at}, {Restarts: 27, Since: at}},
	}
	for v := reflect.ValueOf(h); v.IsValid(); v = (reflect.Value{}) {
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Fatalf("the test leaves %s out", v.Type().Field(i).Name)
			}
		}
	}
	s := handlerStatusOf(h)
	for v := reflect.ValueOf(s); v.IsValid(); v = (reflect.Value{}) {
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%s is left out", v.Type().Field(i).Name)
			}
		}
	}
	var b bytes.Buffer
	in := &invocation{system: &system{stdout: &b}}
	if err := printStatus(in, daemonStatus{Status: engine.Status{Group: "g\n\x1b[2J"}, Handler: s}, "/s"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`g\n\x1b[2J`,
		"orders 7 running since 2026-11-30T12:00:00Z, 12 restarts, 19 upgrades and 20 that failed\n",
		"11, version 7 since 2026-11-30T12:00:00Z, 22 in flight\n",
		"23, version 6 since 2026-11-30T12:00:00Z, 24 in flight, replaced: answers what it has\n",
		"none since 2026-11-30T12:00:00Z, 27 restarts\n",
		"18 records found to kill its process: they are in the DLQ as handler_crash\n",
		"15 calls run on", "16 answers to nothing", "21 bytes of its output",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// Two processes of one handler are shown one by one.
func TestStatusOfProcesses(t *testing.T) {
	_, brokers := newBroker(t, kfake.SeedTopics(1, "t"))
	s := newShell(t)
	p := s.start(t, daemonArgs(t, brokers, "--handler-procs", "2")...)
	p.await(t, "msg=started")
	r := s.run(t, "status", "--group", testGroup, "-o", "json")
	st := decode[daemonStatus](t, r.stdout)
	if h := st.Handler; len(h.Processes) != 2 || h.Processes[0].PID != h.PID || h.Processes[1].PID == h.PID || h.Processes[1].Version != "v7" {
		t.Errorf("%+v", h)
	}
	if r := s.run(t, "status", "--group", testGroup); strings.Count(r.stdout, "handler process") != 2 {
		t.Errorf("%+v", r)
	}
}
