// Package tracing_test runs the real binary and a real handler on real Apache
// Kafka, and receives their traces over OTLP.
package tracing_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/test/kafka"
	"github.com/kconsume/kconsume/test/suite"
	"github.com/kconsume/kconsume/test/tracing/otlp"
	kafkago "github.com/segmentio/kafka-go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

var broker kafka.Shared

func TestMain(m *testing.M) { os.Exit(broker.Run(m)) }

// setting is one daemon's.
type setting struct {
	t       *testing.T
	bin     string
	runtime string
	broken  string   // the file that breaks the handler's gateway
	env     []string // of the daemon, and of commands about it
	log     output
}

type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func set(t *testing.T, topic string) *setting {
	t.Helper()
	s := &setting{t: t, bin: t.TempDir()}
	err := suite.Build(s.bin, map[string]string{"kconsume": "cmd/kconsume", "kconsume-handler-charge": "test/tracing/handler"})
	if err != nil {
		t.Fatal(err)
	}
	if s.runtime, err = os.MkdirTemp("", "kc-"); err != nil { // a socket's path is short
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(s.runtime) })
	s.broken = filepath.Join(s.runtime, "down")
	if err := broker.Cluster(t).CreateTopic(t.Context(), kafkago.TopicConfig{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}); err != nil {
		t.Fatal(err)
	}
	s.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.runtime, "XDG_RUNTIME_DIR=" + s.runtime, "STATE_DIRECTORY=" + t.TempDir(),
		"KCONSUME_BROKERS=" + broker.Cluster(t).Bootstrap(), "KCONSUME_GROUP=" + topic + "-shop", "KCONSUME_TOPIC=" + topic, "KCONSUME_RETRY=1s,2s", "KCONSUME_METRICS=",
		"KCONSUME_HANDLER=" + filepath.Join(s.bin, "kconsume-handler-charge"), "CARD_GATEWAY=" + s.broken,
	}
	return s
}

// start runs the daemon until the returned function stops it.
func (s *setting) start(env ...string) (stop func()) {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(s.bin, "kconsume"), "run",
		"--handler-env", "CARD_GATEWAY", "--handler-env", "OTEL_EXPORTER_OTLP_ENDPOINT", "--handler-env", "OTEL_SERVICE_NAME=charge")
	cmd.Env, cmd.Stdout, cmd.Stderr = append(slices.Clone(s.env), env...), &s.log, &s.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	end := sync.OnceValue(func() error {
		return errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait())
	})
	s.t.Cleanup(func() {
		_ = end() // for a test that failed
		if s.t.Failed() {
			s.t.Logf("the daemon says:\n%s", &s.log)
		}
	})
	return func() {
		if err := end(); err != nil {
			s.t.Fatalf("the daemon's end: %v", err)
		}
	}
}

// command runs a command about the daemon.
func (s *setting) command(args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(s.bin, "kconsume"), args...)
	cmd.Env = s.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// produce writes a record as a shop does that traces.
func produce(t *testing.T, topic string, headers ...kafkago.Header) {
	t.Helper()
	transport := &kafkago.Transport{}
	defer transport.CloseIdleConnections()
	w := &kafkago.Writer{Addr: kafkago.TCP(broker.Cluster(t).Bootstrap()), Topic: topic, RequiredAcks: kafkago.RequireAll, BatchTimeout: time.Millisecond, Transport: transport}
	if err := errors.Join(w.WriteMessages(t.Context(), kafkago.Message{Key: []byte("anna"), Value: []byte(`{"order":7}`), Headers: headers}), w.Close()); err != nil {
		t.Fatal(err)
	}
}

