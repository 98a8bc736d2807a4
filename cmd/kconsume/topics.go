package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
	"github.com/kconsume/kconsume/engine/backlog"
	"github.com/kconsume/kconsume/engine/topics"
	"github.com/kconsume/kconsume/engine/topology"
	"github.com/segmentio/kafka-go"
)

// oneShotTimeout bounds a command that asks the brokers something.
const oneShotTimeout = 90 * time.Second

func topicsPlanCommand() command {
	return command{name: "plan", usage: "show what is missing beside the main topics",
		description: "Exits with 0 if there is nothing to do, 2 if the plan has changes, 78 if there are problems.",
		use:         option.Topics, required: []string{"brokers", "topic"}, action: topicsPlan}
}

func topicsApplyCommand() command {
	return command{name: "apply", usage: "create what is missing beside the main topics",
		description: "Creates retry, replay and dead letter topics and adds partitions to them. Main topics are never touched.",
		use:         option.Topics, required: []string{"brokers", "topic"}, action: topicsApply}
}

func topicsPlan(ctx context.Context, in *invocation) error {
	return onCluster(ctx, in, func(ctx context.Context, c *kafka.Client, t *topology.Topology) error {
		plan, err := readPlan(ctx, in, c, t)
		if err != nil {
			return err
		}
		if err := printPlan(in, t, plan); err != nil {
			return err
		}
		switch {
		case len(plan.Problems) > 0:
			return configLines(errors.Join(plan.Problems...))
		case len(plan.Changes) > 0:
			return errChanges
		}
		return nil
	})
}

func topicsApply(ctx context.Context, in *invocation) error {
	return onCluster(ctx, in, func(ctx context.Context, c *kafka.Client, t *topology.Topology) error {
		plan, err := readPlan(ctx, in, c, t)
		if err != nil {
			return err
		}
		if err := printPlan(in, t, plan); err != nil {
			return err
		}
		if len(plan.Problems) > 0 {
			return configLines(errors.Join(plan.Problems...))
		}
		if err := topics.Apply(ctx, c, plan.Plan); err != nil {
			return err
		}
		after, err := readPlan(ctx, in, c, t)
		switch {
		case err != nil:
			return err
		case len(after.Problems) > 0:
			return configLines(errors.Join(after.Problems...))
		case len(after.Changes) > 0:
			return fmt.Errorf("apply the plan: topic %s: somebody else changed it meanwhile: plan again", after.Changes[0].Topic)
		}
		return nil
	})
}

// readPlan compares the topology with the cluster. To ask for a plan is to
// allow it: --create-topics is about run.
func readPlan(ctx context.Context, in *invocation, c *kafka.Client, t *topology.Topology) (fullPlan, error) {
	actual, err := topics.Read(ctx, c, t)
	if err != nil {
		return fullPlan{}, err
	}
	p := fullPlan{Plan: t.Plan(actual, policy(in.opts))}
	if in.opts.Text("group") == "" {
		return p, nil
	}
	p.leftovers, err = readLeftovers(ctx, in, t.Leftovers(actual.Names))
	if err != nil {
		p.Warnings = append(p.Warnings, fmt.Sprintf("cannot tell what waits in tiers of earlier settings: %v", err))
	}
	for _, l := range p.leftovers {
		least := ""
		if l.Partial {
			least = "at least "
		}
		p.Warnings = append(p.Warnings, fmt.Sprintf("topic %s: a tier of earlier settings, in which %s%d records of group %q wait: run delivers them when they are due", l.Topic, least, l.Records, in.opts.Text("group")))
	}
	return p, nil
}

// fullPlan is a plan, and the tiers of earlier settings in which records of the
// group wait.
type fullPlan struct {
	topology.Plan
	leftovers []leftoverJSON
}

type leftoverJSON struct {
	Topic   string `json:"topic"`
	Delay   string `json:"delay"`
	Records int    `json:"records"`
	Partial bool   `json:"partial,omitempty"` // not all were counted: there may be more
}

// leftoverBytes bounds what is read to count what waits.
const leftoverBytes = 256 << 20

func readLeftovers(ctx context.Context, in *invocation, candidates [][]topology.Stage) ([]leftoverJSON, error) {
	all := slices.Concat(candidates...)
	if len(all) == 0 {
		return nil, nil
	}
	var names []string
	for _, st := range all {
		names = append(names, st.Topic)
	}
	var out []leftoverJSON
	err := withClient(in, names, func(c *kafka.Client) error {
		counts, err := backlog.New(c).Count(ctx, in.opts.Text("group"), names, &backlog.Budget{Bytes: leftoverBytes})
		for _, st := range all {
			if n, ok := counts[st.Topic]; ok {
				out = append(out, leftoverJSON{st.Topic, topology.FormatDelay(st.Delay), n.Records, n.Partial})
			}
		}
		return err
	})
	return out, err
}

