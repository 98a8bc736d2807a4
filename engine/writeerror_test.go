package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"
)

func TestPositions(t *testing.T) {
	lost := errors.New("connection reset")
	msgs := make([]kafka.Message, 3)
	for i := range msgs {
		msgs[i].WriterData = &receipt{at: i}
	}
	refused := kafka.MessageTooLargeError{Message: msgs[1], Remaining: []kafka.Message{msgs[0], msgs[2]}}
	for name, c := range map[string]struct {
		err  error
		want []error
	}{
		"written":                 {nil, nil},
		"one of three":            {kafka.WriteErrors{nil, kafka.NotEnoughReplicas, nil}, []error{nil, kafka.NotEnoughReplicas, nil}},
		"the whole call":          {lost, []error{lost, lost, lost}},
		"the whole call, wrapped": {fmt.Errorf("produce: %w", context.DeadlineExceeded), []error{context.DeadlineExceeded, context.DeadlineExceeded, context.DeadlineExceeded}},
		"the client refuses one":  {refused, []error{errNotSent, kafka.MessageSizeTooLarge, errNotSent}},
	} {
		got := positions(c.err, len(msgs))
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
			continue
		}
		for i := range got {
			if !errors.Is(got[i], c.want[i]) {
				t.Errorf("%s: position %d is %v, want %v", name, i, got[i], c.want[i])
			}
		}
	}
}

func TestFailureOf(t *testing.T) {
	for _, c := range []struct {
		err    error
		kind   writeKind
		reason string
		says   string
	}{
		{kafka.LeaderNotAvailable, writeTemporary, "leader", "tried again"},
		{kafka.NotLeaderForPartition, writeTemporary, "leader", "tried again"},
		{kafka.RequestTimedOut, writeTemporary, "timeout", "same id"},
		{fmt.Errorf("write: %w", context.DeadlineExceeded), writeTemporary, "timeout", "same id"},
		{kafka.UnknownTopicOrPartition, writeConfiguration, "unknown_topic", "create orders.dlq"},
		{kafka.TopicAuthorizationFailed, writeConfiguration, "denied", "allow this user"},
		{fmt.Errorf("%w: too large", kafka.MessageSizeTooLarge), writeConfiguration, "too_large", "max.message.bytes of orders.dlq"},
		{kafka.MessageTooLargeError{}, writeConfiguration, "too_large", "max.message.bytes"},
		{kafka.InvalidTimestamp, writeConfiguration, "timestamp", "LogAppendTime"},
		{kafka.InvalidRecord, writeConfiguration, "invalid_record", "compact"},
		{kafka.NotEnoughReplicas, writeCluster, "replicas", "min.insync.replicas"},
		{kafka.NotEnoughReplicasAfterAppend, writeCluster, "replicas", "min.insync.replicas"},
		{kafka.KafkaStorageError, writeCluster, "storage", "disk"},
		{kafka.ThrottlingQuotaExceeded, writeTemporary, "broker", ""},
		{kafka.Unknown, writeCluster, "broker", ""},
		{io.ErrUnexpectedEOF, writeTemporary, "network", ""},
		{io.ErrClosedPipe, writeTemporary, "closed", ""},
	} {
		f := failureOf(c.err)
		if f.kind != c.kind || f.reason != c.reason {
			t.Errorf("%v: %s, %s; want %s, %s", c.err, f.kind, f.reason, c.kind, c.reason)
		}
		if text := f.problem("orders.dlq", c.err); !strings.Contains(text, c.says) || !strings.Contains(text, "orders.dlq") {
			t.Errorf("%v: %q does not say %q", c.err, text, c.says)
		}
	}
}
