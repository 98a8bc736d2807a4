package topology

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The topic settings that are read and written.
const (
	CleanupPolicy     = "cleanup.policy"
	RetentionMS       = "retention.ms"
	MinInsyncReplicas = "min.insync.replicas"
	MaxMessageBytes   = "max.message.bytes"
	TimestampType     = "message.timestamp.type"
	MinCompactionLag  = "min.compaction.lag.ms"
)

// Settings are all of them: what an Actual's topics carry.
func Settings() []string {
	return []string{CleanupPolicy, RetentionMS, MinInsyncReplicas, MaxMessageBytes, TimestampType, MinCompactionLag}
}

const (
	// minRetention is the least retention of a tier: a record that waits must
	// outlive a long stop of its consumers.
	minRetention = 7 * 24 * time.Hour
	// retentionDelays is how many times a tier's delay its retention is at least.
	retentionDelays = 4
	// headerRoom is what our headers may add to a record of the main topic.
	headerRoom = 64 << 10
	// claimsKept is how long the state topic keeps all entries of a key, not
	// only the last one: which of two claims came first must be seen until both
	// have ended.
	claimsKept = 24 * time.Hour
	unlimited  = "-1"
)

// Topic is a topic as a cluster has it.
type Topic struct {
	Partitions  int
	Replication int
	Configs     map[string]string // effective values of Settings
}

// Actual is what exists on a cluster.
type Actual struct {
	Topics map[string]Topic // those of the topology that exist
	Names  []string         // every topic's name, as far as we may see them
}

// Policy is what a plan may do.
type Policy struct {
	// Create allows new topics and new partitions. Main topics are never created.
	Create bool
	// Grow allows new partitions alone.
	Grow         bool
	DLQRetention time.Duration // of a DLQ that is created, 0 = unlimited
	Bootstrap    string        // host:port list named in repair commands
}

// Action is what a change does.
type Action string

const (
	Create Action = "create" // a topic that is missing
	Grow   Action = "grow"   // a topic with fewer partitions than its main topic
)

// Change is one thing to do to a cluster.
type Change struct {
	Action      Action            `json:"action"`
	Topic       string            `json:"topic"`
	Of          string            `json:"of"`   // the main topic
	Role        string            `json:"role"` // "retry.5s", "replay", "dlq"
	Partitions  int               `json:"partitions"`
	Before      int               `json:"before,omitempty"`      // Grow: partitions now
	Replication int               `json:"replication,omitempty"` // Create
	Configs     map[string]string `json:"configs,omitempty"`     // Create
}

// Plan is what separates a cluster from a topology. Nothing may be applied
// while there are problems.
type Plan struct {
	Changes  []Change
	Problems []error  // of type *Problem
	Warnings []string // one line each: it works, but not as well as it should
}

// Problem is why a topic cannot work. Its text is one line: what, where, and
// the command that mends it.
type Problem struct {
	Topic string
	Kind  ProblemKind
	text  string
}

func (p *Problem) Error() string { return p.text }

// ProblemKind is the bounded word for a Problem.
type ProblemKind string

const (
	Missing      ProblemKind = "missing"
	NameTaken    ProblemKind = "name_taken" // another topic's name differs in . and _ only
	Compacted    ProblemKind = "compacted"
	NotCompacted ProblemKind = "not_compacted"
	Retention    ProblemKind = "retention" // shorter than the delay
	TooFew       ProblemKind = "partitions"
)

// beside is a topic beside a main topic.
type beside struct {
	name, role, flag string
	delay            time.Duration
	// state: one partition, compacted, whatever the main topic has.
	state bool
}

func (l *Line) beside() []beside {
	var bs []beside
	for _, s := range l.Stages[1:] {
		b := beside{name: s.Topic, role: s.Name, delay: s.Delay}
		if s.Tier > 0 {
			b.flag = "--retry-topic"
		}
		bs = append(bs, b)
	}
	return append(bs, beside{name: l.DLQ, role: "dlq", flag: "--dlq-topic"},
		beside{name: l.State(), role: "state", flag: "--dlq-topic", state: true})
}

// Beside are the topics with the main one's partitions: tiers, replay and DLQ.
func (l *Line) Beside() []string {
	var names []string
	for _, b := range l.beside() {
		if !b.state {
			names = append(names, b.name)
		}
	}
	return names
}

