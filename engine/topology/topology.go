// Package topology derives a consumer's topics: the stages that its records
// pass and the dead letter queue they may end in. It is pure: what exists on a
// cluster is told to Plan, which answers what is to be done about it.
package topology

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Templates of the topics beside a main topic. {topic} is the main topic's
// name, {delay} the tier's delay in its one spelling, {group} the consumer group.
const (
	DefaultRetryTopic = "{topic}.retry.{delay}"
	DefaultDLQTopic   = "{topic}.dlq"
	replayTopic       = "{topic}.replay"
	stateSuffix       = ".state" // of a DLQ's name
)

// MaxName is the longest name Kafka gives a topic, in bytes.
const MaxName = 249

// Config is what the topics are derived from.
type Config struct {
	Group      string
	Topics     []string
	Retry      []time.Duration
	RetryTopic string
	DLQTopic   string
}

// Stage is a topic whose records are delivered: the main topic, a retry tier,
// or the replay topic. They differ in their delay only.
type Stage struct {
	Name  string // "main", "retry.5s", "replay"
	Topic string
	Delay time.Duration // 0 for main and replay
	Tier  int           // 1 for the first tier, 0 for main, replay and leftovers
	// Leftover: it was a tier under other settings. Its records are delivered
	// when they are due, and nothing new is written to it.
	Leftover bool
}

// Line is one main topic with everything that its records may pass.
type Line struct {
	Topic  string
	Stages []Stage // main, tiers in the order of --retry, replay
	DLQ    string
}

// State is the topic that keeps what became of the line's dead letters.
func (l *Line) State() string { return l.DLQ + stateSuffix }

// Tiers are the line's retry tiers, the first at index 0.
func (l *Line) Tiers() []Stage { return l.Stages[1 : len(l.Stages)-1] }

// StageTopics are the topics of the line's stages.
func (l *Line) StageTopics() []string {
	var names []string
	for _, s := range l.Stages {
		names = append(names, s.Topic)
	}
	return names
}

// Topology is every line of a consumer.
type Topology struct {
	Lines []Line

	group, retryTopic string // what leftover tiers are told by
}

// Stages are the topics the consumer reads, of every line.
func (t *Topology) Stages() []string {
	var names []string
	for _, l := range t.Lines {
		names = append(names, l.StageTopics()...)
	}
	return names
}

// New derives the topics of a consumer, or says what is wrong with them and where.
func New(c Config) (*Topology, error) {
	if err := checkDelays(c.Retry); err != nil {
		return nil, err
	}
	t := &Topology{group: c.Group, retryTopic: c.RetryTopic}
	for i, topic := range c.Topics {
		if j := slices.Index(c.Topics[:i], topic); j >= 0 {
			return nil, fmt.Errorf("--topic: topics %d and %d are both %q: name each topic once", j+1, i+1, topic)
		}
		if err := CheckName(topic); err != nil {
			return nil, fmt.Errorf("--topic: topic %d: %w", i+1, err)
		}
		l, err := newLine(c, topic)
		if err != nil {
			return nil, err
		}
		t.Lines = append(t.Lines, l)
	}
	return t, t.checkNames()
}

func newLine(c Config, topic string) (Line, error) {
	l := Line{Topic: topic, Stages: []Stage{{Name: "main", Topic: topic}}}
	var err error
	for i, d := range c.Retry {
		s := Stage{Name: "retry." + FormatDelay(d), Delay: d, Tier: i + 1}
		if s.Topic, err = expand("--retry-topic", c.RetryTopic, c.Group, topic, FormatDelay(d)); err != nil {
			return l, err
		}
		l.Stages = append(l.Stages, s)
	}
	l.Stages = append(l.Stages, Stage{Name: "replay", Topic: strings.ReplaceAll(replayTopic, "{topic}", topic)})
	l.DLQ, err = expand("--dlq-topic", c.DLQTopic, c.Group, topic, "")
	return l, err
}

