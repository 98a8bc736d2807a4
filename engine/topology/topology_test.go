package topology

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "add new cases to the golden file of names")

func config(topics []string, retry ...time.Duration) Config {
	return Config{Group: "billing", Topics: topics, Retry: retry, RetryTopic: DefaultRetryTopic, DLQTopic: DefaultDLQTopic}
}

// The names of a release are the names of every later one: records wait in
// these topics. Lines may be added to the golden file, never changed.
func TestNamesNeverChange(t *testing.T) {
	one := []string{"orders.confirmed"}
	group := config(one, time.Minute)
	group.RetryTopic, group.DLQTopic = "{topic}.{group}.retry.{delay}", "{group}-dlq-{topic}"
	fixed := config(one, 5*time.Second)
	fixed.RetryTopic = "{topic}.retry"
	var got bytes.Buffer
	for _, c := range []struct {
		flags string
		cfg   Config
	}{
		{"--retry 5s,30s", config(one, 5*time.Second, 30*time.Second)},
		{"--retry 60s", config(one, 60*time.Second)},
		{"--retry 1m", config(one, time.Minute)},
		{"--retry 60000ms", config(one, 60000*time.Millisecond)},
		{"--retry 90s", config(one, 90*time.Second)},
		{"--retry 1h30m", config(one, 90*time.Minute)},
		{"--retry 500ms", config(one, 500*time.Millisecond)},
		{"--retry 1.5s", config(one, 1500*time.Millisecond)},
		{"--retry 2h", config(one, 2*time.Hour)},
		{"--retry 24h", config(one, 24*time.Hour)},
		{"--retry 30s,5s", config(one, 30*time.Second, 5*time.Second)},
		{"--retry ''", config(one)},
		{"--topic a --topic B_2-c --retry 1s", config([]string{"a", "B_2-c"}, time.Second)},
		{"--retry-topic {topic}.{group}.retry.{delay} --dlq-topic {group}-dlq-{topic} --retry 1m", group},
		{"--retry-topic {topic}.retry --retry 5s", fixed},
	} {
		top, err := New(c.cfg)
		if err != nil {
			t.Fatalf("%s: %v", c.flags, err)
		}
		fmt.Fprintf(&got, "%s\n", c.flags)
		for _, l := range top.Lines {
			for _, s := range l.Stages {
				fmt.Fprintf(&got, "  %-12s %s\n", s.Name, s.Topic)
			}
			fmt.Fprintf(&got, "  %-12s %s\n", "dlq", l.DLQ)
		}
	}
	golden := filepath.Join("testdata", "names.golden")
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("names changed; got\n%s\nwant\n%s", got.Bytes(), want)
	}
}

