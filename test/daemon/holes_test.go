package daemon_test

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kconsume/kconsume/test/kcat"
	kafkago "github.com/segmentio/kafka-go"
)

// compacted makes a main topic of which the brokers soon keep only the last of
// each key, and of null values nothing.
func compacted(t *testing.T, topic string) {
	t.Helper()
	err := broker.Cluster(t).CreateTopic(t.Context(), kafkago.TopicConfig{
		Topic: topic, NumPartitions: 1, ReplicationFactor: 1,
		ConfigEntries: []kafkago.ConfigEntry{
			{ConfigName: "cleanup.policy", ConfigValue: "compact"}, {ConfigName: "segment.ms", ConfigValue: "50"},
			{ConfigName: "min.cleanable.dirty.ratio", ConfigValue: "0.001"}, {ConfigName: "max.compaction.lag.ms", ConfigValue: "50"},
			{ConfigName: "delete.retention.ms", ConfigValue: "0"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// keysLeft are the keys that another client still reads.
func keysLeft(t *testing.T, topic string) (keys []string) {
	t.Helper()
	for _, r := range kcat.Consume(t, broker.Cluster(t).Bootstrap(), topic) {
		keys = append(keys, fmt.Sprintf("%s@%d", r.Key, r.Offset))
	}
	return keys
}

// Compaction leaves holes, batches without records, and at last nothing before
// the newest segment: what is left is delivered, and commits pass the holes.
func TestCompactionHoles(t *testing.T) {
	topic, group := "holes", "holes-group"
	compacted(t, topic)
	// The name "" stands for the broker: the cleaner looks every 15 s otherwise.
	alter(t, "", map[string]string{"log.cleaner.backoff.ms": "100"})
	defer alter(t, "", map[string]string{"log.cleaner.backoff.ms": ""})
	c := independent(t)
	segment := func(rs ...*kgo.Record) {
		time.Sleep(60 * time.Millisecond) // so that the next write begins a segment
		put(t, c, rs...)
	}
	record := func(key string, value []byte) *kgo.Record {
		return &kgo.Record{Topic: topic, Key: []byte(key), Value: value}
	}
	for i := range 10 {
		var batch []*kgo.Record
		for k := range 10 {
			batch = append(batch, record(fmt.Sprint("k", k), []byte("ok")))
		}
		batch = append(batch, record(fmt.Sprint("keep", i), []byte("ok")))
		segment(batch...)
	}
	segment(record("last", []byte("ok"))) // closes the segment before it
	log := filepath.Join(t.TempDir(), "probe.log")
	const all = 10*11 + 1
	until(t, "there are holes", func() bool { return len(keysLeft(t, topic)) == 10+10+1 })
	left := keysLeft(t, topic)
	d := start(t, topic, group, log, "--retry", "1s", "--order", "partition")
	tail := end(t, topic)
	if tail < all {
		t.Fatalf("the topic ends at %d", tail)
	}
	until(t, "the end is committed", func() bool { return at(t, group, topic) == tail })
	if n := d.metric("kconsume_offsets_lost_total"); n > 0 {
		t.Errorf("%v offsets are counted as lost: holes are none", n)
	}
	d.stop()
	var got []string
	for _, one := range deliveries(t, log) {
		_, offset := origin(t, one.id)
		got = append(got, fmt.Sprintf("%s@%d", one.key[1:], offset))
	}
	if !slices.Equal(got, left) {
		t.Errorf("delivered %v, want %v", got, left)
	}

	// While nothing runs, all that it had not read is deleted but the newest segment.
	for range 5 {
		segment(record("void", []byte("ok")), record("void2", []byte("ok")))
	}
	segment(record("void", nil), record("void2", nil))
	segment(record("end", []byte("ok")))
	until(t, "the tail is empty", func() bool {
		for _, r := range keysLeft(t, topic) {
			if r[:4] == "void" {
				segment(record("end", []byte("ok")))
				return false
			}
		}
		return true
	})
	before := len(deliveries(t, log))
	d = start(t, topic, group, log, "--retry", "1s", "--order", "partition")
	tail = end(t, topic)
	until(t, "the end is committed", func() bool { return at(t, group, topic) == tail })
	d.stop()
	for _, one := range deliveries(t, log)[before:] {
		if one.key != "=end" {
			t.Errorf("%s was delivered, key %s", one.id, one.key)
		}
	}
}

// Records before the committed offset of a group are deleted together with some
// behind it, while it is stopped: it goes on as --offset-lost says, and tells.
func TestLogStartMoves(t *testing.T) {
	for _, policy := range []string{"earliest", "latest", "fail"} {
		t.Run(policy, func(t *testing.T) {
			topic, group := "start-"+policy, "start-group-"+policy
			createTopic(t, topic, 1)
			c := independent(t)
			put10 := func(word string) {
				for i := range 10 {
					put(t, c, &kgo.Record{Topic: topic, Key: fmt.Append(nil, word, i), Value: []byte("ok")})
				}
			}
			put10("read")
			log := filepath.Join(t.TempDir(), "probe.log")
			flags := []string{"--retry", "1s", "--offset-lost", policy}
			d := start(t, topic, group, log, flags...)
			until(t, "ten are committed", func() bool { return at(t, group, topic) == 10 })
			d.stop()
			put10("gone")
			put10("left")
			offsets := kadm.Offsets{}
			offsets.AddOffset(topic, 0, 20, -1)
			if res, err := kadm.NewClient(c).DeleteRecords(t.Context(), offsets); err != nil || res.Error() != nil {
				t.Fatal(err, res.Error())
			}

			d = start(t, topic, group, log, flags...)
			lost := fmt.Sprintf("offset 10 of %s/0 no longer exists", topic)
			if policy == "fail" {
				<-d.done
				exit, ok := errors.AsType[*exec.ExitError](d.err)
				if !ok || exit.ExitCode() != 78 || !d.said(lost) || !d.said("--offset-lost earliest or latest") {
					t.Errorf("it ended with %v", d.err)
				}
				if o := at(t, group, topic); o != 10 {
					t.Errorf("%d is committed, want 10", o)
				}
				return
			}
			until(t, "the end is committed", func() bool { return at(t, group, topic) == 30 })
			if n := d.metric("kconsume_offsets_lost_total", `topic="`+topic+`"`); n != 1 || !d.said(lost) || !d.said("going_on_from="+policy) {
				t.Errorf("%v offsets are counted as lost", n)
			}
			put(t, c, &kgo.Record{Topic: topic, Key: []byte("new"), Value: []byte("ok")})
			until(t, "it goes on", func() bool { return at(t, group, topic) == 31 })
			d.stop()
			want := 10 + 10 + 1
			if policy == "latest" {
				want = 10 + 1
			}
			if got := deliveries(t, log); len(got) != want {
				t.Errorf("%d deliveries, want %d", len(got), want)
			}
		})
	}
}

// A process that is killed as soon as it has joined has fixed where its group
// begins: what comes while nothing runs is read.
func TestKilledAtTheStart(t *testing.T) {
	for name, where := range map[string]func() string{
		"latest": func() string { return "latest" },
		"time":   func() string { return time.Now().UTC().Format(time.RFC3339Nano) },
	} {
		t.Run(name, func(t *testing.T) {
			topic, group := "begin-"+name, "begin-group-"+name
			createTopic(t, topic, 2)
			c := independent(t)
			put10 := func(word string) {
				for i := range 10 {
					put(t, c, &kgo.Record{Topic: topic, Partition: int32(i % 2), Key: fmt.Append(nil, word, i), Value: []byte("ok")})
				}
			}
			put10("before")
			time.Sleep(2 * time.Millisecond) // timestamps are in milliseconds
			log := filepath.Join(t.TempDir(), "probe.log")
			d := start(t, topic, group, log, "--start", where())
			until(t, "it has joined", func() bool { return d.said("joined the group") })
			d.kill()
			put10("meanwhile")
			d = start(t, topic, group, log, "--start", where())
			until(t, "the lag is zero", func() bool {
				return lag(t, group, []string{topic}, 2) == 0 && len(deliveries(t, log)) >= 10
			})
			d.stop()
			seen := map[string]bool{}
			for _, one := range deliveries(t, log) {
				seen[one.key] = true
			}
			for i := range 10 {
				if !seen[fmt.Sprint("=meanwhile", i)] {
					t.Errorf("record %d, which came while nothing ran, was passed over", i)
				}
				if seen[fmt.Sprint("=before", i)] {
					t.Errorf("record %d came before the start", i)
				}
			}
		})
	}
}
