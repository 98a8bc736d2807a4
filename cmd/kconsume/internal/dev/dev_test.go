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

// take returns the text and forgets it.
func (w *transcriptWriter) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.text.Reset()
	return w.text.String()
}

// hang is when a test gives up on a text that does not come.
const hang = time.Minute

// await returns when the text matches every pattern. It fails the test when
// ended is closed first.
func (w *transcriptWriter) await(t *testing.T, ended <-chan struct{}, patterns ...string) {
	t.Helper()
	giveUp := time.After(hang)
	for _, p := range patterns {
		for re := regexp.MustCompile(p); !re.MatchString(w.String()); {
			select {
			case <-w.more:
			case <-ended:
				t.Fatalf("dev ended before it told %q:\n%s", p, w)
			case <-giveUp:
				t.Fatalf("dev does not tell %q:\n%s", p, w)
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
	c.Beside = func(_ *engine.Engine, h *host.Host, _ string) (Around, error) {
		r.pid = h.Status().PID
		return Around{Metrics: "http://metrics.example/", End: func() {}}, nil
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
		Interval: 50 * time.Millisecond,
	})
	address := r.brokerAddress(t)
	r.out.await(t, r.ended,
		`order 1001 +main +1st +(received, )?done in`,
		`order 1002 +main +1st +failed: gateway payments 503: busy → waits in retry.200ms until`,
		`order 1002 +retry.200ms 2nd +came back .*due\n`,
		`order 1002 +retry.200ms 2nd +done in`,
		`order 1004 +retry.200ms 2nd +failed: .* → waits in retry.400ms until`,
		`order 1004 +retry.400ms 3rd +failed: gateway payments 503: busy → DLQ: the 3rd delivery was the last`,
		`text 1006 +main +1st +cannot be read: .* → DLQ: a poison pill, no retry`,
		`order 1008 +main +1st +failed: invalid order: total_cents .* → DLQ: permanent, no retry`,
	)
	told := r.deadLettersTold()
	read := map[string]string{} // position of the origin → class
	for _, d := range deadLetters(t, address, "orders.confirmed.dlq", len(told)) {
		read[header(d, "X-Original-Partition")+"/"+header(d, "X-Original-Offset")] = header(d, "X-Error-Class")
	}
	want := map[string]string{"1004": "transient", "1006": "poison", "1008": "permanent"}
	for position, order := range told {
		if read[position] == "" || want[order] != "" && read[position] != want[order] {
			t.Errorf("order %s at %s was told to be in the DLQ; its class there is %q, want %q", order, position, read[position], want[order])
		}
	}

	r.stop(errors.New("interrupted"))
	<-r.ended
	if r.err != nil {
		t.Errorf("Run: %v", r.err)
	}
	all := len(r.deadLettersTold())
	if n := r.deadLettersCounted(t); n != all {
		t.Errorf("the metric counts %d dead letters, %d were told", n, all)
	}
	if last := fmt.Sprintf(", %d in the DLQ\n", all); !strings.HasSuffix(r.out.String(), last) {
		t.Errorf("the last line does not end in %q:\n%s", last, r.out)
	}
	if err := syscall.Kill(r.pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("handler process %d after the end: %v, want none", r.pid, err)
	}
}

// deadLettersTold maps partition/offset to the order's number.
func (r *running) deadLettersTold() map[string]string {
	told := map[string]string{}
	line := regexp.MustCompile(`(\d+/\d+) +(?:order|text) (\d+) .*→ DLQ`)
	for _, m := range line.FindAllStringSubmatch(r.out.String(), -1) {
		told[m[1]] = m[2]
	}
	return told
}

func (r *running) deadLettersCounted(t *testing.T) int {
	t.Helper()
	families, err := r.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	n := 0.0
	for _, f := range families {
		if f.GetName() == "kafka_dlq_messages_total" {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return int(n)
}

// Records of a topic of the author's own: nothing is fed, whatever is sent by
// hand is told, with its key for a name.
func TestRunWithATopicOfTheAuthorsOwn(t *testing.T) {
	r := startDev(t, Config{Engine: engine.Config{Topics: []string{"mine"}, Retry: []time.Duration{}}})
	address := r.brokerAddress(t)
	c, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	send := &kgo.Record{Topic: "mine", Key: []byte("k\x1b[2J\u202e"), Value: []byte("oops")}
	if err := c.ProduceSync(t.Context(), send).FirstErr(); err != nil {
		t.Fatal(err)
	}
	r.out.await(t, r.ended, fmt.Sprintf(`%d/0 +key k\\x1b\[2J\\u… `, send.Partition)+` *main +1st +cannot be read: .* → DLQ`)
	if text := r.out.String(); strings.Contains(text, "order 1001") || !strings.Contains(text, "go straight to the DLQ") {
		t.Errorf("what was told:\n%s", text)
	}
	r.stop(nil)
	<-r.ended
	if r.err != nil {
		t.Errorf("Run: %v", r.err)
	}
}

func TestRunRefusesWhatCannotBe(t *testing.T) {
	err := Run(t.Context(), Config{Out: newTranscript(), Engine: engine.Config{Retry: []time.Duration{-1}}})
	if engine.ClassOf(err) != engine.ErrConfig {
		t.Errorf("Run: %v (class %q), want class %q", err, engine.ClassOf(err), engine.ErrConfig)
	}
}

// A part that fails ends all the others.
func TestRunEndsWithItsOutput(t *testing.T) {
	var pid int
	err := Run(t.Context(), Config{Out: brokenPipe{}, Beside: func(_ *engine.Engine, h *host.Host, _ string) (Around, error) {
		pid = h.Status().PID
		return Around{End: func() {}}, nil
	}})
	if !errors.Is(err, errBroken) {
		t.Errorf("Run: %v, want %v", err, errBroken)
	}
	if err := syscall.Kill(pid, 0); pid == 0 || !errors.Is(err, syscall.ESRCH) {
		t.Errorf("handler process %d after the end: %v, want none", pid, err)
	}
}

func TestRunRefusesAHandlerThatDoesNotStart(t *testing.T) {
	out := newTranscript()
	err := Run(t.Context(), Config{Out: out, Host: host.Config{Path: "/bin/true", Trust: host.TrustByPath}})
	if err == nil || out.String() != "" {
		t.Errorf("Run: %v, and told %q; want an error and nothing told", err, out)
	}
}
