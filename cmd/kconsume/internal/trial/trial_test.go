package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kconsume/kconsume/admin/export"
	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/host"
	"go.uber.org/goleak"
)

// roleEnv makes the test binary a handler.
const roleEnv = "KCONSUME_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "handler" {
		plugin.Serve(plugin.Config{Name: "tried", Version: "v3"}, plugin.HandlerFunc(handle))
	}
	goleak.VerifyTestMain(m)
}

// handle does what the value says.
func handle(ctx context.Context, m *plugin.Message) error {
	verb, rest, _ := strings.Cut(string(m.Value), " ")
	switch verb {
	case "transient":
		return plugin.Transient(errors.New("busy"))
	case "once":
		if m.Attempt == 1 {
			return plugin.RetryAfter(errors.New("busy"), 20*time.Second)
		}
		return plugin.Permanent(fmt.Errorf("attempt %d of %d from %s", m.Attempt, m.MaxAttempts, m.Stage))
	case "drop":
		return plugin.Drop("nothing to do")
	case "emit":
		m.Emit(plugin.Record{Topic: "out", Key: nil, Value: []byte(m.ID), Headers: []plugin.Header{{Key: "h"}}})
	case "exit":
		fmt.Fprintln(os.Stderr, "no way out")
		os.Exit(3)
	case "sleep": // until the deadline
		<-ctx.Done()
		return ctx.Err()
	case "stuck": // past it, for ever
		select {}
	case "once-stuck": // the first call never ends; the second one must not run beside it
		if m.Attempt == 1 {
			running.Add(1)
			select {}
		}
		if running.Load() > 0 {
			return errors.New("another call runs")
		}
	case "dies-twice": // and is handled then
		if deaths(rest) <= 2 {
			os.Exit(3)
		}
	case "alone": // fails where another call of its key runs
		if running.Add(1) > 1 {
			return errors.New("another call runs")
		}
		defer running.Add(-1)
		time.Sleep(time.Millisecond) // room for a second call, were there one
	case "echo":
		return plugin.Permanent(fmt.Errorf("%s %s/%d@%d key=%q/%v value=%q headers=%v", m.ID, m.Topic, m.Partition, m.Offset, m.Key, m.Key == nil, rest, m.Headers))
	}
	return nil
}

var running atomic.Int32 // calls that look out for others

// deaths counts, in a file, how often it was called.
func deaths(file string) int64 {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.WriteString("x"); err != nil {
		panic(err)
	}
	info, err := f.Stat()
	if err != nil {
		panic(err)
	}
	return info.Size()
}

// try runs a trial of the test binary.
func try(t *testing.T, c Config, records ...export.Record) (*Report, error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "kc") // not t.TempDir: a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if c.Host.Path == "" {
		c.Host.Path = exe
	}
	c.Host.Trust, c.Host.SocketDir, c.Host.Logger = host.TrustByPath, dir, slog.New(slog.NewTextHandler(io.Discard, nil))
	c.Host.Env = append(c.Host.Env, roleEnv+"=handler")
	c.Topic = "t"
	c.Engine.Emit = map[string]engine.EmitPolicy{"out": engine.EmitOutbox}
	if c.Engine.Concurrency == 0 {
		c.Engine.Concurrency = 8
	}
	if c.Engine.HandlerTimeout == 0 {
		c.Engine.HandlerTimeout = time.Minute
	}
	return Run(t.Context(), c, records)
}

func values(vs ...string) []export.Record {
	var out []export.Record
	for _, v := range vs {
		out = append(out, export.Record{Offset: -1, Timestamp: -1, Value: []byte(v)})
	}
	return out
}

// keyed gives records one key.
func keyed(records []export.Record) []export.Record {
	for i := range records {
		records[i].Key = []byte("k")
	}
	return records
}

