package engine

import (
	"errors"
	"maps"
	"slices"

	"github.com/kconsume/kconsume/engine/secure"
	"github.com/kconsume/kconsume/engine/topics"
	"github.com/kconsume/kconsume/engine/topology"
)

// Needs are the permissions without which a record would be stuck half-way: they
// are asked for at the start, not when the first delivery fails. That to create
// a topic is not among them: it is needed once, and told then.
func Needs(c Config, t *topology.Topology) []topics.Need {
	need := func(name string, o topics.Operation) topics.Need {
		return topics.Need{Resource: "topic", Name: name, Operation: o}
	}
	out := []topics.Need{{Resource: "group", Name: c.Group, Operation: topics.ReadFrom}}
	for i := range t.Lines {
		l := &t.Lines[i]
		out = append(out, need(l.Topic, topics.ReadFrom), need(l.Topic, topics.DescribeConfigs))
		for _, name := range append(l.Beside(), l.State()) {
			out = append(out, need(name, topics.ReadFrom), need(name, topics.WriteTo), need(name, topics.DescribeConfigs))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Emit)) {
		out = append(out, need(name, topics.WriteTo))
	}
	return out
}

// advice is ": " and how a permission is given, where err says that it is
// missing, else "".
func (k *cluster) advice(resource, name string, o topics.Operation, err error) string {
	return topics.Need{Resource: resource, Name: name, Operation: o}.Advice(k.client, err)
}

// plainly leaves out what the client says around an error that says itself what
// to do.
func plainly(err error) error {
	if e, ok := errors.AsType[*secure.Error](err); ok {
		return e
	}
	return err
}