func TestRefusals(t *testing.T) {
	with := func(f func(*Config)) Config {
		c := config([]string{"orders.confirmed"}, 5*time.Second, 30*time.Second)
		f(&c)
		return c
	}
	for _, c := range []struct {
		name string
		cfg  Config
		want []string
	}{
		{"equal tiers", config([]string{"t"}, 5*time.Second, 5*time.Second, 30*time.Second), []string{"--retry", "tiers 1 and 2", "5s", "--max-attempts"}},
		{"equal tiers in two spellings", config([]string{"t"}, time.Second, time.Minute, 60*time.Second), []string{"--retry", "tiers 2 and 3", "1m", "--max-attempts"}},
		{"zero", config([]string{"t"}, time.Second, 0), []string{"--retry", "tier 2", "longer than zero"}},
		{"negative", config([]string{"t"}, -time.Second), []string{"--retry", "tier 1", "-1s", "longer than zero"}},
		{"below a millisecond", config([]string{"t"}, 1500*time.Microsecond), []string{"--retry", "tier 1", "1ms"}},
		{"one name for two tiers", with(func(c *Config) { c.RetryTopic = "{topic}.retry" }), []string{"retry.5s", "retry.30s", "orders.confirmed.retry", "--retry-topic"}},
		{"the DLQ is the main topic", with(func(c *Config) { c.DLQTopic = "{topic}" }), []string{"main", "DLQ", "--dlq-topic"}},
		{"the DLQ is a tier", with(func(c *Config) { c.DLQTopic = "{topic}.retry.5s" }), []string{"retry.5s", "DLQ", "--dlq-topic"}},
		{"a tier is the replay stage", with(func(c *Config) { c.RetryTopic, c.Retry = "{topic}.replay", c.Retry[:1] }), []string{"replay", "retry.5s", "--retry-topic"}},
		{"unknown placeholder", with(func(c *Config) { c.RetryTopic = "{topic}.{nope}" }), []string{"--retry-topic", "{nope}", "{delay}"}},
		{"delay in the DLQ's name", with(func(c *Config) { c.DLQTopic = "{topic}.{delay}" }), []string{"--dlq-topic", "{delay}"}},
		{"unclosed placeholder", with(func(c *Config) { c.RetryTopic = "{topic" }), []string{"--retry-topic", "{topic"}},
		{"too long", config([]string{strings.Repeat("a", 245)}, 5*time.Second), []string{"254 characters", "249"}},
		{"too long only as the replay stage", config([]string{strings.Repeat("a", 244)}), []string{"replay", "251 characters", "249"}},
		{"a topic is another's tier", config([]string{"orders", "orders.retry.5s"}, 5*time.Second), []string{"orders.retry.5s", "retry.5s stage of orders", "main stage of orders.retry.5s"}},
		{"a topic twice", config([]string{"a", "b", "a"}, time.Second), []string{"--topic", "topics 1 and 3", `"a"`}},
		{"names that differ in . and _", config([]string{"a.b", "a_b"}), []string{"a.b", "a_b", ". and _ only"}},
		{"a topic's character", config([]string{"a", "b/c"}), []string{"--topic", "topic 2", "position 2"}},
		{"an empty topic", config([]string{""}), []string{"--topic", "topic 1"}},
		{"a group's character in a name", with(func(c *Config) { c.Group, c.RetryTopic = "my group", "{group}.{topic}.{delay}" }), []string{"--retry-topic", "position 3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := New(c.cfg)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is not one line", err)
			}
		})
	}
}

func TestStagesOfALine(t *testing.T) {
	top, err := New(config([]string{"o"}, 30*time.Second, 5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	l := top.Lines[0]
	want := []Stage{
		{Name: "main", Topic: "o"},
		{Name: "retry.30s", Topic: "o.retry.30s", Delay: 30 * time.Second, Tier: 1},
		{Name: "retry.5s", Topic: "o.retry.5s", Delay: 5 * time.Second, Tier: 2},
		{Name: "replay", Topic: "o.replay"},
	}
	if !slices.Equal(l.Stages, want) {
		t.Errorf("stages %v, want %v", l.Stages, want)
	}
	if !slices.Equal(l.Tiers(), want[1:3]) {
		t.Errorf("tiers %v", l.Tiers())
	}
	if got, want := top.Stages(), []string{"o", "o.retry.30s", "o.retry.5s", "o.replay"}; !slices.Equal(got, want) {
		t.Errorf("Stages() %v, want %v", got, want)
	}
	if got, want := top.Names(), []string{"o", "o.retry.30s", "o.retry.5s", "o.replay", "o.dlq", "o.dlq.state"}; !slices.Equal(got, want) {
		t.Errorf("Names() %v, want %v", got, want)
	}
}

// Whatever is asked for, the names that come out are legal and apart.
func FuzzNew(f *testing.F) {
	f.Add("g", "orders", "orders.retry.5s", int64(5000), int64(30000), DefaultRetryTopic, DefaultDLQTopic)
	f.Add("my group", "a.b", "a_b", int64(0), int64(-1), "{topic}.{", "{}}")
	f.Fuzz(func(t *testing.T, group, a, b string, d1, d2 int64, retry, dlq string) {
		top, err := New(Config{
			Group: group, Topics: []string{a, b},
			Retry:      []time.Duration{time.Duration(d1) * time.Millisecond, time.Duration(d2) * time.Millisecond},
			RetryTopic: retry, DLQTopic: dlq,
		})
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, n := range top.Names() {
			if err := CheckName(n); err != nil {
				t.Errorf("accepted %v", err)
			}
			if seen[Fold(n)] {
				t.Errorf("%q collides", n)
			}
			seen[Fold(n)] = true
		}
	})
}
