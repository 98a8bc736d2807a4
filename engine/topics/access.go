package topics

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/describegroups"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// Operation is what an ACL allows, as kafka-acls spells it.
type Operation string

const (
	Describe        Operation = "Describe"
	DescribeConfigs Operation = "DescribeConfigs"
	ReadFrom        Operation = "Read"
	WriteTo         Operation = "Write"
	Create          Operation = "Create"
	Alter           Operation = "Alter"
)

// bit is the operation's in the sets that brokers answer with.
func (o Operation) bit() int32 {
	return 1 << map[Operation]int{ReadFrom: 3, WriteTo: 4, Create: 5, Alter: 7, Describe: 8, DescribeConfigs: 10}[o]
}

// Need is a permission on a topic or on a group.
type Need struct {
	Resource  string // "topic" or "group"
	Name      string
	Operation Operation
}

// OnTopic is a need on a topic.
func OnTopic(name string, o Operation) Need { return Need{"topic", name, o} }

// OnGroup is a need on a group.
func OnGroup(name string, o Operation) Need { return Need{"group", name, o} }

// Grant is the kafka-acls command that gives a permission to a principal, "" =
// it is not known. Where to ask and as whom is left to who runs it.
func (n Need) Grant(principal string) string {
	return fmt.Sprintf("kafka-acls --add --allow-principal %s --operation %s --%s %s",
		quoted(orUnknown(principal)), n.Operation, n.Resource, quoted(n.Name))
}

// Advice is ": " and the grant where an error says that the permission is
// missing, else "". It is put behind what failed.
func (n Need) Advice(c *kafka.Client, err error) string {
	denied := kafka.TopicAuthorizationFailed
	if n.Resource == "group" {
		denied = kafka.GroupAuthorizationFailed
	}
	if !errors.Is(err, denied) {
		return ""
	}
	return ": " + n.Grant(Principal(c.Transport))
}

func orUnknown(principal string) string {
	if principal == "" {
		return "User:<this client>"
	}
	return principal
}

// quoted is a word for a shell.
func quoted(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:@/+-") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Principal is whom brokers take the user of a transport for, "" = not known.
func Principal(t kafka.RoundTripper) string {
	if p, ok := t.(interface{ Principal() string }); ok {
		return p.Principal()
	}
	return ""
}

// Allowed asks the brokers which of the needs they do not grant, and returns an
// *Error of class Denied for each, joined. A broker that does not tell, as those
// before Kafka 2.3, grants all.
func Allowed(ctx context.Context, c *kafka.Client, needs []Need) error {
	granted := map[string]int32{}
	var names []string
	for _, n := range needs {
		if _, asked := granted[n.Resource+" "+n.Name]; asked {
			continue
		}
		granted[n.Resource+" "+n.Name] = everything
		if n.Resource == "topic" {
			names = append(names, n.Name)
			continue
		}
		ops, err := groupOperations(ctx, c, n.Name)
		if err != nil {
			return err
		}
		granted[n.Resource+" "+n.Name] = ops
	}
	res, err := send[*metadata.Response](ctx, c, anyBroker, &metadata.Request{TopicNames: names, IncludeTopicAuthorizedOperations: true})
	if err != nil {
		return err
	}
	for _, t := range res.Topics {
		granted["topic "+t.Name] = operations(t.ErrorCode, t.TopicAuthorizedOperations)
	}
	var errs []error
	for _, n := range needs {
		if granted[n.Resource+" "+n.Name]&n.Operation.bit() == 0 {
			errs = append(errs, &Error{Denied, fmt.Errorf("%s %s: denied: this client may not %s it: %s", n.Resource, n.Name, n.Operation, n.Grant(Principal(c.Transport)))})
		}
	}
	return errors.Join(errs...)
}

const (
	everything = ^int32(0)
	untold     = -1 << 31 // what a broker answers that was not asked
)

// operations are those that an answer about one resource grants.
func operations(code int16, set int32) int32 {
	switch {
	case kafka.Error(code) == kafka.TopicAuthorizationFailed || kafka.Error(code) == kafka.GroupAuthorizationFailed:
		// Not even that it is there may be known: to read or to write implies that.
		// Of the rest nothing is known yet.
		return everything &^ (Describe.bit() | ReadFrom.bit() | WriteTo.bit())
	case code != 0 || set == 0 || set == untold:
		return everything
	}
	return set
}

func groupOperations(ctx context.Context, c *kafka.Client, group string) (int32, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	res, err := c.Transport.RoundTrip(ctx, c.Addr, &describegroups.Request{Groups: []string{group}, IncludeAuthorizedOperations: true})
	if err != nil {
		return 0, unreachable(c.Addr, err)
	}
	for _, g := range res.(*describegroups.Response).Groups {
		return operations(g.ErrorCode, g.AuthorizedOperations), nil
	}
	return everything, nil
}
