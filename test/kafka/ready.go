package kafka

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// Readiness is a broker's own answer to ApiVersions and Metadata: a Java tool
// that asks the same takes longer to start than the broker.

const (
	askEvery      = 20 * time.Millisecond
	askTimeout    = 2 * time.Second
	createTimeout = 30 * time.Second
)

// ready waits until each of the nodes names every running node as alive.
func (c *Cluster) ready(ctx context.Context, nodes []int) error {
	var want []int
	for i, n := range c.nodes {
		if n.running() {
			want = append(want, i+1)
		}
	}
	for _, i := range nodes {
		if err := c.until(ctx, i, func(ctx context.Context) error { return c.knows(ctx, i, want) }); err != nil {
			return fmt.Errorf("wait for broker %d at %s: %w\n%s", i, c.Addr(i), err, c.nodes[i].words())
		}
	}
	return nil
}

// until asks node i again and again, until the answer is right, its process
// has ended or ctx has.
func (c *Cluster) until(ctx context.Context, i int, ask func(context.Context) error) error {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	proc := c.nodes[i].proc
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-proc.done:
			return fmt.Errorf("its process ended: %v", proc.err)
		case <-ctx.Done():
			return fmt.Errorf("%w; last answer: %w", context.Cause(ctx), err)
		}
	}
}

// knows asks node i once for the brokers that are alive.
func (c *Cluster) knows(ctx context.Context, i int, want []int) error {
	conn, err := c.dial(ctx, i, askTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ApiVersions(); err != nil {
		return fmt.Errorf("ask for API versions: %w", err)
	}
	brokers, err := conn.Brokers()
	if err != nil {
		return fmt.Errorf("ask for metadata: %w", err)
	}
	for _, id := range want {
		if !slices.ContainsFunc(brokers, func(b kafkago.Broker) bool { return b.ID == id }) {
			return fmt.Errorf("node id %d is not registered yet", id)
		}
	}
	return nil
}

// dial connects to node i; everything on the connection must be done within timeout.
func (c *Cluster) dial(ctx context.Context, i int, timeout time.Duration) (*kafkago.Conn, error) {
	d := kafkago.Dialer{Timeout: timeout}
	if c.options.Dialer != nil {
		d = *c.options.Dialer
	}
	conn, err := d.DialContext(ctx, "tcp", c.Addr(i))
	if err != nil {
		return nil, fmt.Errorf("dial broker: %w", err)
	}
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		conn.Close()
		return nil, fmt.Errorf("bound the broker's answer: %w", err)
	}
	return conn, nil
}

// CreateTopic creates a topic and returns when every running node knows a
// leader for each of its partitions.
func (c *Cluster) CreateTopic(ctx context.Context, topic kafkago.TopicConfig) error {
	if topic.ReplicationFactor == 0 {
		topic.ReplicationFactor = c.options.replication()
	}
	conn, err := c.dialController(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.CreateTopics(topic); err != nil {
		return fmt.Errorf("create topic %s: %w", topic.Topic, err)
	}
	for i, n := range c.nodes {
		if !n.running() {
			continue
		}
		if err := c.until(ctx, i, func(ctx context.Context) error { return c.led(ctx, i, topic) }); err != nil {
			return fmt.Errorf("wait for topic %s on broker %d: %w", topic.Topic, i, err)
		}
	}
	return nil
}

// dialController connects to whom a client takes for the controller: in KRaft
// any running broker, which forwards to it.
func (c *Cluster) dialController(ctx context.Context) (*kafkago.Conn, error) {
	for i, n := range c.nodes {
		if n.running() {
			return c.dial(ctx, i, createTimeout)
		}
	}
	return nil, fmt.Errorf("no broker runs: %w", net.ErrClosed)
}

// led asks node i once whether all partitions of the topic have a leader.
func (c *Cluster) led(ctx context.Context, i int, topic kafkago.TopicConfig) error {
	conn, err := c.dial(ctx, i, askTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	partitions, err := conn.ReadPartitions(topic.Topic)
	if err != nil {
		return fmt.Errorf("ask for partitions: %w", err)
	}
	if len(partitions) < topic.NumPartitions {
		return fmt.Errorf("%d of %d partitions are known", len(partitions), topic.NumPartitions)
	}
	for _, p := range partitions {
		if p.Error != nil || p.Leader.Port == 0 {
			return fmt.Errorf("partition %d has no leader yet: %v", p.ID, p.Error)
		}
	}
	return nil
}
