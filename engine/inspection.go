package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kconsume/kconsume/engine/backlog"
	"github.com/kconsume/kconsume/engine/topics"
	"github.com/kconsume/kconsume/engine/topology"
	"github.com/segmentio/kafka-go"
)

const (
	inspectTimeout = time.Minute
	censusBytes    = 16 << 20 // read to learn whose records wait
	orphanBytes    = 64 << 20 // read to count those of a group that is gone
)

// inspection looks at topics and group beside the loop.
type inspection struct {
	cfg       Config
	topo      *topology.Topology
	cluster   *cluster
	leftovers []string // found by now
	strange   bool     // some of them are beyond what the cluster's client knows
	search    bool
	groups    []string // other groups that were met
}

// inspected is what one found.
type inspected struct {
	err      error // of reading or growing topics
	problems []*topology.Problem
	grown    []topology.Change

	groupErr error
	unowned  map[string][]int

	searched  bool
	searchErr error
	leftovers [][]topology.Stage // with unread records, by line
	censusErr error
	groups    []string
	orphans   []OrphanStatus
}

func (i inspection) do(ctx context.Context) event {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	out := &inspected{searched: i.search}
	out.problems, out.grown, out.err = i.settings(ctx)
	if i.search {
		out.leftovers, out.searchErr = findLeftovers(ctx, i.cluster, i.cfg.Group, i.topo)
	}
	known := slices.Concat(i.topo.Stages(), i.leftovers)
	for _, stages := range out.leftovers {
		for _, st := range stages {
			if !slices.Contains(known, st.Topic) {
				known = append(known, st.Topic)
			}
		}
	}
	look := func(c *kafka.Client) {
		r := backlog.New(c)
		out.unowned, out.groupErr = i.unowned(ctx, r, known)
		if i.search {
			out.groups, out.orphans, out.censusErr = i.census(ctx, r, known)
		}
	}
	if i.search || i.strange {
		i.cluster.beside(known, look)
	} else {
		look(i.cluster.client)
	}
	return out
}

// settings holds the topics against what they must be. Those beside a main
// topic that has grown grow too.
func (i inspection) settings(ctx context.Context) (found []*topology.Problem, grown []topology.Change, err error) {
	actual, err := topics.ReadNamed(ctx, i.cluster.client, i.topo)
	if err != nil {
		return nil, nil, err
	}
	plan := i.topo.Plan(actual, topology.Policy{
		Grow: !i.cfg.KeepTopics, DLQRetention: i.cfg.DLQRetention, Bootstrap: strings.Join(i.cfg.Brokers, ","),
	})
	for _, p := range plan.Problems {
		if one, ok := errors.AsType[*topology.Problem](p); ok {
			found = append(found, one)
		}
	}
	if len(plan.Changes) == 0 {
		return found, nil, nil
	}
	if err := topics.Apply(ctx, i.cluster.client, topology.Plan{Changes: plan.Changes}); err != nil {
		return found, nil, err
	}
	return found, plan.Changes, nil
}

// unowned are the partitions with unread records that the group, at rest, has
// given to no member.
func (i inspection) unowned(ctx context.Context, r *backlog.Reader, names []string) (map[string][]int, error) {
	g, err := r.Group(ctx, i.cfg.Group)
	if err != nil {
		return nil, err
	}
	if g.Name != "Stable" {
		return nil, nil // between two generations nobody has anything
	}
	layouts, err := topics.Layouts(ctx, i.cluster.client, names)
	if err != nil {
		return nil, err
	}
	free := map[string]bool{}
	for name, l := range layouts {
		for p := range l.Leaders {
			if !g.Owned[backlog.Place{Topic: name, Partition: p}] {
				free[name] = true
			}
		}
	}
	var suspects []string
	for _, name := range names {
		if free[name] {
			suspects = append(suspects, name)
		}
	}
	spans, err := r.Spans(ctx, suspects)
	if err != nil {
		return nil, err
	}
	committed, err := r.Committed(ctx, i.cfg.Group, spans)
	if err != nil {
		return nil, err
	}
	var out []backlog.Place
	for _, s := range spans {
		if !g.Owned[s.Place] && max(committed[s.Place], s.Start) < s.End {
			out = append(out, s.Place)
		}
	}
	return placesOf(out), nil
}

// census learns whose records wait on our topics, and counts those of groups in
// which nobody is.
func (i inspection) census(ctx context.Context, r *backlog.Reader, known []string) (met []string, orphans []OrphanStatus, err error) {
	var besides []string
	for _, name := range known {
		if !slices.ContainsFunc(i.topo.Lines, func(l topology.Line) bool { return l.Topic == name }) {
			besides = append(besides, name)
		}
	}
	met, err = r.Groups(ctx, besides, maxGroups, &backlog.Budget{Bytes: censusBytes})
	if err != nil {
		return nil, nil, err
	}
	names := slices.Concat(i.groups, met)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if name == i.cfg.Group {
			continue
		}
		g, err := r.Group(ctx, name)
		if err != nil || !g.Vacant() {
			continue // somebody is there, or we may not see: not ours to judge
		}
		counts, err := r.Count(ctx, name, besides, &backlog.Budget{Bytes: orphanBytes})
		if err != nil {
			return met, nil, err
		}
		o := OrphanStatus{Group: name}
		for _, n := range counts {
			o.Records += n.Records
			o.Partial = o.Partial || n.Partial
		}
		if o.Records > 0 {
			orphans = append(orphans, o)
		}
	}
	return met, orphans, nil
}

// findLeftovers are the tiers of earlier settings in which a group still has
// unread records, by line.
func findLeftovers(ctx context.Context, k *cluster, group string, topo *topology.Topology) ([][]topology.Stage, error) {
	names, err := topics.Names(ctx, k.client)
	if err != nil {
		return nil, err
	}
	candidates := topo.Leftovers(names)
	var asked []string
	for _, stages := range candidates {
		for _, st := range stages {
			asked = append(asked, st.Topic)
		}
	}
	if len(asked) == 0 {
		return candidates, nil
	}
	var unread map[string]bool
	k.beside(asked, func(c *kafka.Client) { unread, err = backlog.New(c).Unread(ctx, group, asked) })
	if err != nil {
		return nil, fmt.Errorf("look for leftover tiers: %w", err)
	}
	for i := range candidates {
		candidates[i] = slices.DeleteFunc(candidates[i], func(st topology.Stage) bool { return !unread[st.Topic] })
	}
	return candidates, nil
}
