// Package topics reads a cluster's topics and makes the ones that a plan lacks.
package topics

import (
	"context"
	"errors"

	"github.com/kconsume/kconsume/engine/topology"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// Read asks a cluster for the topics of a topology and the names of all others.
// It never creates a topic. Errors are of type *Error, several of them joined.
func Read(ctx context.Context, c *kafka.Client, t *topology.Topology) (topology.Actual, error) {
	a := topology.Actual{Topics: map[string]topology.Topic{}}
	names, err := Names(ctx, c)
	if err != nil {
		return a, err
	}
	a.Names = names
	named, err := ReadNamed(ctx, c, t)
	a.Topics = named.Topics
	return a, err
}

// ReadNamed is Read without the names of all other topics, of which a cluster
// may have tens of thousands.
func ReadNamed(ctx context.Context, c *kafka.Client, t *topology.Topology) (topology.Actual, error) {
	a := topology.Actual{Topics: map[string]topology.Topic{}}
	// A list of all topics leaves out what we may not see; asked by name a broker says so.
	named, err := describe(ctx, c, anyBroker, t.Names())
	if err != nil {
		return a, err
	}
	var errs []error
	for _, topic := range named.Topics {
		switch kafka.Error(topic.ErrorCode) {
		case kafka.UnknownTopicOrPartition:
		case kafka.TopicAuthorizationFailed, kafka.InvalidTopic:
			errs = append(errs, refusal(c, "describe topic", topic.Name, Describe, topic.ErrorCode, ""))
		default:
			a.Topics[topic.Name] = topology.Topic{Partitions: len(topic.Partitions), Replication: replicas(topic)}
		}
	}
	if len(errs) > 0 {
		return a, errors.Join(errs...)
	}
	return a, configs(ctx, c, a.Topics)
}

// Names are all topics of a cluster, as far as we may see them.
func Names(ctx context.Context, c *kafka.Client) ([]string, error) {
	all, err := describe(ctx, c, anyBroker, nil)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, topic := range all.Topics {
		names = append(names, topic.Name)
	}
	return names, nil
}

// describe asks one broker what it knows of topics, nil for all of them.
func describe(ctx context.Context, c *kafka.Client, broker int32, names []string) (*metadata.Response, error) {
	return send[*metadata.Response](ctx, c, broker, &metadata.Request{TopicNames: names, AllowAutoTopicCreation: false})
}

func replicas(t metadata.ResponseTopic) int {
	n := 0
	for _, p := range t.Partitions {
		n = max(n, len(p.ReplicaNodes))
	}
	return n
}

// configs fills in the topics' settings.
func configs(ctx context.Context, c *kafka.Client, topics map[string]topology.Topic) error {
	if len(topics) == 0 {
		return nil
	}
	req := &describeconfigs.Request{}
	for name := range topics {
		req.Resources = append(req.Resources, describeconfigs.RequestResource{
			ResourceType: int8(kafka.ResourceTypeTopic), ResourceName: name, ConfigNames: topology.Settings(),
		})
	}
	res, err := send[*describeconfigs.Response](ctx, c, anyBroker, req)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range res.Resources {
		if r.ErrorCode != 0 {
			errs = append(errs, refusal(c, "read settings", r.ResourceName, DescribeConfigs, r.ErrorCode, r.ErrorMessage))
			continue
		}
		t := topics[r.ResourceName]
		t.Configs = make(map[string]string, len(r.ConfigEntries))
		for _, e := range r.ConfigEntries {
			t.Configs[e.ConfigName] = e.ConfigValue
		}
		topics[r.ResourceName] = t
	}
	return errors.Join(errs...)
}
