package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// wait writes n waiting records of a group to a retry topic.
func wait(t *testing.T, brokers, topic, group string, n int) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(brokers, ",")...))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range n {
		r := &kgo.Record{Topic: topic, Key: fmt.Append(nil, i), Value: []byte("v"), Headers: []kgo.RecordHeader{
			{Key: "X-Retry-Group", Value: []byte(group)}, {Key: "X-Retry-Due", Value: []byte("1790000000000")},
		}}
		if err := c.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRetriesListAndAdopt(t *testing.T) {
	_, brokers := newBroker(t, kfake.SeedTopics(2, "t", "t.retry.5s", "t.retry.1h", "t.replay", "t.dlq"))
	wait(t, brokers, "t.retry.5s", "billing", 3)
	wait(t, brokers, "t.retry.1h", "billing", 2) // a tier of earlier settings
	wait(t, brokers, "t.retry.1h", "invoices", 1)
	wait(t, brokers, "t.dlq", "billing", 1) // waits for nobody
	s := newShell(t, "KCONSUME_BROKERS="+brokers, "KCONSUME_TOPIC=t", "KCONSUME_RETRY=5s", "KCONSUME_GROUP=invoices")
	list := func() []waitingJSON {
		t.Helper()
		r := s.run(t, "retries", "list", "-o", "json")
		if r.code != 0 || r.stderr != "" {
			t.Fatalf("%+v", r)
		}
		var out []waitingJSON
		for _, w := range decode[[]waitingJSON](t, r.stdout) {
			w.FirstDue = w.FirstDue.UTC()
			out = append(out, w)
		}
		return out
	}
	before := list()
	if len(before) != 3 || before[0] != (waitingJSON{"t.retry.1h", "billing", "Dead", 0, 2, before[0].FirstDue}) || before[0].FirstDue.UnixMilli() != 1790000000000 {
		t.Fatalf("%+v", before)
	}
	if r := s.run(t, "retries", "list"); r.code != 0 || !strings.Contains(r.stdout, "2026-09-21T") || strings.Count(r.stdout, "\n") != 4 {
		t.Errorf("%+v", r)
	}
	r := s.run(t, "retries", "adopt", "--from", "billing")
	if r.code != 2 || r.stderr != "" || !strings.Contains(r.stdout, "--apply") {
		t.Errorf("%+v", r)
	}
	if after := list(); !slices.Equal(after, before) {
		t.Errorf("a dry run changed what waits: %+v", after)
	}
	r = s.run(t, "retries", "adopt", "--from", "billing", "--apply", "-o", "json")
	if got := decode[adoptedJSON](t, r.stdout); r.code != 0 || r.stderr != "" || got.Records != 5 || !got.Applied || len(got.Topics) != 2 {
		t.Errorf("%+v", r)
	}
	after := list()
	if len(after) != 2 || after[0].Group != "invoices" || after[0].Records != 3 || after[1].Group != "invoices" || after[1].Records != 3 {
		t.Errorf("%+v", after)
	}
	if r := s.run(t, "retries", "adopt", "--from", "billing", "--apply"); r.code != 0 || r.stdout != "nothing waits for group \"billing\"\n" {
		t.Errorf("%+v", r)
	}
	if r := s.run(t, "retries", "adopt", "--from", "invoices"); r.code != 1 || !strings.Contains(r.stderr, "both groups") {
		t.Errorf("%+v", r)
	}
	if r := s.run(t, "retries", "adopt"); r.code != 64 || !strings.Contains(r.stderr, "--from") {
		t.Errorf("%+v", r)
	}
}

func TestPlanNamesLeftovers(t *testing.T) {
	c, brokers := newBroker(t, kfake.SeedTopics(1, "t", "t.retry.5s", "t.retry.30s", "t.retry.2m", "t.retry.60s", "t.replay", "t.dlq"))
	if err := c.CreateTopic("t.dlq.state", 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}
	wait(t, brokers, "t.retry.30s", "g", 4)
	wait(t, brokers, "t.retry.2m", "other", 1)
	wait(t, brokers, "t.retry.60s", "g", 1) // not a name of ours
	s := newShell(t, "KCONSUME_BROKERS="+brokers, "KCONSUME_TOPIC=t", "KCONSUME_RETRY=5s")
	r := s.run(t, "topics", "plan", "--group", "g", "-o", "json")
	p := decode[planJSON](t, r.stdout)
	if r.code != 0 || len(p.Leftovers) != 1 || p.Leftovers[0] != (leftoverJSON{"t.retry.30s", "30s", 4, false}) || len(p.Warnings) != 1 || len(p.Problems) != 0 {
		t.Errorf("%+v", r)
	}
	r = s.run(t, "topics", "plan", "--group", "g")
	if r.code != 0 || !strings.Contains(r.stderr, "kconsume: warning: topic t.retry.30s: ") || !strings.Contains(r.stderr, "4 records of group \"g\"") {
		t.Errorf("%+v", r)
	}
	if r := s.run(t, "topics", "plan"); r.code != 0 || r.stderr != "" {
		t.Errorf("without a group: %+v", r)
	}
}