// Names are every topic of the topology, main topics included.
func (t *Topology) Names() []string {
	var names []string
	for _, l := range t.Lines {
		names = append(append(append(names, l.Topic), l.Beside()...), l.State())
	}
	return names
}

// planner gathers a plan.
type planner struct {
	actual Actual
	policy Policy
	folded map[string]string // folded name → the existing topic's name
	plan   Plan
}

// Plan compares the topology with a cluster.
func (t *Topology) Plan(a Actual, p Policy) Plan {
	pl := &planner{actual: a, policy: p, folded: make(map[string]string, len(a.Names))}
	for _, n := range a.Names {
		pl.folded[Fold(n)] = n
	}
	for i := range t.Lines {
		pl.line(&t.Lines[i])
	}
	return pl.plan
}

func (p *planner) problem(topic string, kind ProblemKind, format string, args ...any) {
	text := "topic " + topic + ": " + fmt.Sprintf(format, args...)
	p.plan.Problems = append(p.plan.Problems, &Problem{topic, kind, text})
}

func (p *planner) warn(format string, args ...any) {
	p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf(format, args...))
}

func (p *planner) line(l *Line) {
	main, ok := p.actual.Topics[l.Topic]
	if !ok {
		hint := ""
		if other, taken := p.folded[Fold(l.Topic)]; taken {
			hint = fmt.Sprintf(" (%s exists)", other)
		}
		p.problem(l.Topic, Missing, "the main topic does not exist%s and is never created by kconsume: %s", hint,
			p.command("kafka-topics.sh", "--create --topic %s --partitions N", l.Topic))
		return
	}
	for _, b := range l.beside() {
		have, exists := p.actual.Topics[b.name]
		if !exists {
			p.missing(l, b, main)
			continue
		}
		p.existing(l, b, main, have)
	}
}

// missing plans a topic that does not exist, or says why it cannot be made.
func (p *planner) missing(l *Line, b beside, main Topic) {
	if other, taken := p.folded[Fold(b.name)]; taken {
		rename := ""
		if b.flag != "" {
			rename = "change " + b.flag + ", or "
		}
		p.problem(b.name, NameTaken, "Kafka cannot create it beside %s, whose name differs in . and _ only: %sremove the other if nobody needs it: %s",
			other, rename, p.command("kafka-topics.sh", "--delete --topic %s", other))
		return
	}
	c := Change{
		Action: Create, Topic: b.name, Of: l.Topic, Role: b.role,
		Partitions: main.Partitions, Replication: main.Replication,
		Configs: p.settings(b, main),
	}
	if b.state {
		c.Partitions = 1
	}
	if !p.policy.Create {
		off := " and --create-topics is off"
		if p.policy.Grow {
			off = ""
		}
		p.problem(b.name, Missing, "it does not exist%s: kconsume topics apply, or %s", off, p.createCommand(c))
		return
	}
	p.plan.Changes = append(p.plan.Changes, c)
}

// existing holds a topic against what its role needs.
func (p *planner) existing(l *Line, b beside, main, have Topic) {
	if b.state {
		p.existingState(b, main, have)
		return
	}
	if policy := have.Configs[CleanupPolicy]; slices.Contains(strings.Split(policy, ","), "compact") {
		p.problem(b.name, Compacted, "%s=%s would lose records that wait under one key: %s", CleanupPolicy, policy, p.alter(b.name, CleanupPolicy, "delete"))
	}
	if r, ok := number(have, RetentionMS); ok && r >= 0 && time.Duration(r)*time.Millisecond <= b.delay {
		p.problem(b.name, Retention, "%s=%d would delete records before their delay of %s is over: %s", RetentionMS, r, FormatDelay(b.delay),
			p.alter(b.name, RetentionMS, p.settings(b, main)[RetentionMS]))
	}
	if have.Partitions < main.Partitions {
		p.grow(l, b, main, have)
	}
	for _, s := range []string{MinInsyncReplicas, MaxMessageBytes} {
		ours, ok := number(have, s)
		theirs, known := number(main, s)
		if ok && known && ours < theirs {
			p.warn("topic %s: %s=%d is below the %d of %s: %s", b.name, s, ours, theirs, l.Topic, p.alter(b.name, s, p.settings(b, main)[s]))
		}
	}
	if have.Replication < main.Replication {
		p.warn("topic %s: it has %d replicas, %s has %d: raise them with kafka-reassign-partitions.sh", b.name, have.Replication, l.Topic, main.Replication)
	}
}

