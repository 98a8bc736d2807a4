package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// adminTimeout bounds one request, to brokers that are being killed.
const adminTimeout = 5 * time.Second

// admin asks and changes the cluster.
type admin struct {
	transport *kafkago.Transport
	client    *kafkago.Client
}

func newAdmin(brokers string) *admin {
	t := &kafkago.Transport{MetadataTTL: 500 * time.Millisecond, DialTimeout: 2 * time.Second}
	addr := kafkago.TCP(strings.Split(brokers, ",")...)
	return &admin{t, &kafkago.Client{Addr: addr, Transport: t, Timeout: adminTimeout}}
}

func (a *admin) close() { a.transport.CloseIdleConnections() }

// place is a partition of a topic.
type place struct {
	topic     string
	partition int32
}

// committed are a group's offsets; partitions without one are left out.
func (a *admin) committed(ctx context.Context, topics []string, partitions int) (map[place]int64, error) {
	ask := map[string][]int{}
	for _, t := range topics {
		ask[t] = numbers(partitions)
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	res, err := a.client.OffsetFetch(ctx, &kafkago.OffsetFetchRequest{GroupID: group, Topics: ask})
	if err == nil {
		err = res.Error
	}
	if err != nil {
		return nil, fmt.Errorf("read committed offsets: %w", err)
	}
	out := map[place]int64{}
	for topic, parts := range res.Topics {
		for _, p := range parts {
			if p.Error != nil {
				return nil, fmt.Errorf("read committed offset of %s/%d: %w", topic, p.Partition, p.Error)
			}
			if p.CommittedOffset >= 0 {
				out[place{topic, int32(p.Partition)}] = p.CommittedOffset
			}
		}
	}
	return out, nil
}

// ends are the topics' end offsets.
func (a *admin) ends(ctx context.Context, topics []string, partitions int) (map[place]int64, error) {
	ask := map[string][]kafkago.OffsetRequest{}
	for _, t := range topics {
		for p := range partitions {
			ask[t] = append(ask[t], kafkago.LastOffsetOf(p))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	res, err := a.client.ListOffsets(ctx, &kafkago.ListOffsetsRequest{Topics: ask})
	if err != nil {
		return nil, fmt.Errorf("read end offsets: %w", err)
	}
	out := map[place]int64{}
	for topic, parts := range res.Topics {
		for _, p := range parts {
			if p.Error != nil {
				return nil, fmt.Errorf("read end offset of %s/%d: %w", topic, p.Partition, p.Error)
			}
			out[place{topic, int32(p.Partition)}] = p.LastOffset
		}
	}
	if len(out) != len(topics)*partitions {
		return nil, fmt.Errorf("read end offsets: %d partitions answered, want %d", len(out), len(topics)*partitions)
	}
	return out, nil
}

// lag is what the group has not committed of the topics.
func (a *admin) lag(ctx context.Context, topics []string, partitions int) (int64, error) {
	ends, err := a.ends(ctx, topics, partitions)
	if err != nil {
		return 0, err
	}
	done, err := a.committed(ctx, topics, partitions)
	if err != nil {
		return 0, err
	}
	var n int64
	for p, end := range ends {
		n += end - done[p]
	}
	return n, nil
}

// setting sets a topic's setting, or with "" gives it up.
func (a *admin) setting(ctx context.Context, topic, name, value string) error {
	op := kafkago.ConfigOperationSet
	if value == "" {
		op = kafkago.ConfigOperationDelete
	}
	res, err := a.client.IncrementalAlterConfigs(ctx, &kafkago.IncrementalAlterConfigsRequest{
		Resources: []kafkago.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafkago.IncrementalAlterConfigsRequestConfig{{Name: name, Value: value, ConfigOperation: op}},
		}},
	})
	for i := 0; err == nil && i < len(res.Resources); i++ {
		err = res.Resources[i].Error
	}
	if err != nil {
		return fmt.Errorf("set %s=%s of %s: %w", name, value, topic, err)
	}
	return nil
}

// layout are the partitions of topics. A topic that is not there is an error.
func (a *admin) layout(ctx context.Context, topics ...string) ([]kafkago.Partition, error) {
	res, err := a.client.Metadata(ctx, &kafkago.MetadataRequest{Topics: topics})
	if err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	var out []kafkago.Partition
	for _, t := range res.Topics {
		if t.Error != nil {
			return nil, fmt.Errorf("read metadata of %s: %w", t.Name, t.Error)
		}
		for _, p := range t.Partitions {
			p.Topic = t.Name
			out = append(out, p)
		}
	}
	return out, nil
}

// whole reports whether each partition has a leader and all its replicas in sync.
func (a *admin) whole(ctx context.Context, replicas int, topics ...string) (bool, error) {
	parts, err := a.layout(ctx, topics...)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(parts, func(p kafkago.Partition) bool {
		return len(p.Isr) < replicas || p.Leader.Port == 0
	}), nil
}

// rotate makes the next replica of each partition its leader: the replicas
// stay where they are, in another order, and the first of them is elected.
func (a *admin) rotate(ctx context.Context, topics ...string) error {
	parts, err := a.layout(ctx, topics...)
	if err != nil {
		return err
	}
	byTopic := map[string][]int{}
	req := &kafkago.AlterPartitionReassignmentsRequest{Timeout: adminTimeout}
	for _, p := range parts {
		byTopic[p.Topic] = append(byTopic[p.Topic], p.ID)
		ids := make([]int, len(p.Replicas))
		for i := range ids {
			ids[i] = p.Replicas[i].ID
		}
		at := slices.Index(ids, p.Leader.ID) + 1
		req.Assignments = append(req.Assignments, kafkago.AlterPartitionReassignmentsRequestAssignment{
			Topic: p.Topic, PartitionID: p.ID, BrokerIDs: slices.Concat(ids[at:], ids[:at]),
		})
	}
	res, err := a.client.AlterPartitionReassignments(ctx, req)
	if err == nil {
		err = res.Error
	}
	for i := 0; err == nil && i < len(res.PartitionResults); i++ {
		err = res.PartitionResults[i].Error
	}
	if err != nil {
		return fmt.Errorf("reorder replicas: %w", err)
	}
	for topic, ids := range byTopic {
		res, err := a.client.ElectLeaders(ctx, &kafkago.ElectLeadersRequest{Topic: topic, Partitions: ids, Timeout: adminTimeout})
		if err == nil {
			err = res.Error
		}
		for i := 0; err == nil && i < len(res.PartitionResults); i++ {
			if e := res.PartitionResults[i].Error; !errors.Is(e, kafkago.ElectionNotNeeded) {
				err = e
			}
		}
		if err != nil {
			return fmt.Errorf("elect leaders of %s: %w", topic, err)
		}
	}
	return nil
}

func numbers(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}
