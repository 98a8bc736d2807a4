package topics

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/describegroups"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

func TestGrant(t *testing.T) {
	for _, c := range []struct {
		n         Need
		principal string
		want      string
	}{
		{Need{"topic", "orders", ReadFrom}, "User:billing", "kafka-acls --add --allow-principal User:billing --operation Read --topic orders"},
		{Need{"topic", "orders.dlq.state", DescribeConfigs}, "User:billing", "kafka-acls --add --allow-principal User:billing --operation DescribeConfigs --topic orders.dlq.state"},
		{Need{"group", "it's a $group", ReadFrom}, "User:CN=billing,O=Example", `kafka-acls --add --allow-principal 'User:CN=billing,O=Example' --operation Read --group 'it'\''s a $group'`},
		{Need{"topic", "o", Create}, "", "kafka-acls --add --allow-principal 'User:<this client>' --operation Create --topic o"},
		{Need{"group", "", ReadFrom}, "User:u", "kafka-acls --add --allow-principal User:u --operation Read --group ''"},
	} {
		if got := c.n.Grant(c.principal); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// told answers with what a broker says of permissions.
type told struct {
	topics map[string]metadata.ResponseTopic
	group  describegroups.ResponseGroup
}

func (told) Principal() string { return "User:billing" }

func (w told) RoundTrip(_ context.Context, _ net.Addr, req kafka.Request) (kafka.Response, error) {
	if _, ok := req.(*describegroups.Request); ok {
		return &describegroups.Response{Groups: []describegroups.ResponseGroup{w.group}}, nil
	}
	asked := req.(*exchange).Message.(*metadata.Request)
	if !asked.IncludeTopicAuthorizedOperations || asked.AllowAutoTopicCreation {
		return nil, fmt.Errorf("asked with %+v", asked)
	}
	res := &metadata.Response{}
	for _, name := range asked.TopicNames {
		t := w.topics[name]
		t.Name = name
		res.Topics = append(res.Topics, t)
	}
	return answer{res}, nil
}

func TestAllowed(t *testing.T) {
	bits := func(ops ...Operation) (set int32) {
		for _, o := range ops {
			set |= o.bit()
		}
		return set
	}
	all := []Need{{"group", "g", ReadFrom}, {"topic", "o", ReadFrom}, {"topic", "o", DescribeConfigs}, {"topic", "o.dlq", WriteTo}}
	fine := metadata.ResponseTopic{TopicAuthorizedOperations: bits(ReadFrom, WriteTo, Describe, DescribeConfigs)}
	for _, c := range []struct {
		name  string
		o     metadata.ResponseTopic
		dlq   metadata.ResponseTopic
		group describegroups.ResponseGroup
		want  []string // of each error
	}{
		{"all of it", fine, fine, describegroups.ResponseGroup{AuthorizedOperations: bits(ReadFrom, Describe)}, nil},
		{"a broker that does not tell", metadata.ResponseTopic{TopicAuthorizedOperations: untold}, metadata.ResponseTopic{}, describegroups.ResponseGroup{AuthorizedOperations: untold}, nil},
		{"topics that are not there yet", metadata.ResponseTopic{ErrorCode: int16(kafka.UnknownTopicOrPartition)}, metadata.ResponseTopic{ErrorCode: int16(kafka.UnknownTopicOrPartition)}, describegroups.ResponseGroup{}, nil},
		{"a coordinator that moves", fine, fine, describegroups.ResponseGroup{ErrorCode: int16(kafka.NotCoordinatorForGroup)}, nil},
		{"no reading", metadata.ResponseTopic{TopicAuthorizedOperations: bits(Describe, DescribeConfigs)}, fine, describegroups.ResponseGroup{}, []string{"--operation Read --topic o"}},
		{"no settings", metadata.ResponseTopic{TopicAuthorizedOperations: bits(ReadFrom, Describe)}, fine, describegroups.ResponseGroup{}, []string{"--operation DescribeConfigs --topic o"}},
		{"not to be seen", metadata.ResponseTopic{ErrorCode: int16(kafka.TopicAuthorizationFailed)}, metadata.ResponseTopic{ErrorCode: int16(kafka.TopicAuthorizationFailed)}, describegroups.ResponseGroup{}, []string{"--operation Read --topic o", "--operation Write --topic o.dlq"}},
		{"no group", fine, fine, describegroups.ResponseGroup{ErrorCode: int16(kafka.GroupAuthorizationFailed)}, []string{"--operation Read --group g"}},
		{"a group to look at", fine, fine, describegroups.ResponseGroup{AuthorizedOperations: bits(Describe)}, []string{"--operation Read --group g"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Allowed(t.Context(), &kafka.Client{Transport: told{map[string]metadata.ResponseTopic{"o": c.o, "o.dlq": c.dlq}, c.group}}, all)
			if (err == nil) != (len(c.want) == 0) {
				t.Fatalf("%v, want %q", err, c.want)
			}
			if err == nil {
				return
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(c.want) || ClassOf(err) != Denied {
				t.Fatalf("%q, want %q", lines, c.want)
			}
			for i, want := range c.want {
				if !strings.HasSuffix(lines[i], "kafka-acls --add --allow-principal User:billing "+want) {
					t.Errorf("%q does not end with %q", lines[i], want)
				}
			}
		})
	}
}

func TestAdvice(t *testing.T) {
	c := &kafka.Client{Transport: told{}}
	topic, group := Need{"topic", "o", WriteTo}, Need{"group", "g", ReadFrom}
	for _, one := range []struct {
		n    Need
		err  error
		want bool
	}{
		{topic, fmt.Errorf("write: %w", kafka.TopicAuthorizationFailed), true},
		{topic, kafka.GroupAuthorizationFailed, false},
		{topic, kafka.NotLeaderForPartition, false},
		{topic, nil, false},
		{group, kafka.GroupAuthorizationFailed, true},
		{group, kafka.TopicAuthorizationFailed, false},
	} {
		want := ""
		if one.want {
			want = ": " + one.n.Grant("User:billing")
		}
		if got := one.n.Advice(c, one.err); got != want {
			t.Errorf("%v, %v: %q", one.n, one.err, got)
		}
	}
}
