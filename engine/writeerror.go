package engine

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/segmentio/kafka-go"
)

// writeKind says whom a failed write calls for. It labels metrics.
type writeKind string

const (
	writeTemporary     writeKind = "temporary"     // nobody: it passes, as a moved leader does
	writeConfiguration writeKind = "configuration" // whoever sets up topics and permissions
	writeCluster       writeKind = "cluster"       // whoever runs the brokers: the cluster is ill
)

// writeFailure is a failed write in bounded words. The zero value is none.
type writeFailure struct {
	kind   writeKind
	reason string
}

func (f writeFailure) tooLarge() bool { return f.reason == "too_large" }

// errNotSent is the result of a record that shared a call with one that the
// client refused: it was not tried, and nothing is wrong with it.
var errNotSent = errors.New("not sent: another record of its batch is too large")

// positions turns the result of a write into one error per record, nil where
// the broker has acknowledged it: such a record is never sent again. A failure
// of the whole call leaves every outcome unknown, and all are sent again with
// the same id; only where the client itself refused a record is it certain that
// nothing was sent, and which one it was.
func positions(err error, n int) []error {
	if err == nil {
		return nil
	}
	if each, ok := errors.AsType[kafka.WriteErrors](err); ok && len(each) == n {
		return each
	}
	all := make([]error, n)
	for i := range all {
		all[i] = err
	}
	if refused, ok := errors.AsType[kafka.MessageTooLargeError](err); ok {
		if r, known := refused.Message.WriterData.(*receipt); known && r.at < n {
			for i := range all {
				all[i] = errNotSent
			}
			all[r.at] = err
		}
	}
	return all
}

// failureOf puts a record's error into bounded words.
func failureOf(err error) writeFailure {
	for _, k := range []struct {
		is   error
		what writeFailure
	}{
		{kafka.MessageSizeTooLarge, writeFailure{writeConfiguration, "too_large"}},
		{kafka.UnknownTopicOrPartition, writeFailure{writeConfiguration, "unknown_topic"}},
		{kafka.TopicAuthorizationFailed, writeFailure{writeConfiguration, "denied"}},
		{kafka.ClusterAuthorizationFailed, writeFailure{writeConfiguration, "denied"}},
		{kafka.InvalidTimestamp, writeFailure{writeConfiguration, "timestamp"}},
		{kafka.InvalidRecord, writeFailure{writeConfiguration, "invalid_record"}},
		{kafka.InvalidMessage, writeFailure{writeConfiguration, "invalid_record"}},
		{kafka.PolicyViolation, writeFailure{writeConfiguration, "policy"}},
		{kafka.NotEnoughReplicas, writeFailure{writeCluster, "replicas"}},
		{kafka.NotEnoughReplicasAfterAppend, writeFailure{writeCluster, "replicas"}},
		{kafka.KafkaStorageError, writeFailure{writeCluster, "storage"}},
		{kafka.LeaderNotAvailable, writeFailure{writeTemporary, "leader"}},
		{kafka.NotLeaderForPartition, writeFailure{writeTemporary, "leader"}},
		{kafka.RequestTimedOut, writeFailure{writeTemporary, "timeout"}},
		{context.DeadlineExceeded, writeFailure{writeTemporary, "timeout"}},
		{context.Canceled, writeFailure{writeTemporary, "cancelled"}},
		{io.ErrClosedPipe, writeFailure{writeTemporary, "closed"}},
	} {
		if errors.Is(err, k.is) {
			return k.what
		}
	}
	switch e, fromBroker := errors.AsType[kafka.Error](err); {
	case !fromBroker:
		return writeFailure{writeTemporary, "network"}
	case e.Temporary():
		return writeFailure{writeTemporary, "broker"}
	}
	return writeFailure{writeCluster, "broker"}
}

// problem says what failed and what to do about it.
func (f writeFailure) problem(topic string, err error) string {
	hint := "it is tried again until it succeeds"
	switch f.reason {
	case "too_large":
		hint = "raise max.message.bytes of " + topic + "; it goes on by itself then"
	case "unknown_topic":
		hint = "create " + topic + "; it goes on by itself then"
	case "denied":
		hint = "allow this user to write to " + topic + "; it goes on by itself then"
	case "timestamp":
		hint = "set message.timestamp.type=LogAppendTime on " + topic + ", or correct this host's clock"
	case "invalid_record":
		hint = "see whether " + topic + " has cleanup.policy=compact, which takes no record without a key, and set it to delete"
	case "policy":
		hint = "the brokers' own policy refuses it: ask who runs them"
	case "replicas":
		hint = "the cluster is ill: fewer replicas are in sync than min.insync.replicas of " + topic + " asks for; look at its brokers"
	case "storage":
		hint = "the cluster is ill: a broker cannot write to its disk"
	case "timeout":
		hint = "whether it was written is not known: it is written again with the same id"
	}
	return fmt.Sprintf("cannot write to %s: %v: %s", topic, err, hint)
}