// checkDelays refuses tiers that cannot be told apart or do not wait.
func checkDelays(ds []time.Duration) error {
	for i, d := range ds {
		switch {
		case d <= 0:
			return fmt.Errorf("--retry: tier %d is %v: a delay must be longer than zero", i+1, d)
		case d%time.Millisecond != 0:
			return fmt.Errorf("--retry: tier %d is %v: the smallest unit is 1ms", i+1, d)
		}
		if j := slices.Index(ds[:i], d); j >= 0 {
			return fmt.Errorf("--retry: tiers %d and %d are both %s: to repeat the last tier raise --max-attempts", j+1, i+1, FormatDelay(d))
		}
	}
	return nil
}

// FormatDelay is the one spelling of a delay: its largest whole unit among ms,
// s, m and h, so that 60s, 1m and 60000ms all name the same topic.
func FormatDelay(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if d%u.unit == 0 {
			return fmt.Sprintf("%d%s", d/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%dms", d/time.Millisecond)
}

// expand fills a name template and holds the name against Kafka's rules. flag
// is named in errors.
func expand(flag, template, group, topic, delay string) (string, error) {
	name, err := fill(flag, template, group, topic, delay)
	if err != nil {
		return "", err
	}
	if err := CheckName(name); err != nil {
		return "", fmt.Errorf("%s %q: %w", flag, template, err)
	}
	return name, nil
}

func fill(flag, template, group, topic, delay string) (string, error) {
	values := map[string]string{"topic": topic, "group": group}
	if delay != "" {
		values["delay"] = delay
	}
	var b strings.Builder
	rest := template
	for {
		before, after, found := strings.Cut(rest, "{")
		b.WriteString(before)
		if !found {
			break
		}
		name, tail, closed := strings.Cut(after, "}")
		value, known := values[name]
		if !closed || !known {
			return "", fmt.Errorf("%s %q: unknown placeholder {%s}: use {topic}, {group}%s", flag, template, name, delayHint(delay))
		}
		b.WriteString(value)
		rest = tail
	}
	return b.String(), nil
}

func delayHint(delay string) string {
	if delay == "" {
		return ""
	}
	return " or {delay}"
}

// CheckName holds a name against Kafka's own rules.
func CheckName(name string) error {
	if name == "" || name == "." || name == ".." {
		return fmt.Errorf("%q is no topic name", name)
	}
	if len(name) > MaxName {
		return fmt.Errorf("the topic name %.40s… has %d characters, Kafka allows %d: shorten the topic or the template", name, len(name), MaxName)
	}
	if i := strings.IndexFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
	}); i >= 0 {
		return fmt.Errorf("the topic name %q has a character at position %d that Kafka does not allow (letters, digits, . _ -)", name, i+1)
	}
	return nil
}

// checkNames refuses two uses of one name, or of two names that Kafka's
// metrics cannot tell apart because they differ in . and _ only.
func (t *Topology) checkNames() error {
	type use struct{ name, what string }
	seen := map[string]use{}
	var errs []error
	add := func(name, what string) {
		if err := CheckName(name); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
			return
		}
		folded := Fold(name)
		first, taken := seen[folded]
		switch {
		case !taken:
			seen[folded] = use{name, what}
		case first.name == name:
			errs = append(errs, fmt.Errorf("%s and %s are both named %s: change --retry-topic, --dlq-topic or --topic", first.what, what, name))
		default:
			errs = append(errs, fmt.Errorf("%s (%s) and %s (%s) differ in . and _ only, which Kafka does not allow: rename one", first.name, first.what, name, what))
		}
	}
	for _, l := range t.Lines {
		for _, s := range l.Stages {
			add(s.Topic, "the "+s.Name+" stage of "+l.Topic)
		}
		add(l.DLQ, "the DLQ of "+l.Topic)
		add(l.State(), "the state of the DLQ of "+l.Topic)
	}
	if len(errs) > 0 {
		return errs[0]
	}
	return nil
}

// Fold is the form in which Kafka compares names: two topics whose names fold
// to the same cannot both exist.
func Fold(name string) string { return strings.ReplaceAll(name, ".", "_") }