func policy(s *option.Set) topology.Policy {
	return topology.Policy{
		Create:       true,
		DLQRetention: s.Duration("dlq-retention"),
		Bootstrap:    strings.Join(s.List("brokers"), ","),
	}
}

// onCluster does something with a client and the configured topology.
func onCluster(ctx context.Context, in *invocation, do func(context.Context, *kafka.Client, *topology.Topology) error) error {
	t, err := configuredTopology(in)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, oneShotTimeout)
	defer cancel()
	return withClient(in, t.Names(), func(c *kafka.Client) error { return do(ctx, c, t) })
}

func configuredTopology(in *invocation) (*topology.Topology, error) {
	s := in.opts
	t, err := topology.New(topology.Config{
		Group: s.Text("group"), Topics: s.List("topic"), Retry: s.Durations("retry"),
		RetryTopic: s.Text("retry-topic"), DLQTopic: s.Text("dlq-topic"),
	})
	if err != nil {
		return nil, &failure{exitConfig, err}
	}
	return t, nil
}

// withClient does something with a client that knows some topics.
func withClient(in *invocation, names []string, do func(*kafka.Client) error) error {
	s := in.opts
	newLogger(s, in.stderr).Debug("asking brokers", "brokers", s.List("brokers"), "client_id", s.Text("client-id"), "topics", names)
	d, err := dialer(in)
	if err != nil {
		return err
	}
	transport := d.Transport(names)
	defer transport.CloseIdleConnections()
	return do(&kafka.Client{Addr: kafka.TCP(s.List("brokers")...), Transport: transport})
}

type planJSON struct {
	Lines    []lineJSON        `json:"topics"`
	Changes  []topology.Change `json:"changes"`
	Problems []string          `json:"problems"`
	Warnings []string          `json:"warnings"`
	// Leftovers are tiers of earlier settings in which records of the group wait.
	Leftovers []leftoverJSON `json:"leftovers,omitempty"`
}

type lineJSON struct {
	Topic  string      `json:"topic"`
	Stages []stageJSON `json:"stages"`
	DLQ    string      `json:"dlq"`
}

type stageJSON struct {
	Name  string `json:"name"`
	Topic string `json:"topic"`
	Delay string `json:"delay"`
}

func printPlan(in *invocation, t *topology.Topology, p fullPlan) error {
	if in.opts.Text("output") == "json" {
		out := planJSON{Changes: p.Changes, Problems: []string{}, Warnings: p.Warnings, Leftovers: p.leftovers}
		if out.Changes == nil {
			out.Changes = []topology.Change{}
		}
		if out.Warnings == nil {
			out.Warnings = []string{}
		}
		for _, e := range p.Problems {
			out.Problems = append(out.Problems, e.Error())
		}
		for _, l := range t.Lines {
			line := lineJSON{Topic: l.Topic, DLQ: l.DLQ}
			for _, s := range l.Stages {
				line.Stages = append(line.Stages, stageJSON{s.Name, s.Topic, option.FormatDuration(s.Delay)})
			}
			out.Lines = append(out.Lines, line)
		}
		return printJSON(in.stdout, out)
	}
	for _, w := range p.Warnings {
		fmt.Fprintf(in.stderr, "kconsume: warning: %s\n", w)
	}
	if len(p.Changes) == 0 {
		if len(p.Problems) == 0 {
			fmt.Fprintln(in.stdout, "nothing to do")
		}
		return nil
	}
	rows := [][]string{{"ACTION", "TOPIC", "ROLE", "PARTITIONS", "REPLICAS", "SETTINGS"}}
	for _, c := range p.Changes {
		partitions, replicas := strconv.Itoa(c.Partitions), strconv.Itoa(c.Replication)
		if c.Action == topology.Grow {
			partitions, replicas = fmt.Sprintf("%d to %d", c.Before, c.Partitions), "-"
		}
		rows = append(rows, []string{string(c.Action), c.Topic, c.Role, partitions, replicas, settingsLine(c.Configs)})
	}
	return table(in.stdout, rows)
}

func settingsLine(configs map[string]string) string {
	var parts []string
	for _, k := range topology.Settings() {
		if v, ok := configs[k]; ok {
			parts = append(parts, k+"="+v)
		}
	}
	return strings.Join(parts, " ")
}
