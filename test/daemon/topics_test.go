package daemon_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/test/kcat"
	kafkago "github.com/segmentio/kafka-go"
)

// alter changes settings of a topic, or with no name the broker's defaults; an
// empty value takes one back.
func alter(t *testing.T, topic string, settings map[string]string) {
	t.Helper()
	r := kafkago.IncrementalAlterConfigsRequestResource{ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic}
	if topic == "" {
		m, err := client(t).Metadata(t.Context(), &kafkago.MetadataRequest{})
		if err != nil {
			t.Fatal(err)
		}
		r.ResourceType, r.ResourceName = kafkago.ResourceTypeBroker, strconv.Itoa(m.Brokers[0].ID)
	}
	for name, value := range settings {
		op := kafkago.ConfigOperationSet
		if value == "" {
			op = kafkago.ConfigOperationDelete
		}
		r.Configs = append(r.Configs, kafkago.IncrementalAlterConfigsRequestConfig{Name: name, Value: value, ConfigOperation: op})
	}
	res, err := client(t).IncrementalAlterConfigs(t.Context(), &kafkago.IncrementalAlterConfigsRequest{Resources: []kafkago.IncrementalAlterConfigsRequestResource{r}})
	if err == nil {
		err = res.Resources[0].Error
	}
	if err != nil {
		t.Fatal(err)
	}
}

// settings are a topic's effective ones.
func settings(t *testing.T, topic string) map[string]string {
	t.Helper()
	res, err := client(t).DescribeConfigs(t.Context(), &kafkago.DescribeConfigsRequest{Resources: []kafkago.DescribeConfigRequestResource{
		{ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic},
	}})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range res.Resources[0].ConfigEntries {
		out[e.ConfigName] = e.ConfigValue
	}
	return out
}

// metric is the sum of a metric's series with these labels, as they stand in a
// line; -1 while the daemon is not up.
func (d *daemon) metric(name string, labels ...string) float64 {
	d.t.Helper()
	res, err := http.Get("http://" + d.metrics + "/metrics")
	if errors.Is(err, syscall.ECONNREFUSED) {
		return -1
	}
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	var sum float64
	for line := range strings.Lines(string(body)) {
		if !strings.HasPrefix(line, name) || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(line, l) }) {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		if err != nil {
			d.t.Fatal(err)
		}
		sum += n
	}
	return sum
}

func (d *daemon) said(text string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Contains(d.log.String(), text)
}

// handledOf are the distinct records whose delivery ended with success: those
// that fail once at their second.
func handledOf(t *testing.T, log string) map[string]bool {
	t.Helper()
	ids := map[string]bool{}
	for _, one := range deliveries(t, log) {
		if one.word == "ok" || strings.HasPrefix(one.word, "fail 1") && one.attempt >= 2 {
			ids[one.id] = true
		}
	}
	return ids
}

// nine are records that fail once: three of one key, one without, five others.
func nine() (out []kcat.Record) {
	for i := range 3 {
		out = append(out, kcat.Record{Key: []byte("k"), Value: fmt.Appendf(nil, "fail 1\nbody %d", i)})
	}
	out = append(out, kcat.Record{Key: nil, Value: []byte("fail 1\nno key")})
	for i := range 5 {
		out = append(out, kcat.Record{Key: fmt.Append(nil, i), Value: fmt.Appendf(nil, "fail 1\nneighbour %d", i)})
	}
	return out
}

