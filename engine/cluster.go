package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/kconsume/kconsume/engine/secure"
	"github.com/kconsume/kconsume/engine/topics"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/offsetcommit"
)

// cluster is the way to the brokers: one long-lived transport for requests and
// writes, and a dialer for the group's connections, configured alike.
type cluster struct {
	addr      net.Addr
	brokers   []string
	clientID  string
	transport *router
	client    *kafka.Client
	conns     *conns
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	dialer    *secure.Dialer
}

const (
	metadataTTL    = 2 * time.Second // how old the transport's view of leaders may be
	requestTimeout = 10 * time.Second
)

func newCluster(c Config, topics []string) *cluster {
	d := c.Dialer()
	k := &cluster{brokers: c.Brokers, addr: kafka.TCP(c.Brokers...), clientID: c.ClientID, conns: newConns(), dialer: d}
	k.dial = k.conns.dialer(d.Dial)
	k.transport = newRouter(topics, k.newTransport)
	k.transport.principal = d.Principal
	k.client = &kafka.Client{Addr: k.addr, Transport: k.transport, Timeout: requestTimeout}
	return k
}

func (k *cluster) newTransport(topics []string) *kafka.Transport {
	return &kafka.Transport{
		Dial: k.dial, DialTimeout: k.dialer.Timeout(), ClientID: k.clientID,
		MetadataTTL: metadataTTL, MetadataTopics: topics,
	}
}

// close ends everything that is under way: nothing is sent any more.
func (k *cluster) close() {
	k.transport.close()
	k.conns.cutAll()
}

// layout says who leads which partition. A leader of −1 is nobody, for now.
type layout map[string][]int32

// layout asks a broker itself for topics, and for the identities of those that
// it tells. A topic that is unknown or not allowed is left out: nobody leads it.
func (k *cluster) layout(ctx context.Context, names []string) (layout, map[string]topics.ID, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	all, err := topics.Layouts(ctx, k.client, names)
	if err != nil {
		return nil, nil, fmt.Errorf("read metadata: %w", err)
	}
	l, ids := layout{}, map[string]topics.ID{}
	for name, t := range all {
		l[name] = t.Leaders
		if t.ID != (topics.ID{}) {
			ids[name] = t.ID
		}
	}
	return l, ids, nil
}

// beside gives f a client that knows some topics, which may be others than the
// cluster's own, on connections of its own.
func (k *cluster) beside(topics []string, f func(*kafka.Client)) {
	tr := k.newTransport(topics)
	defer tr.CloseIdleConnections()
	f(&kafka.Client{Addr: k.addr, Transport: tr, Timeout: requestTimeout})
}

// counts is how many partitions each of the topics has; a topic that does not
// exist is left out. The topics of other members are among them.
func (k *cluster) counts(topics []string) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	l, _, err := k.layout(ctx, topics)
	if err != nil {
		return nil, fmt.Errorf("count partitions: %w", err)
	}
	n := map[string]int{}
	for topic, leaders := range l {
		n[topic] = len(leaders)
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

// commit commits offsets for a generation by a connection to whoever is the
// group's coordinator now; the generation's own may be to one that is gone.
func (k *cluster) commit(ctx context.Context, group string, g *generation, o offsets) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req := &offsetcommit.Request{GroupID: group, GenerationID: g.id, MemberID: g.member, RetentionTimeMs: -1}
	for topic, parts := range o {
		t := offsetcommit.RequestTopic{Name: topic}
		for id, offset := range parts {
			t.Partitions = append(t.Partitions, offsetcommit.RequestPartition{PartitionIndex: int32(id), CommittedOffset: offset, CommittedLeaderEpoch: -1})
		}
		req.Topics = append(req.Topics, t)
	}
	res, err := k.transport.RoundTrip(ctx, k.addr, req)
	if err != nil {
		return fmt.Errorf("commit offsets: %w", err)
	}
	for _, t := range res.(*offsetcommit.Response).Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return fmt.Errorf("commit offset of %s/%d: %w", t.Name, p.PartitionIndex, kafka.Error(p.ErrorCode))
			}
		}
	}
	return nil
}