// read is the first record of a topic.
func read(t *testing.T, topic string) kafkago.Message {
	t.Helper()
	r := kafkago.NewReader(kafkago.ReaderConfig{Brokers: strings.Split(broker.Cluster(t).Bootstrap(), ","), Topic: topic, MaxWait: 100 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := r.ReadMessage(ctx)
	if err = errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return m
}

// patience only keeps a broken test from hanging.
const patience = 2 * time.Minute

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	suite.Until(t, patience, what, ok)
}

// shop is the producer's span, sent to the same receiver.
func shop(t *testing.T, r *otlp.Receiver) plugin.Trace {
	t.Helper()
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(r.HTTP()+"/v1/traces"))
	if err != nil {
		t.Fatal(err)
	}
	p := sdk.NewTracerProvider(sdk.WithSyncer(exporter), sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", "shop"))))
	_, span := p.Tracer("shop").Start(t.Context(), "send orders", trace.WithSpanKind(trace.SpanKindProducer))
	span.End()
	if err := p.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	return plugin.TraceOf(span.SpanContext())
}

// One record over three attempts into the DLQ, and its replay once the gateway
// is up: the trace as a collector gets it, with the producer's and the handler's spans.
func TestTraceOfARecord(t *testing.T) {
	const topic = "orders.traced"
	r := otlp.Listen(t)
	s := set(t, topic)
	if err := os.WriteFile(s.broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stop := s.start("OTEL_EXPORTER_OTLP_ENDPOINT="+r.HTTP(), "OTEL_BSP_SCHEDULE_DELAY=100")
	sent := shop(t, r)
	own := []kafkago.Header{
		{Key: "traceparent", Value: []byte(sent.Parent)}, {Key: "tracestate", Value: []byte("shop=t61rcWkgMzE")}, {Key: "baggage", Value: []byte("tenant=7;p=\xff")},
	}
	produce(t, topic, own...)
	dead := read(t, topic+".dlq")
	if err := os.Remove(s.broken); err != nil {
		t.Fatal(err)
	}
	var out string
	until(t, "the dead letter is replayed", func() bool {
		var err error
		out, err = s.command("dlq", "replay", topic+".dlq", "0:0", "--apply", "--reason", "the gateway is up")
		return err == nil
	})
	t.Logf("$ kconsume dlq replay %s.dlq 0:0 --apply\n%s", topic, out)
	until(t, "all spans are received", func() bool { return len(r.Spans()) >= 9 })
	stop()

	spans := r.Spans()
	t.Logf("as the receiver got it:\n%s", otlp.Tree(spans))
	for i, h := range own {
		if got := dead.Headers[i]; got.Key != h.Key || !bytes.Equal(got.Value, h.Value) {
			t.Errorf("header %d of the dead letter is %q=%q, was %q=%q", i, got.Key, got.Value, h.Key, h.Value)
		}
	}
	deliveries := check(t, spans, topic)
	if got := header(dead, "X-Retry-Traceparent"); got != fmt.Sprintf("00-%s-%s-01", deliveries[2].Trace, deliveries[2].ID) {
		t.Errorf("the dead letter names %s as its last delivery, whose span is %s", got, deliveries[2].ID)
	}
}

func header(m kafkago.Message, name string) (value string) {
	n := 0
	for _, h := range m.Headers {
		if h.Key == name {
			value = string(h.Value)
			n++
		}
	}
	if n > 1 {
		return fmt.Sprintf("%d headers", n)
	}
	return value
}

// check returns the deliveries' spans, in order.
func check(t *testing.T, spans []otlp.Span, topic string) []otlp.Span {
	t.Helper()
	byID := map[string]otlp.Span{}
	var deliveries []otlp.Span
	var producer otlp.Span
	for _, s := range spans {
		byID[s.ID] = s
		switch s.Service {
		case "kconsume":
			deliveries = append(deliveries, s)
		case "shop":
			producer = s
		}
	}
	if len(deliveries) != 4 || len(spans) != 9 {
		t.Fatalf("%d spans, %d of them kconsume's; want 9 and 4", len(spans), len(deliveries))
	}
	for i, want := range []struct{ topic, stage, outcome, attempt string }{
		{topic, "main", "retry", "1"}, {topic + ".retry.1s", "retry.1s", "retry", "2"},
		{topic + ".retry.2s", "retry.2s", "dead", "3"}, {topic + ".replay", "replay", "ack", "1"},
	} {
		s := deliveries[i]
		a := s.Attributes
		if s.Name != "process "+want.topic || a["messaging.destination.name"] != want.topic || a["kconsume.stage"] != want.stage ||
			a["kconsume.outcome"] != want.outcome || a["kconsume.attempt"] != want.attempt || s.Error != (want.outcome != "ack") {
			t.Errorf("span %d: %+v, want %+v", i, s, want)
		}
		if a["messaging.system"] != "kafka" || a["messaging.operation.type"] != "process" || a["messaging.consumer.group.name"] != topic+"-shop" ||
			a["kconsume.handler.name"] != "charge" || a["kconsume.handler.version"] != "7" || !strings.HasPrefix(a["kconsume.record.id"], topic+"/0/0@") {
			t.Errorf("span %d has %v", i, a)
		}
		if i < 3 && (s.Trace != producer.Trace || s.Parent != producer.ID) {
			t.Errorf("span %d is not below the producer's", i)
		}
		links := map[string]string{}
		for _, l := range s.Links {
			links[l.Kind] = l.ID
		}
		before := map[int]string{0: "", 1: "previous_attempt", 2: "previous_attempt", 3: "replayed_attempt"}[i]
		if links["original"] != producer.ID || i > 0 && links[before] != deliveries[i-1].ID {
			t.Errorf("span %d links to %v", i, links)
		}
		handled := slices.ContainsFunc(spans, func(c otlp.Span) bool {
			return c.Service == "charge" && c.Parent == s.ID && c.Trace == s.Trace
		})
		if !handled {
			t.Errorf("the handler's span does not continue span %d", i)
		}
	}
	if deliveries[3].Parent != "" || deliveries[3].Trace == producer.Trace {
		t.Error("the replay is not a trace of its own")
	}
	return deliveries
}

// Where kconsume does not trace, the handler continues the producer's trace.
func TestTraceWithoutASpan(t *testing.T) {
	const topic = "orders.untraced"
	r := otlp.Listen(t)
	s := set(t, topic)
	env := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + r.HTTP(), "OTEL_TRACES_EXPORTER=none"}
	stop := s.start(env...)
	sent := shop(t, r)
	produce(t, topic, kafkago.Header{Key: "traceparent", Value: []byte(sent.Parent)})
	until(t, "the handler's span is received", func() bool { return len(r.Spans()) >= 2 })
	stop()
	got := r.Spans()
	t.Logf("as the receiver got it:\n%s", otlp.Tree(got))
	if len(got) != 2 || got[1].Service != "charge" || got[1].Parent != got[0].ID || got[1].Trace != got[0].Trace {
		t.Errorf("spans %+v", got)
	}
}