// A tier that is compacted would lose what waits under one key: it is refused.
func TestCompactedTierIsRefused(t *testing.T) {
	for i, policy := range []string{"compact", "compact,delete"} {
		topic, group := fmt.Sprint("compacted-", i), fmt.Sprint("compacted-group-", i)
		createTopic(t, topic, 1)
		err := broker.Cluster(t).CreateTopic(t.Context(), kafkago.TopicConfig{
			Topic: topic + ".retry.5s", NumPartitions: 1, ReplicationFactor: 1,
			ConfigEntries: []kafkago.ConfigEntry{
				{ConfigName: "cleanup.policy", ConfigValue: policy}, {ConfigName: "segment.ms", ConfigValue: "1000"},
				{ConfigName: "min.cleanable.dirty.ratio", ConfigValue: "0.01"}, {ConfigName: "max.compaction.lag.ms", ConfigValue: "1000"},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		kcat.Produce(t, broker.Cluster(t).Bootstrap(), topic, 0, nine())
		log := filepath.Join(t.TempDir(), "probe.log")
		d := start(t, topic, group, log, "--retry", "5s")
		select {
		case <-d.done:
		case <-time.After(time.Minute):
			t.Fatal("it runs with a compacted tier")
		}
		if exit, ok := errors.AsType[*exec.ExitError](d.err); !ok || exit.ExitCode() != 78 {
			t.Errorf("%s: it ended with %v, want 78", policy, d.err)
		}
		for _, want := range []string{topic + ".retry.5s", "cleanup.policy=" + policy, "kafka-configs.sh", "--add-config cleanup.policy=delete"} {
			if !d.said(want) {
				t.Errorf("%s: it does not say %q", policy, want)
			}
		}
		// The command that it names mends it.
		alter(t, topic+".retry.5s", map[string]string{"cleanup.policy": "delete"})
		d = start(t, topic, group, log, "--retry", "5s")
		until(t, "all nine are handled", func() bool { return len(handledOf(t, log)) == 9 })
		d.stop()
	}
}

// Brokers whose defaults would compact or soon delete what waits: our topics
// carry settings of their own.
func TestBrokerDefaultsDoNotMatter(t *testing.T) {
	topic, group := "defaults", "defaults-group"
	defaults := map[string]string{"log.cleanup.policy": "compact", "log.retention.ms": "2000"}
	createTopic(t, topic, 1)
	alter(t, topic, map[string]string{"cleanup.policy": "delete", "retention.ms": "604800000"})
	alter(t, "", defaults)
	defer alter(t, "", map[string]string{"log.cleanup.policy": "", "log.retention.ms": ""})
	kcat.Produce(t, broker.Cluster(t).Bootstrap(), topic, 0, nine())
	log := filepath.Join(t.TempDir(), "probe.log")
	d := start(t, topic, group, log, "--retry", "5s")
	until(t, "all nine are handled", func() bool { return len(handledOf(t, log)) == 9 })
	d.stop()
	main := settings(t, topic)
	for _, ours := range []string{topic + ".retry.5s", topic + ".replay", topic + ".dlq"} {
		s := settings(t, ours)
		if s["cleanup.policy"] != "delete" {
			t.Errorf("%s: cleanup.policy=%s", ours, s["cleanup.policy"])
		}
		if ms, err := strconv.ParseInt(s["retention.ms"], 10, 64); err != nil || ms >= 0 && ms < 7*24*3600*1000 {
			t.Errorf("%s: retention.ms=%s", ours, s["retention.ms"])
		}
		for _, name := range []string{"min.insync.replicas", "max.message.bytes"} {
			ourN, _ := strconv.Atoi(s[name])
			mainN, _ := strconv.Atoi(main[name])
			if ourN < mainN {
				t.Errorf("%s: %s=%d, the main topic has %d", ours, name, ourN, mainN)
			}
		}
	}
}

// A tier's policy is altered under a running daemon: it says so within a minute,
// commits nothing past what it could not write, and goes on once it is mended.
func TestTierCompactedWhileRunning(t *testing.T) {
	topic, group := "altered", "altered-group"
	tier := topic + ".retry.5s"
	createTopic(t, topic, 1)
	log := filepath.Join(t.TempDir(), "probe.log")
	d := start(t, topic, group, log, "--retry", "5s")
	until(t, "it has joined", func() bool { return lag(t, group, []string{topic, tier}, 1) == 0 && d.said("joined the group") })
	alter(t, tier, map[string]string{"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "1000"})
	altered := time.Now()
	kcat.Produce(t, broker.Cluster(t).Bootstrap(), topic, 0, nine())
	until(t, "the metric shows it", func() bool {
		return d.metric("kconsume_topic_problems", `topic="`+tier+`"`, `problem="compacted"`) == 1
	})
	t.Logf("noticed after %v", time.Since(altered).Round(100*time.Millisecond))
	if !d.said("level=ERROR") || !d.said("cleanup.policy=compact would lose records") {
		t.Error("it is not in the log as an error")
	}
	// The record without a key cannot have been written: the fourth of nine.
	if at := committedOffsets(t, group, []string{topic}, 1)[tp{topic, 0}]; at > 3 {
		t.Errorf("%d is committed, past a record that was not forwarded", at)
	}
	alter(t, tier, map[string]string{"cleanup.policy": "delete"})
	until(t, "all nine are handled", func() bool { return len(handledOf(t, log)) == 9 })
	until(t, "the lag is zero", func() bool { return lag(t, group, []string{topic, tier}, 1) == 0 })
	until(t, "the metric is gone", func() bool { return d.metric("kconsume_topic_problems") == 0 })
	d.stop()
}

// remake deletes a topic and creates it again.
func remake(t *testing.T, topic string) {
	t.Helper()
	c := client(t)
	res, err := c.DeleteTopics(t.Context(), &kafkago.DeleteTopicsRequest{Topics: []string{topic}})
	if err == nil {
		err = res.Errors[topic]
	}
	if err != nil {
		t.Fatal(err)
	}
	until(t, topic+" can be created again", func() bool {
		res, err := client(t).CreateTopics(t.Context(), &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		return res.Errors[topic] == nil
	})
}

func many(word string, n int) (out []kcat.Record) {
	for i := range n {
		out = append(out, kcat.Record{Key: fmt.Appendf(nil, "%s%d", word, i), Value: []byte("ok")})
	}
	return out
}

// A main topic is deleted and created again, under a running daemon and while
// none runs, and is longer at once than what was read of its earlier life: every
// record of the new one is handled, and it is told.
func TestTopicMadeAnew(t *testing.T) {
	topic, group := "anew", "anew-group"
	createTopic(t, topic, 1)
	dir := t.TempDir()
	keys := func(log, word string) map[string]bool {
		seen := map[string]bool{}
		for _, one := range deliveries(t, log) {
			if strings.HasPrefix(one.key, "="+word) {
				seen[one.key] = true
			}
		}
		return seen
	}
	log := filepath.Join(dir, "running.log")
	kcat.Produce(t, broker.Cluster(t).Bootstrap(), topic, 0, many("old", 20))
	d := start(t, topic, group, log, "--retry", "5s")
	until(t, "the old ones are handled", func() bool { return len(keys(log, "old")) == 20 && lag(t, group, []string{topic}, 1) == 0 })
	remake(t, topic)
	kcat.Produce(t, broker.Cluster(t).Bootstrap(), topic, 0, many("new", 60))
	until(t, "the new ones are handled", func() bool { return len(keys(log, "new")) == 60 })
	until(t, "the lag is zero", func() bool { return lag(t, group, []string{topic}, 1) == 0 })
	if n := d.metric("kconsume_offsets_lost_total", `topic="`+topic+`"`); n != 1 || !d.said("deleted and created again") {
		t.Errorf("%v offsets are counted as lost", n)
	}
	d.stop()

	remake(t, topic)
	kcat.Produce(t, broker.Cluster(t).Bootstrap(), topic, 0, many("third", 90))
	log = filepath.Join(dir, "stopped.log")
	d = start(t, topic, group, log, "--retry", "5s", "--start", "latest")
	until(t, "the third ones are handled", func() bool { return len(keys(log, "third")) == 90 })
	if n := d.metric("kconsume_offsets_lost_total", `topic="`+topic+`"`); n != 1 || !d.said("deleted and created again") {
		t.Errorf("%v offsets are counted as lost", n)
	}
	d.stop()
}

// A rolling deploy changes the tiers while records wait in one that goes, a topic
// grows meanwhile, and a plan names what is left over.
func TestRollingTiers(t *testing.T) {
	topic, group := "rolling", "rolling-group"
	createTopic(t, topic, 2)
	log := filepath.Join(t.TempDir(), "probe.log")
	old, young := []string{"--retry", "1s,20s"}, []string{"--retry", "1s,25s"}
	d := start(t, topic, group, log, old...)
	var sent []kcat.Record
	for i := range 20 {
		sent = append(sent, kcat.Record{Key: fmt.Append(nil, i), Value: []byte("fail 9")})
	}
	kcat.Produce(t, broker.Cluster(t).Bootstrap(), topic, 0, sent)
	kcat.Produce(t, broker.Cluster(t).Bootstrap(), topic, 1, sent)
	until(t, "they wait in the tier that goes", func() bool { return lag(t, group, []string{topic + ".retry.20s"}, 2) == 40 })
	d.stop()
	plan := exec.Command(filepath.Join(bin, "kconsume"), append([]string{"topics", "plan", "--brokers", broker.Cluster(t).Bootstrap(), "--group", group, "--topic", topic}, young...)...)
	if out, _ := plan.CombinedOutput(); !strings.Contains(string(out), topic+".retry.20s: a tier of earlier settings, in which 40 records") {
		t.Errorf("the plan says\n%s", out)
	}
	d = start(t, topic, group, log, young...)
	other := start(t, topic, group, log, old...)
	stages := []string{topic, topic + ".retry.1s", topic + ".retry.20s", topic + ".retry.25s"}
	until(t, "all are in the DLQ", func() bool { return len(kcat.Consume(t, broker.Cluster(t).Bootstrap(), topic+".dlq")) >= 40 })
	until(t, "the lag is zero", func() bool { return lag(t, group, stages, 2) == 0 })

	if err := grow(t, topic, 4); err != nil {
		t.Fatal(err)
	}
	grown := time.Now()
	kcat.Produce(t, broker.Cluster(t).Bootstrap(), topic, 3, many("grown", 5))
	until(t, "the new partition is read", func() bool { return len(handledOf(t, log)) == 5 })
	t.Logf("a new partition was read after %v", time.Since(grown).Round(100*time.Millisecond))
	until(t, "ours have grown", func() bool {
		return lag(t, group, []string{topic + ".retry.1s", topic + ".replay", topic + ".dlq"}, 4) >= 0
	})
	for _, one := range []*daemon{d, other} {
		if n := one.metric("kconsume_generations_total"); n > 12 {
			t.Errorf("a member joined %v generations", n)
		}
		one.stop()
	}
	ids := map[string]bool{}
	for _, r := range kcat.Consume(t, broker.Cluster(t).Bootstrap(), topic+".dlq") {
		ids[header(r, "X-Record-Id")] = true
	}
	if len(ids) != 40 {
		t.Errorf("%d distinct records are in the DLQ, want 40", len(ids))
	}
}

func grow(t *testing.T, topic string, partitions int32) error {
	res, err := client(t).CreatePartitions(t.Context(), &kafkago.CreatePartitionsRequest{Topics: []kafkago.TopicPartitionsConfig{{Name: topic, Count: partitions}}})
	if err != nil {
		return err
	}
	return res.Errors[topic]
}

// A group is renamed while its records wait: they are named, and handed over.
func TestRenamedGroup(t *testing.T) {
	topic := "renamed"
	createTopic(t, topic, 1)
	dir := t.TempDir()
	kcat.Produce(t, broker.Cluster(t).Bootstrap(), topic, 0, []kcat.Record{
		{Key: []byte("a"), Value: []byte("fail 1")}, {Key: nil, Value: []byte("fail 1")},
		{Key: []byte("b"), Value: []byte("fail 1"), Headers: []plugin.Header{{Key: "own", Value: []byte("kept")}}},
	})
	tier := topic + ".retry.15s"
	d := start(t, topic, "before", filepath.Join(dir, "before"), "--retry", "15s")
	until(t, "they wait", func() bool { return lag(t, "before", []string{tier}, 1) == 3 })
	run := func(args ...string) (string, int) {
		t.Helper()
		cmd := exec.Command(filepath.Join(bin, "kconsume"), append(args, "--brokers", broker.Cluster(t).Bootstrap(), "--group", "after", "--topic", topic, "--retry", "15s")...)
		out, err := cmd.CombinedOutput()
		if exit, failed := errors.AsType[*exec.ExitError](err); failed {
			return string(out), exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		return string(out), 0
	}
	if out, code := run("retries", "adopt", "--from", "before", "--apply"); code != 75 {
		t.Errorf("from a group in use: %d\n%s", code, out)
	}
	d.stop()
	log := filepath.Join(dir, "after")
	d = start(t, topic, "after", log, "--retry", "15s", "--start", "latest")
	until(t, "it names them", func() bool { return d.metric("kconsume_orphaned_records") == 3 })
	if out, code := run("retries", "list"); code != 0 || !strings.Contains(out, "before") {
		t.Errorf("%d\n%s", code, out)
	}
	if out, code := run("retries", "adopt", "--from", "before"); code != 2 {
		t.Errorf("dry run: %d\n%s", code, out)
	}
	if out, code := run("retries", "adopt", "--from", "before", "--apply"); code != 0 {
		t.Errorf("%d\n%s", code, out)
	}
	if out, code := run("retries", "adopt", "--from", "before", "--apply"); code != 0 || !strings.Contains(out, "nothing waits") {
		t.Errorf("again: %d\n%s", code, out)
	}
	until(t, "they are handled", func() bool { return len(handledOf(t, log)) == 3 })
	until(t, "the lag is zero", func() bool { return lag(t, "after", []string{topic, tier}, 1) == 0 })
	d.stop()
	for _, r := range kcat.Consume(t, broker.Cluster(t).Bootstrap(), tier) {
		if string(r.Key) == "b" && header(r, "own") != "kept" {
			t.Errorf("a header was changed: %q", r.Headers)
		}
	}
}
