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
	out := []topics.Need{topics.OnGroup(c.Group, topics.ReadFrom)}
	for i := range t.Lines {
		l := &t.Lines[i]
		out = append(out, topics.OnTopic(l.Topic, topics.ReadFrom), topics.OnTopic(l.Topic, topics.DescribeConfigs))
		for _, name := range append(l.Beside(), l.State()) {
			out = append(out, topics.OnTopic(name, topics.ReadFrom), topics.OnTopic(name, topics.WriteTo), topics.OnTopic(name, topics.DescribeConfigs))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Emit)) {
		out = append(out, topics.OnTopic(name, topics.WriteTo))
	}
	return out
}

// plainly leaves out what the client says around an error that says itself what
// to do.
func plainly(err error) error {
	if e, ok := errors.AsType[*secure.Error](err); ok {
		return e
	}
	return err
}