// existingState holds a state topic against what it must be: deletion by age
// would forget what became of dead letters, and further partitions have no
// order among them.
func (p *planner) existingState(b beside, main, have Topic) {
	if policy, known := have.Configs[CleanupPolicy]; known && policy != "compact" {
		p.problem(b.name, NotCompacted, "%s=%s would forget what became of dead letters: %s", CleanupPolicy, policy, p.alter(b.name, CleanupPolicy, "compact"))
	}
	if lag, ok := number(have, MinCompactionLag); ok && lag < claimsKept.Milliseconds() {
		p.warn("topic %s: %s=%d may hide which of two claims came first: %s", b.name, MinCompactionLag, lag, p.alter(b.name, MinCompactionLag, p.settings(b, main)[MinCompactionLag]))
	}
	if have.Partitions > 1 {
		p.warn("topic %s: it has %d partitions, of which only the first is used", b.name, have.Partitions)
	}
}

func (p *planner) grow(l *Line, b beside, main, have Topic) {
	if !p.policy.Create && !p.policy.Grow {
		p.problem(b.name, TooFew, "it has %d partitions, %s has %d, and --create-topics is off: kconsume topics apply, or %s", have.Partitions, l.Topic, main.Partitions,
			p.command("kafka-topics.sh", "--alter --topic %s --partitions %d", b.name, main.Partitions))
		return
	}
	p.plan.Changes = append(p.plan.Changes, Change{
		Action: Grow, Topic: b.name, Of: l.Topic, Role: b.role,
		Partitions: main.Partitions, Before: have.Partitions,
	})
}

// settings are the configs of a topic beside main that is to be created. All
// are set, so that no default of the cluster's can lose a record that waits.
func (p *planner) settings(b beside, main Topic) map[string]string {
	if b.state {
		c := map[string]string{CleanupPolicy: "compact", MinCompactionLag: strconv.FormatInt(claimsKept.Milliseconds(), 10), TimestampType: "LogAppendTime"}
		if v, ok := main.Configs[MinInsyncReplicas]; ok {
			c[MinInsyncReplicas] = v
		}
		return c
	}
	c := map[string]string{
		CleanupPolicy: "delete",
		RetentionMS:   p.retention(b, main),
		// A host whose clock is wrong would otherwise have its forwards refused.
		TimestampType: "LogAppendTime",
	}
	if v, ok := main.Configs[MinInsyncReplicas]; ok {
		c[MinInsyncReplicas] = v
	}
	if n, ok := number(main, MaxMessageBytes); ok {
		c[MaxMessageBytes] = strconv.FormatInt(min(n+headerRoom, 1<<31-1), 10)
	}
	return c
}

func (p *planner) retention(b beside, main Topic) string {
	if b.role == "dlq" {
		if p.policy.DLQRetention == 0 {
			return unlimited
		}
		return strconv.FormatInt(p.policy.DLQRetention.Milliseconds(), 10)
	}
	r := max(minRetention.Milliseconds(), retentionDelays*b.delay.Milliseconds())
	if n, ok := number(main, RetentionMS); ok {
		if n < 0 {
			return unlimited
		}
		r = max(r, n)
	}
	return strconv.FormatInt(r, 10)
}

func number(t Topic, setting string) (int64, bool) {
	n, err := strconv.ParseInt(t.Configs[setting], 10, 64)
	return n, err == nil
}

func (p *planner) command(tool, format string, args ...any) string {
	bootstrap := p.policy.Bootstrap
	if bootstrap == "" {
		bootstrap = "BROKER:9092"
	}
	return tool + " --bootstrap-server " + bootstrap + " " + fmt.Sprintf(format, args...)
}

func (p *planner) alter(topic, setting, value string) string {
	return p.command("kafka-configs.sh", "--alter --entity-type topics --entity-name %s --add-config %s=%s", topic, setting, value)
}

func (p *planner) createCommand(c Change) string {
	var configs strings.Builder
	for _, k := range slices.Sorted(maps.Keys(c.Configs)) {
		fmt.Fprintf(&configs, " --config %s=%s", k, c.Configs[k])
	}
	return p.command("kafka-topics.sh", "--create --topic %s --partitions %d --replication-factor %d%s", c.Topic, c.Partitions, c.Replication, configs.String())
}
