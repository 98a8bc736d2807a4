package topics

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/kconsume/kconsume/engine/secure"
	"github.com/segmentio/kafka-go"
)

// Class is the kind of an Error.
type Class string

const (
	Unreachable Class = "unreachable" // no broker answered
	Denied      Class = "denied"      // an ACL is missing
	Refused     Class = "refused"     // the broker answered that it will not
	Insecure    Class = "insecure"    // a setting or a file of TLS or SASL does not fit
)

// Error is a failure to read or to change a cluster's topics. Its text is one line.
type Error struct {
	Class Class
	Err   error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// ClassOf is the class of the first Error in err's tree, "" if there is none.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return ""
}

func unreachable(addr net.Addr, err error) error {
	switch secure.KindOf(err) { // it says what to do, and names the broker
	case secure.Denied:
		return &Error{Denied, err}
	case secure.Setting:
		return &Error{Insecure, err}
	case secure.Unavailable:
		return &Error{Unreachable, err}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("no answer in time")
	}
	return &Error{Unreachable, fmt.Errorf("reach brokers: %s: %w: check --brokers and that they listen", addr, err)}
}

// refusal says why a broker will not do what was asked of one topic.
func refusal(c *kafka.Client, verb, topic string, operation Operation, code int16, message string) error {
	cause := kafka.Error(code)
	switch cause {
	case kafka.TopicAuthorizationFailed, kafka.ClusterAuthorizationFailed:
		grant := OnTopic(topic, operation).Grant(Principal(c.Transport))
		return &Error{Denied, fmt.Errorf("%s: topic %s: denied: this client may not %s it: %s", verb, topic, operation, grant)}
	}
	reason := cause.Title()
	if message != "" {
		reason += " (" + message + ")"
	}
	return &Error{Refused, fmt.Errorf("%s: topic %s: %s: %w", verb, topic, reason, cause)}
}
