package daemon_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/kconsume/kconsume/test/kcat"
)

// Two groups on one topic share its tiers: neither handles the other's retries,
// and neither lags behind on them.
func TestTwoGroups(t *testing.T) {
	topic := "shared"
	createTopic(t, topic, 2)
	var sent []kcat.Record
	for i := range 50 {
		word := "ok"
		if i%5 == 0 {
			word = "fail 1"
		}
		sent = append(sent, kcat.Record{Key: fmt.Append(nil, i), Value: []byte(word)})
	}
	kcat.Produce(t, broker.Cluster(t).Bootstrap(), topic, 0, sent)
	stages := []string{topic, topic + ".retry.500ms"}
	dir := t.TempDir()
	var daemons []*daemon
	for _, g := range []string{"one", "two"} {
		daemons = append(daemons, start(t, topic, g, filepath.Join(dir, g), "--retry", "500ms"))
	}
	for _, g := range []string{"one", "two"} {
		until(t, g+" has handled all", func() bool { return len(deliveries(t, filepath.Join(dir, g))) >= 60 && lag(t, g, stages, 2) == 0 })
	}
	for _, d := range daemons {
		d.stop()
	}
	for _, g := range []string{"one", "two"} {
		seen := map[string]int{}
		for _, one := range deliveries(t, filepath.Join(dir, g)) {
			seen[fmt.Sprint(one.id, " attempt ", one.attempt)]++
		}
		if len(seen) != 60 {
			t.Errorf("group %s had %d deliveries, want 50 and 10 retries", g, len(seen))
		}
		for what, n := range seen {
			if n != 1 {
				t.Errorf("group %s handled %s %d times", g, what, n)
			}
		}
	}
	if n := len(kcat.Consume(t, broker.Cluster(t).Bootstrap(), topic+".retry.500ms")); n != 20 {
		t.Errorf("the tier has %d records, want 10 of each group", n)
	}
}
