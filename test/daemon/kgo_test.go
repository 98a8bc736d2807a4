package daemon_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// independent is a client that shares no code with ours, with transactions and
// administration that kcat does not have.
func independent(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(broker.Cluster(t).Bootstrap()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func put(t *testing.T, c *kgo.Client, rs ...*kgo.Record) {
	t.Helper()
	if err := c.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// end is where a partition ends: behind markers, too.
func end(t *testing.T, topic string) int64 {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(broker.Cluster(t).Bootstrap()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ends, err := kadm.NewClient(c).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	o, ok := ends.Lookup(topic, 0)
	if !ok || o.Err != nil {
		t.Fatalf("end of %s: %v", topic, o.Err)
	}
	return o.Offset
}

// at is what a group has committed of partition 0.
func at(t *testing.T, group, topic string) int64 {
	t.Helper()
	return committedOffsets(t, group, []string{topic}, 1)[tp{topic, 0}]
}