// outcomes are a report's, shortly.
func outcomes(r *Report) []string {
	var out []string
	for i := range r.Results {
		l := LineOf(&r.Results[i])
		out = append(out, strings.TrimSpace(strings.Join([]string{l.Outcome, l.Stage, l.Delay, strings.Join(l.Via, ","), l.Class, l.Code}, " ")))
	}
	return out
}

func TestOutcomes(t *testing.T) {
	in := values("fine", "transient", "once", "drop", "emit", "nonsense")
	in[5].Attempt = 3
	in = append(in, export.Record{Topic: "s", Partition: 2, Offset: 7, Timestamp: 5, Key: []byte{}, Value: []byte("echo \xff"), Headers: []plugin.Header{{Key: "a", Value: nil}}})
	r, err := try(t, Config{}, in...)
	want := []string{"done", "retry retry.5s 5s  transient", "retry retry.30s 20s  transient", "dropped", "done", "done", "dlq    permanent"}
	if got := outcomes(r); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if r.Handler != "tried@v3" || len(r.Notes) != 0 {
		t.Errorf("%+v", r)
	}
	if got := r.Results[6].Last().Message; got != `s/2/7@5 s/2@7 key=""/false value="\xff" headers=[{a []}]` || r.Results[6].ID != "s/2/7@5" {
		t.Errorf("the handler saw %s", got)
	}
	if r.Results[0].ID != "t/0/0@-1" || r.Results[4].ID != "t/0/4@-1" {
		t.Errorf("%+v", r.Results)
	}
	if e := r.Results[4].Last().Emitted; len(e) != 1 || e[0].Topic != "out" || e[0].Key != nil || string(e[0].Value) != "t/0/4@-1" {
		t.Errorf("%+v", e)
	}
}

func TestSettle(t *testing.T) {
	r, err := try(t, Config{Settle: true}, values("fine", "transient", "once")...)
	want := []string{"done", "dlq   retry.5s,retry.30s transient", "dlq   retry.30s permanent"}
	if got := outcomes(r); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	// The handler is told where the record comes from.
	if got := r.Results[2].Last(); got.Message != "attempt 2 of 3 from retry.30s" || got.Attempt != 2 || got.From != "retry.30s" {
		t.Errorf("%+v", got)
	}
}

// Records of one key are handled one at a time and in order, others beside them.
func TestKeys(t *testing.T) {
	var in []string
	for range 50 {
		in = append(in, "alone")
	}
	r, err := try(t, Config{}, keyed(values(in...))...)
	if err != nil || len(r.Results) != 50 {
		t.Fatal(r, err)
	}
	for i, got := range outcomes(r) {
		if got != "done" || r.Results[i].Record != i+1 {
			t.Errorf("record %d: %s", i+1, got)
		}
	}
}

// A record that ends the process is found among the others; those are handled.
func TestCrash(t *testing.T) {
	for name, in := range map[string][]export.Record{
		"without a key": values("fine", "fine", "exit", "transient", "fine"),
		"with one key":  keyed(values("fine", "fine", "exit", "transient", "fine")),
	} {
		t.Run(name, func(t *testing.T) {
			r, err := try(t, Config{Settle: true}, in...)
			want := []string{"done", "done", "dlq    handler_crash", "dlq   retry.5s,retry.30s transient", "done"}
			if got := outcomes(r); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%q, %v, want %q", got, err, want)
			}
			if got := r.Results[2].Last(); len(r.Results[2].Steps) != 1 || got.Topic != "t.dlq" || !strings.Contains(got.Message, "exit status 3: no way out") {
				t.Errorf("%+v", got)
			}
		})
	}
}

// A record is blamed for what it does alone, and not for the first time.
func TestCrashThatPasses(t *testing.T) {
	r, err := try(t, Config{}, values("dies-twice "+filepath.Join(t.TempDir(), "deaths"), "fine")...)
	if got := outcomes(r); err != nil || !reflect.DeepEqual(got, []string{"done", "done"}) {
		t.Errorf("%q, %v", got, err)
	}
}

