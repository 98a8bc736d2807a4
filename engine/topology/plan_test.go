package topology

import (
	"maps"
	"strings"
	"testing"
	"time"
)

// mainTopic is a main topic whose settings differ from every default.
func mainTopic() Topic {
	return Topic{Partitions: 6, Replication: 3, Configs: map[string]string{
		CleanupPolicy: "delete", RetentionMS: "86400000", MinInsyncReplicas: "2",
		MaxMessageBytes: "2000000", TimestampType: "CreateTime",
	}}
}

func tierTopic() Topic {
	t := mainTopic()
	t.Configs[RetentionMS] = "604800000"
	t.Configs[MaxMessageBytes] = "2065536"
	return t
}

func stateTopic() Topic {
	return Topic{Partitions: 1, Replication: 3, Configs: map[string]string{
		CleanupPolicy: "compact", MinCompactionLag: "86400000", MinInsyncReplicas: "2", TimestampType: "LogAppendTime",
	}}
}

func topology(t *testing.T, retry ...time.Duration) *Topology {
	t.Helper()
	top, err := New(config([]string{"o"}, retry...))
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// full is a cluster that has everything.
func full(top *Topology) Actual {
	a := Actual{Topics: map[string]Topic{}, Names: append(top.Names(), "other")}
	for _, l := range top.Lines {
		for _, b := range l.beside() {
			a.Topics[b.name] = tierTopic()
			if b.state {
				a.Topics[b.name] = stateTopic()
			}
		}
		a.Topics[l.Topic] = mainTopic()
	}
	return a
}

func without(a Actual, names ...string) Actual {
	for _, n := range names {
		delete(a.Topics, n)
		for i := range a.Names {
			if a.Names[i] == n {
				a.Names[i] = "unrelated"
			}
		}
	}
	return a
}

func TestPlanCreatesWhatIsMissing(t *testing.T) {
	top := topology(t, 5*time.Second, 48*time.Hour)
	plan := top.Plan(Actual{Topics: map[string]Topic{"o": mainTopic()}, Names: []string{"o"}}, Policy{Create: true})
	if len(plan.Problems) > 0 || len(plan.Warnings) > 0 {
		t.Fatalf("problems %v, warnings %v", plan.Problems, plan.Warnings)
	}
	common := map[string]string{CleanupPolicy: "delete", MinInsyncReplicas: "2", MaxMessageBytes: "2065536", TimestampType: "LogAppendTime"}
	want := []struct{ topic, role, retention string }{
		{"o.retry.5s", "retry.5s", "604800000"},
		{"o.retry.48h", "retry.48h", "691200000"}, // four delays
		{"o.replay", "replay", "604800000"},
		{"o.dlq", "dlq", "-1"},
	}
	if len(plan.Changes) != len(want)+1 {
		t.Fatalf("%d changes: %v", len(plan.Changes), plan.Changes)
	}
	state := plan.Changes[len(want)]
	if state.Action != Create || state.Topic != "o.dlq.state" || state.Role != "state" || state.Partitions != 1 || state.Replication != 3 || !maps.Equal(state.Configs, stateTopic().Configs) {
		t.Errorf("the state topic: %+v", state)
	}
	for i, w := range want {
		c := plan.Changes[i]
		if c.Action != Create || c.Topic != w.topic || c.Role != w.role || c.Of != "o" || c.Partitions != 6 || c.Replication != 3 {
			t.Errorf("change %d: %+v, want %+v", i, c, w)
		}
		configs := maps.Clone(common)
		configs[RetentionMS] = w.retention
		if !maps.Equal(c.Configs, configs) {
			t.Errorf("%s: configs %v, want %v", c.Topic, c.Configs, configs)
		}
	}
}

func TestPlanRetention(t *testing.T) {
	for _, c := range []struct {
		name, main string
		dlq        time.Duration
		tier, dead string
	}{
		{"main's is shorter", "3600000", 0, "604800000", "-1"},
		{"main's is longer", "1209600000", 0, "1209600000", "-1"},
		{"main's is unlimited", "-1", 0, "-1", "-1"},
		{"of the DLQ", "3600000", 30 * 24 * time.Hour, "604800000", "2592000000"},
	} {
		m := mainTopic()
		m.Configs[RetentionMS] = c.main
		plan := topology(t, time.Second).Plan(Actual{Topics: map[string]Topic{"o": m}}, Policy{Create: true, DLQRetention: c.dlq})
		got := map[string]string{}
		for _, ch := range plan.Changes {
			got[ch.Role] = ch.Configs[RetentionMS]
		}
		if got["retry.1s"] != c.tier || got["replay"] != c.tier || got["dlq"] != c.dead {
			t.Errorf("%s: %v, want tier %s, dlq %s", c.name, got, c.tier, c.dead)
		}
	}
}

func TestPlanMaxMessageBytesStaysInRange(t *testing.T) {
	m := mainTopic()
	m.Configs[MaxMessageBytes] = "2147483647"
	plan := topology(t).Plan(Actual{Topics: map[string]Topic{"o": m}}, Policy{Create: true})
	for _, c := range plan.Changes {
		if got := c.Configs[MaxMessageBytes]; got != "2147483647" && c.Role != "state" {
			t.Errorf("%s: %s", c.Topic, got)
		}
	}
}

func TestPlanNothingToDo(t *testing.T) {
	top := topology(t, 5*time.Second)
	for _, create := range []bool{true, false} {
		if p := top.Plan(full(top), Policy{Create: create}); len(p.Changes)+len(p.Problems)+len(p.Warnings) > 0 {
			t.Errorf("create=%v: %+v", create, p)
		}
	}
}

func TestPlanGrows(t *testing.T) {
	top := topology(t, 5*time.Second)
	a := full(top)
	for _, n := range []string{"o.retry.5s", "o.replay", "o.dlq"} {
		small := a.Topics[n]
		small.Partitions = 4
		a.Topics[n] = small
	}
	p := top.Plan(a, Policy{Create: true})
	if len(p.Changes) != 3 || len(p.Problems) > 0 {
		t.Fatalf("%+v", p)
	}
	for _, c := range p.Changes {
		if c.Action != Grow || c.Partitions != 6 || c.Before != 4 || c.Configs != nil {
			t.Errorf("%+v", c)
		}
	}
}

func TestPlanProblems(t *testing.T) {
	top := topology(t, 5*time.Second)
	change := func(name string, f func(*Topic)) Actual {
		a := full(top)
		x := a.Topics[name]
		x.Configs = maps.Clone(x.Configs)
		f(&x)
		a.Topics[name] = x
		return a
	}
	set := func(name, setting, value string) Actual {
		return change(name, func(x *Topic) { x.Configs[setting] = value })
	}
	beside := func(a Actual, name string) Actual {
		a.Names = append(a.Names, name)
		return a
	}
	for _, c := range []struct {
		name   string
		actual Actual
		create bool
		want   []string
	}{
		{"main is missing", without(full(top), "o"), true, []string{"topic o:", "never created", "kafka-topics.sh --bootstrap-server b1:9092,b2:9092 --create --topic o"}},
		{"a tier is missing, creation off", without(full(top), "o.retry.5s"), false, []string{"topic o.retry.5s:", "--create-topics", "kconsume topics apply", "--create --topic o.retry.5s --partitions 6 --replication-factor 3 --config cleanup.policy=delete"}},
		{"compacted", set("o.retry.5s", CleanupPolicy, "compact"), true, []string{"topic o.retry.5s:", "cleanup.policy=compact", "kafka-configs.sh", "--entity-name o.retry.5s --add-config cleanup.policy=delete"}},
		{"compacted and deleted", set("o.dlq", CleanupPolicy, "compact,delete"), true, []string{"topic o.dlq:", "cleanup.policy=compact,delete"}},
		{"deletes before due", set("o.retry.5s", RetentionMS, "2000"), true, []string{"topic o.retry.5s:", "retention.ms=2000", "5s", "--add-config retention.ms=604800000"}},
		{"fewer partitions, creation off", change("o.replay", func(x *Topic) { x.Partitions = 2 }), false, []string{"topic o.replay:", "2 partitions", "6", "--alter --topic o.replay --partitions 6"}},
		{"the state is deleted by age", set("o.dlq.state", CleanupPolicy, "delete"), true, []string{"topic o.dlq.state:", "cleanup.policy=delete", "--entity-name o.dlq.state --add-config cleanup.policy=compact"}},
		{"the state is missing, creation off", without(full(top), "o.dlq.state"), false, []string{"topic o.dlq.state:", "--create --topic o.dlq.state --partitions 1 --replication-factor 3 --config cleanup.policy=compact"}},
		{"collision of a tier", beside(without(full(top), "o.retry.5s"), "o_retry.5s"), true, []string{"topic o.retry.5s:", "o_retry.5s", "--retry-topic", "--delete --topic o_retry.5s"}},
		{"collision of the replay stage", beside(without(full(top), "o.replay"), "o_replay"), true, []string{"topic o.replay:", "o_replay", "--delete --topic o_replay"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := top.Plan(c.actual, Policy{Create: c.create, Bootstrap: "b1:9092,b2:9092"})
			if len(p.Problems) != 1 || len(p.Changes) > 0 {
				t.Fatalf("%d problems: %v; changes %v", len(p.Problems), p.Problems, p.Changes)
			}
			for _, w := range c.want {
				if !strings.Contains(p.Problems[0].Error(), w) {
					t.Errorf("%q does not say %q", p.Problems[0], w)
				}
			}
		})
	}
}

// A compacted main topic is the user's; ours beside it are not compacted.
func TestPlanCompactedMain(t *testing.T) {
	m := mainTopic()
	m.Configs[CleanupPolicy] = "compact"
	p := topology(t, time.Second).Plan(Actual{Topics: map[string]Topic{"o": m}}, Policy{Create: true})
	if len(p.Problems) > 0 {
		t.Fatal(p.Problems)
	}
	for _, c := range p.Changes {
		if c.Configs[CleanupPolicy] != "delete" && c.Role != "state" {
			t.Errorf("%s: %s", c.Topic, c.Configs[CleanupPolicy])
		}
	}
}

func TestPlanWarnings(t *testing.T) {
	top := topology(t, 5*time.Second)
	a := full(top)
	weak := tierTopic()
	weak.Replication = 1
	weak.Configs[MinInsyncReplicas] = "1"
	weak.Configs[MaxMessageBytes] = "1048588"
	a.Topics["o.retry.5s"] = weak
	state := stateTopic()
	state.Partitions = 3
	state.Configs[MinCompactionLag] = "0"
	a.Topics["o.dlq.state"] = state
	p := top.Plan(a, Policy{Create: true})
	if len(p.Problems) > 0 || len(p.Changes) > 0 || len(p.Warnings) != 5 {
		t.Fatalf("%+v", p)
	}
	for i, w := range []string{"min.insync.replicas=1", "max.message.bytes=1048588", "1 replicas", "min.compaction.lag.ms=0", "3 partitions"} {
		if !strings.Contains(p.Warnings[i], w) {
			t.Errorf("%q does not say %q", p.Warnings[i], w)
		}
	}
}
