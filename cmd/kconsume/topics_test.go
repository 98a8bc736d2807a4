package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

func topicNames(p planJSON) []string {
	var names []string
	for _, l := range p.Lines {
		for _, s := range l.Stages {
			names = append(names, s.Topic)
		}
		names = append(names, l.DLQ)
	}
	return names
}

func TestPlanAndApply(t *testing.T) {
	_, brokers := newBroker(t, kfake.SeedTopics(4, "orders.confirmed"))
	s := newShell(t, "KCONSUME_BROKERS="+brokers, "KCONSUME_TOPIC=orders.confirmed")
	r := s.run(t, "topics", "plan", "-o", "json", "--retry", "60s")
	if r.code != 2 || r.stderr != "" {
		t.Fatalf("%+v", r)
	}
	p := decode[planJSON](t, r.stdout)
	if want := []string{"orders.confirmed", "orders.confirmed.retry.1m", "orders.confirmed.replay", "orders.confirmed.dlq"}; !slices.Equal(topicNames(p), want) {
		t.Errorf("names %v, want %v", topicNames(p), want)
	}
	if len(p.Changes) != 4 || len(p.Problems) != 0 || p.Changes[0].Partitions != 4 {
		t.Errorf("%+v", p)
	}
	for range 2 {
		if r := s.run(t, "topics", "apply", "--retry", "1m"); r.code != 0 || r.stderr != "" {
			t.Fatalf("%+v", r)
		}
	}
	if r := s.run(t, "topics", "plan", "--retry", "60000ms"); r.code != 0 || r.stdout != "nothing to do\n" {
		t.Errorf("%+v", r)
	}
	r = s.run(t, "topics", "plan", "--retry", "1m,2h")
	if r.code != 2 || !strings.Contains(r.stdout, "orders.confirmed.retry.2h") || !strings.Contains(r.stdout, "cleanup.policy=delete") {
		t.Errorf("%+v", r)
	}
}

func TestPlanProblems(t *testing.T) {
	_, brokers := newBroker(t, kfake.SeedTopics(2, "orders.confirmed", "orders_confirmed.retry.5s"))
	s := newShell(t, "KCONSUME_BROKERS="+brokers)
	for _, verb := range []string{"plan", "apply"} {
		r := s.run(t, "topics", verb, "-o", "json", "--topic", "orders.confirmed", "--retry", "5s")
		p := decode[planJSON](t, r.stdout)
		if r.code != 78 || len(p.Problems) != 1 || !strings.Contains(r.stderr, "kconsume: topic orders.confirmed.retry.5s: ") || !strings.Contains(r.stderr, "orders_confirmed.retry.5s") {
			t.Errorf("%s: %+v", verb, r)
		}
	}
	r := s.run(t, "topics", "plan", "--topic", "nope", "--topic", "nope2")
	if r.code != 78 || strings.Count(r.stderr, "\n") != 2 || !strings.Contains(r.stderr, "kafka-topics.sh --bootstrap-server "+brokers+" --create --topic nope --partitions N") {
		t.Errorf("%+v", r)
	}
}

func TestValidate(t *testing.T) {
	_, brokers := newBroker(t, kfake.SeedTopics(2, "t"))
	s := newShell(t, "KCONSUME_BROKERS="+brokers, "KCONSUME_GROUP=g", "KCONSUME_TOPIC=t", "KCONSUME_RETRY=5s")
	r := s.run(t, append([]string{"validate"}, probe(t)...)...)
	if r.code != 0 || r.stdout != "run will create topic t.retry.5s\nrun will create topic t.replay\nrun will create topic t.dlq\nrun will create topic t.dlq.state\nok\n" || r.stderr != "" {
		t.Errorf("%+v", r)
	}
	r = s.run(t, append([]string{"validate", "--create-topics=false"}, probe(t)...)...)
	if r.code != 78 || strings.Count(r.stderr, "\n") != 4 || strings.Contains(r.stdout, "ok") || !strings.Contains(r.stderr, "kconsume topics apply") {
		t.Errorf("%+v", r)
	}
}

// Everything that is wrong is said at once.
func TestValidateSaysAll(t *testing.T) {
	_, brokers := newBroker(t)
	s := newShell(t)
	file := writeFile(t, filepath.Join(s.dir, "k.yaml"), "odrer: key\nhandler-timeout: 5x\n", 0o600)
	r := s.run(t, "validate", "--config", file, "--brokers", brokers, "--topic", "missing", "--handler", "./nope")
	want := []string{"did you mean order?", ":2 handler-timeout", "--group", "find handler ./nope", "topic missing"}
	lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
	if r.code != 78 || len(lines) != len(want) {
		t.Fatalf("%+v", r)
	}
	for i, w := range want {
		if !strings.Contains(lines[i], w) {
			t.Errorf("%q does not say %q", lines[i], w)
		}
	}
}
