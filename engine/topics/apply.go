package topics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kconsume/kconsume/engine/topology"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/createpartitions"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

const (
	// applyTimeout bounds Apply where its context does not.
	applyTimeout = 60 * time.Second
	backoffMin   = 50 * time.Millisecond
	backoffMax   = time.Second
)

// Apply makes a plan's changes and returns once every broker shows them: a
// group that joins before that is given no partitions. What somebody else made
// meanwhile is accepted as it is; Read and Plan again tell whether it fits. A
// plan with problems is refused. Errors are of type *Error, one for each topic,
// joined; the other topics are made all the same.
func Apply(ctx context.Context, c *kafka.Client, p topology.Plan) error {
	if len(p.Problems) > 0 {
		return errors.Join(p.Problems...)
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	wanted := map[string]int{}
	var create, grow []topology.Change
	for _, ch := range p.Changes {
		wanted[ch.Topic] = ch.Partitions
		switch ch.Action {
		case topology.Create:
			create = append(create, ch)
		case topology.Grow:
			grow = append(grow, ch)
		}
	}
	var errs []error
	errs = append(errs, ask(ctx, c, create, createTopics)...)
	errs = append(errs, ask(ctx, c, grow, createPartitions)...)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return await(ctx, c, wanted)
}

// outcome is a broker's answer about one topic.
type outcome struct {
	topic   string
	code    int16
	message string
}

// asker sends changes to the controller.
type asker func(ctx context.Context, c *kafka.Client, controller int32, changes []topology.Change) (verb string, answers []outcome, err error)

// ask sends changes until each has an answer that is not "later", and returns
// the refusals.
func ask(ctx context.Context, c *kafka.Client, changes []topology.Change, send asker) []error {
	var errs []error
	for wait := newBackoff(); len(changes) > 0; {
		m, err := describe(ctx, c, anyBroker, []string{})
		if err != nil {
			return append(errs, err)
		}
		verb, answers, err := send(ctx, c, m.ControllerID, changes)
		if err != nil {
			return append(errs, err)
		}
		var later []topology.Change
		var last error
		for _, a := range answers {
			i := slices.IndexFunc(changes, func(ch topology.Change) bool { return ch.Topic == a.topic })
			switch {
			case i < 0 || done(changes[i].Action, kafka.Error(a.code)):
			case temporary(kafka.Error(a.code)):
				later = append(later, changes[i])
				last = refusal(c, verb, a.topic, needed(changes, a.topic), a.code, a.message)
			default:
				errs = append(errs, refusal(c, verb, a.topic, needed(changes, a.topic), a.code, a.message))
			}
		}
		if changes = later; len(changes) > 0 && !wait.sleep(ctx) {
			return append(errs, last)
		}
	}
	return errs
}

// needed is the operation by which a topic is changed.
func needed(changes []topology.Change, topic string) Operation {
	for _, ch := range changes {
		if ch.Topic == topic && ch.Action == topology.Grow {
			return Alter
		}
	}
	return Create
}

// done says that a topic is there or on its way: what every broker shows decides.
func done(a topology.Action, code kafka.Error) bool {
	switch code {
	case 0, kafka.TopicAlreadyExists, kafka.RequestTimedOut:
		return true
	case kafka.InvalidPartitionNumber: // it has as many by now
		return a == topology.Grow
	}
	return false
}

func temporary(code kafka.Error) bool {
	switch code {
	case kafka.NotController, kafka.ReassignmentInProgress, kafka.ThrottlingQuotaExceeded:
		return true
	}
	return false
}

func createTopics(ctx context.Context, c *kafka.Client, controller int32, changes []topology.Change) (string, []outcome, error) {
	req := &createtopics.Request{TimeoutMs: int32(requestTimeout.Milliseconds() / 2)}
	for _, ch := range changes {
		t := createtopics.RequestTopic{Name: ch.Topic, NumPartitions: int32(ch.Partitions), ReplicationFactor: int16(ch.Replication)}
		for _, k := range slices.Sorted(maps.Keys(ch.Configs)) {
			t.Configs = append(t.Configs, createtopics.RequestConfig{Name: k, Value: ch.Configs[k]})
		}
		req.Topics = append(req.Topics, t)
	}
	res, err := send[*createtopics.Response](ctx, c, controller, req)
	if err != nil {
		return "", nil, err
	}
	var out []outcome
	for _, t := range res.Topics {
		out = append(out, outcome{t.Name, t.ErrorCode, t.ErrorMessage})
	}
	return "create topic", out, nil
}

func createPartitions(ctx context.Context, c *kafka.Client, controller int32, changes []topology.Change) (string, []outcome, error) {
	req := &createpartitions.Request{TimeoutMs: int32(requestTimeout.Milliseconds() / 2)}
	for _, ch := range changes {
		req.Topics = append(req.Topics, createpartitions.RequestTopic{Name: ch.Topic, Count: int32(ch.Partitions)})
	}
	res, err := send[*createpartitions.Response](ctx, c, controller, req)
	if err != nil {
		return "", nil, err
	}
	var out []outcome
	for _, t := range res.Results {
		out = append(out, outcome{t.Name, t.ErrorCode, t.ErrorMessage})
	}
	return "add partitions", out, nil
}

// await polls every broker until each shows the wanted partitions with a leader.
func await(ctx context.Context, c *kafka.Client, wanted map[string]int) error {
	if len(wanted) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(wanted))
	for wait := newBackoff(); ; {
		missing, err := lacking(ctx, c, names, wanted)
		if err == nil && missing == "" {
			return nil
		}
		if wait.sleep(ctx) {
			continue
		}
		if err != nil {
			return err
		}
		return &Error{Refused, fmt.Errorf("await topics: %s: the brokers do not show it yet: try again", missing)}
	}
}

// lacking names a topic that some broker does not show in full, "" if there is none.
func lacking(ctx context.Context, c *kafka.Client, names []string, wanted map[string]int) (string, error) {
	cluster, err := describe(ctx, c, anyBroker, []string{})
	if err != nil {
		return "", err
	}
	for _, b := range cluster.Brokers {
		m, err := describe(ctx, c, b.NodeID, names)
		if err != nil {
			return "", err
		}
		for _, t := range m.Topics {
			if n := led(t); n < wanted[t.Name] {
				return fmt.Sprintf("topic %s has %d of %d partitions on broker %d", t.Name, n, wanted[t.Name], b.NodeID), nil
			}
		}
	}
	return "", nil
}

// led counts the partitions that have a leader.
func led(t metadata.ResponseTopic) int {
	n := 0
	for _, p := range t.Partitions {
		if p.ErrorCode == 0 && p.LeaderID >= 0 {
			n++
		}
	}
	return n
}

type backoff struct{ next time.Duration }

func newBackoff() *backoff { return &backoff{backoffMin} }

// sleep waits, doubling, and reports false once the context has ended.
func (b *backoff) sleep(ctx context.Context) bool {
	t := time.NewTimer(b.next)
	defer t.Stop()
	b.next = min(2*b.next, backoffMax)
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
