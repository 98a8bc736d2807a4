package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/segmentio/kafka-go"
)

// cluster is the way to the brokers: one long-lived transport for requests and
// writes, and a dialer for the group's connections, configured alike.
type cluster struct {
	addr      net.Addr
	brokers   []string
	clientID  string
	transport *kafka.Transport
	client    *kafka.Client
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	metadataTTL    = 2 * time.Second // how old the transport's view of leaders may be
	requestTimeout = 10 * time.Second
)

func newCluster(c Config, topics []string) *cluster {
	dial := c.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 5 * time.Second}).DialContext
	}
	k := &cluster{brokers: c.Brokers, addr: kafka.TCP(c.Brokers...), clientID: c.ClientID}
	k.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &boundConn{Conn: conn}, nil
	}
	k.transport = k.newTransport(topics)
	k.client = &kafka.Client{Addr: k.addr, Transport: k.transport, Timeout: requestTimeout}
	return k
}

func (k *cluster) newTransport(topics []string) *kafka.Transport {
	return &kafka.Transport{
		Dial: k.dial, DialTimeout: 5 * time.Second, ClientID: k.clientID,
		MetadataTTL: metadataTTL, MetadataTopics: topics,
	}
}

func (k *cluster) close() { k.transport.CloseIdleConnections() }

// layout says who leads which partition. A leader of −1 is nobody, for now.
type layout map[string][]int32

func (k *cluster) layout(ctx context.Context, topics []string) (layout, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	res, err := k.client.Metadata(ctx, &kafka.MetadataRequest{Topics: topics})
	if err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	l := layout{}
	for _, t := range res.Topics {
		if t.Error != nil {
			continue // unknown or not allowed: nobody leads it
		}
		leaders := make([]int32, len(t.Partitions))
		for i := range leaders {
			leaders[i] = -1
		}
		for _, p := range t.Partitions {
			if p.ID < len(leaders) && p.Leader.Host != "" {
				leaders[p.ID] = int32(p.Leader.ID)
			}
		}
		l[t.Name] = leaders
	}
	return l, nil
}

// counts is how many partitions each of the topics has; a topic that does not
// exist is left out. It asks anew, beside the transport's own view: the topics
// of other members are among them.
func (k *cluster) counts(topics []string) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	tr := k.newTransport(topics)
	defer tr.CloseIdleConnections()
	client := &kafka.Client{Addr: k.addr, Transport: tr, Timeout: requestTimeout}
	res, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: topics})
	if err != nil {
		return nil, fmt.Errorf("read the topics' partitions: %w", err)
	}
	n := map[string]int{}
	for _, t := range res.Topics {
		if t.Error == nil {
			n[t.Name] = len(t.Partitions)
		}
	}
	return n, nil
}

// committed reads offsets that the group has committed; −1 = none. Unlike the
// group protocol's own read it tells an error from "none".
func (k *cluster) committed(ctx context.Context, group string, parts map[string][]int) (map[string]map[int]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	res, err := k.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: parts})
	if err != nil {
		return nil, fmt.Errorf("read committed offsets: %w", err)
	}
	if res.Error != nil {
		return nil, fmt.Errorf("read committed offsets: %w", res.Error)
	}
	out := map[string]map[int]int64{}
	for topic, ps := range res.Topics {
		out[topic] = map[int]int64{}
		for _, p := range ps {
			if p.Error != nil {
				return nil, fmt.Errorf("read committed offset of %s/%d: %w", topic, p.Partition, p.Error)
			}
			out[topic][p.Partition] = p.CommittedOffset
		}
	}
	return out, nil
}

// listOffset finds where a partition begins, ends, or stands at a time.
func (k *cluster) listOffset(ctx context.Context, topic string, partition int, policy OffsetPolicy, at time.Time) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ask := []kafka.OffsetRequest{kafka.FirstOffsetOf(partition)}
	switch {
	case !at.IsZero():
		ask = []kafka.OffsetRequest{kafka.TimeOffsetOf(partition, at), kafka.LastOffsetOf(partition)}
	case policy == OffsetLatest:
		ask = []kafka.OffsetRequest{kafka.LastOffsetOf(partition)}
	}
	offset := int64(-1)
	for _, one := range ask { // one by one: kafka-go tells several answers of a partition apart by their values only
		res, err := k.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {one}}})
		if err != nil {
			return 0, fmt.Errorf("list offsets of %s/%d: %w", topic, partition, err)
		}
		if len(res.Topics[topic]) != 1 {
			return 0, fmt.Errorf("list offsets of %s/%d: %w", topic, partition, errors.New("the broker answered for another partition"))
		}
		p := res.Topics[topic][0]
		if p.Error != nil {
			return 0, fmt.Errorf("list offsets of %s/%d: %w", topic, partition, p.Error)
		}
		switch one.Timestamp {
		case kafka.FirstOffset:
			offset = p.FirstOffset
		case kafka.LastOffset:
			offset = p.LastOffset
		default:
			for o := range p.Offsets {
				offset = o
			}
		}
		if offset >= 0 {
			return offset, nil
		}
	}
	return 0, fmt.Errorf("list offsets of %s/%d: no offset in the answer", topic, partition)
}