// Without another record that was answered it may be the handler.
func TestCrashWithoutProof(t *testing.T) {
	r, err := try(t, Config{}, values("exit", "exit")...)
	if got := outcomes(r); err != nil || !reflect.DeepEqual(got, []string{"pause    handler_crash", "pause    handler_crash"}) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestCrashOfEveryRecord(t *testing.T) {
	r, err := try(t, Config{Engine: engine.Config{Concurrency: 2}}, values("exit", "exit", "exit", "exit", "exit")...)
	if err == nil || !strings.Contains(err.Error(), "it is not the records") || !strings.Contains(err.Error(), "no way out") || len(r.Results) > 3 {
		t.Errorf("%q, %v", outcomes(r), err)
	}
}

// A call past its deadline is a timeout. One that goes on holds its key, until
// the process is started anew.
func TestTimeout(t *testing.T) {
	in := append(values("sleep", "fine"), keyed(values("stuck", "fine"))...)
	r, err := try(t, Config{Engine: engine.Config{HandlerTimeout: 50 * time.Millisecond}}, in...)
	want := []string{"retry retry.5s 5s  timeout", "done", "retry retry.5s 5s  timeout", "done"}
	if got := outcomes(r); err != nil || !reflect.DeepEqual(trimCodes(got), want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "started anew") {
		t.Errorf("%q", r.Notes)
	}
}

// trimCodes leaves out what stands behind the class.
func trimCodes(lines []string) []string {
	for i := range lines {
		if _, after, ok := strings.Cut(lines[i], "timeout"); ok {
			lines[i] = strings.TrimSuffix(lines[i], after)
		}
	}
	return lines
}

func TestSettleWaitsForACallThatIsStuck(t *testing.T) {
	r, err := try(t, Config{Settle: true, Engine: engine.Config{HandlerTimeout: 50 * time.Millisecond}}, keyed(values("once-stuck"))...)
	if got := outcomes(r); err != nil || !reflect.DeepEqual(got, []string{"done   retry.5s"}) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestStuckWithOneAtATime(t *testing.T) {
	r, err := try(t, Config{Engine: engine.Config{Concurrency: 1, HandlerTimeout: 50 * time.Millisecond}}, values("stuck", "fine", "stuck", "fine")...)
	want := []string{"retry retry.5s 5s  timeout", "done", "retry retry.5s 5s  timeout", "done"}
	if got := outcomes(r); err != nil || !reflect.DeepEqual(trimCodes(got), want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

func TestOversize(t *testing.T) {
	in := values("fine", "x")
	in[1].Value = make([]byte, 64<<20)
	r, err := try(t, Config{}, in...)
	if got := outcomes(r); err != nil || !reflect.DeepEqual(got, []string{"done", "dlq    oversize oversize"}) {
		t.Errorf("%q, %v", got, err)
	}
	in[0].Value = []byte("exit") // the handler has answered nothing: the other one it did not get
	r, err = try(t, Config{}, in...)
	if got := outcomes(r); err != nil || !reflect.DeepEqual(got, []string{"pause    handler_crash", "dlq    oversize oversize"}) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWhatCannotBeTried(t *testing.T) {
	r, err := try(t, Config{Host: host.Config{Path: "/bin/true"}}, values("fine")...)
	if err == nil || !strings.Contains(err.Error(), "is it a kconsume handler?") || len(r.Results) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	in := values("fine")
	in[0].Topic = "no topic"
	if _, err = try(t, Config{}, in...); engine.ClassOf(err) != engine.ErrConfig || !strings.Contains(err.Error(), "record 1: ") {
		t.Error(err)
	}
}

func TestStopped(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the person said so")
	cancel(stop)
	r := &runner{cfg: Config{Topic: "t"}, preview: engine.NewPreview(engine.Config{})}
	tasks, err := r.tasks(values("fine"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.all(ctx, tasks); !errors.Is(err, stop) {
		t.Error(err)
	}
}
