package topics

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kconsume/kconsume/engine/topology"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type cluster struct {
	*kfake.Cluster
	*kafka.Client
}

func newCluster(t *testing.T, opts ...kfake.Opt) cluster {
	t.Helper()
	k, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3), kfake.AllowAutoTopicCreation()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	// A cache of one topic only: what is read and awaited must not depend on it.
	transport := &kafka.Transport{MetadataTopics: []string{"o"}, ClientID: "kconsume-test"}
	t.Cleanup(transport.CloseIdleConnections)
	return cluster{k, &kafka.Client{Addr: kafka.TCP(k.ListenAddrs()...), Transport: transport, Timeout: 5 * time.Second}}
}

func newTopology(t *testing.T, topics ...string) *topology.Topology {
	t.Helper()
	top, err := topology.New(topology.Config{
		Group: "g", Topics: topics, Retry: []time.Duration{5 * time.Second},
		RetryTopic: topology.DefaultRetryTopic, DLQTopic: topology.DefaultDLQTopic,
	})
	if err != nil {
		t.Fatal(err)
	}
	return top
}

func read(t *testing.T, c cluster, top *topology.Topology) topology.Actual {
	t.Helper()
	a, err := Read(t.Context(), c.Client, top)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestReadCreatesNothing(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(4, "o", "unrelated"))
	for range 2 {
		a := read(t, c, newTopology(t, "o", "absent"))
		slices.Sort(a.Names)
		if !slices.Equal(a.Names, []string{"o", "unrelated"}) {
			t.Fatalf("names %v", a.Names)
		}
		if got := slices.Collect(maps.Keys(a.Topics)); !slices.Equal(got, []string{"o"}) {
			t.Fatalf("topics %v", got)
		}
		o := a.Topics["o"]
		if o.Partitions != 4 || o.Replication != 3 {
			t.Errorf("%+v", o)
		}
		for _, s := range topology.Settings() {
			if o.Configs[s] == "" && s != topology.MinCompactionLag { // which this broker tells only where it was set
				t.Errorf("no %s: %v", s, o.Configs)
			}
		}
	}
}

func TestApplyMakesWhatThePlanSays(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(4, "o"))
	top := newTopology(t, "o")
	policy := topology.Policy{Create: true}
	plan := top.Plan(read(t, c, top), policy)
	if len(plan.Changes) != 4 {
		t.Fatalf("%+v", plan)
	}
	if err := Apply(t.Context(), c.Client, plan); err != nil {
		t.Fatal(err)
	}
	a := read(t, c, top)
	for _, ch := range plan.Changes {
		got := a.Topics[ch.Topic]
		if got.Partitions != ch.Partitions || got.Replication != 3 {
			t.Errorf("%s: %+v", ch.Topic, got)
		}
		for k, v := range ch.Configs {
			if got.Configs[k] != v {
				t.Errorf("%s: %s=%s, want %s", ch.Topic, k, got.Configs[k], v)
			}
		}
	}
	if again := top.Plan(a, policy); len(again.Changes)+len(again.Problems)+len(again.Warnings) > 0 {
		t.Errorf("planned again: %+v", again)
	}
}

func TestApplyGrows(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(6, "o", "o.replay", "o.dlq"), kfake.SeedTopics(2, "o.retry.5s"))
	if err := c.CreateTopic("o.dlq.state", 1, map[string]string{topology.CleanupPolicy: "compact"}); err != nil {
		t.Fatal(err)
	}
	top := newTopology(t, "o")
	plan := top.Plan(read(t, c, top), topology.Policy{Create: true})
	if len(plan.Changes) != 1 || plan.Changes[0].Action != topology.Grow {
		t.Fatalf("%+v", plan)
	}
	for range 2 { // the second finds it done
		if err := Apply(t.Context(), c.Client, plan); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, c, top).Topics["o.retry.5s"].Partitions; got != 6 {
		t.Errorf("%d partitions", got)
	}
}

// Somebody else made them between the plan and its application.
func TestApplyAcceptsWhatExists(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(4, "o"))
	top := newTopology(t, "o")
	plan := top.Plan(read(t, c, top), topology.Policy{Create: true})
	for range 2 {
		if err := Apply(t.Context(), c.Client, plan); err != nil {
			t.Fatal(err)
		}
	}
}

// A broker that has not heard of a topic yet would have the group join without it.
func TestApplyWaitsForEveryBroker(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(4, "o"))
	top := newTopology(t, "o")
	plan := top.Plan(read(t, c, top), topology.Policy{Create: true})
	var mu sync.Mutex
	late := map[int32]int{} // node → answers that deny a topic
	asked := map[int32]int{}
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.MetadataRequest)
		if req.AllowAutoTopicCreation {
			t.Error("a request may create topics")
		}
		if len(req.Topics) < 3 {
			return nil, nil, false
		}
		node := c.CurrentNode()
		mu.Lock()
		defer mu.Unlock()
		asked[node]++
		if node != 2 || late[node] >= 2 {
			return nil, nil, false
		}
		late[node]++
		res := req.ResponseKind().(*kmsg.MetadataResponse)
		for _, rt := range req.Topics {
			mt := kmsg.NewMetadataResponseTopic()
			mt.Topic, mt.ErrorCode = rt.Topic, kerr.UnknownTopicOrPartition.Code
			res.Topics = append(res.Topics, mt)
		}
		return res, nil, true
	})
	if err := Apply(t.Context(), c.Client, plan); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if late[2] != 2 || asked[2] != 3 || asked[0] == 0 || asked[1] == 0 {
		t.Errorf("asked %v, late %v", asked, late)
	}
}

func TestApplyTriesAnotherController(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(4, "o"))
	top := newTopology(t, "o")
	plan := top.Plan(read(t, c, top), topology.Policy{Create: true})
	h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: "o.dlq", Err: kerr.NotController, Count: 2})
	if err := Apply(t.Context(), c.Client, plan); err != nil {
		t.Fatal(err)
	}
	if h.Hits() != 2 {
		t.Errorf("%d hits", h.Hits())
	}
	if got := read(t, c, top).Topics["o.dlq"].Partitions; got != 4 {
		t.Errorf("o.dlq has %d partitions", got)
	}
}

func TestRefusalsNameTheTopic(t *testing.T) {
	for _, f := range []struct {
		name  string
		fault kfake.Fault
		class Class
		want  []string
	}{
		{"describe", kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "o.dlq", Err: kerr.TopicAuthorizationFailed}, Denied, []string{"topic o.dlq", "Describe"}},
		{"settings", kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Resource: "o", Err: kerr.TopicAuthorizationFailed}, Denied, []string{"topic o:", "DescribeConfigs"}},
		{"create", kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: "o.dlq", Err: kerr.TopicAuthorizationFailed}, Denied, []string{"create topic: topic o.dlq", "Create"}},
		{"policy", kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: "o.dlq", Err: kerr.PolicyViolation}, Refused, []string{"create topic: topic o.dlq", "Policy Violation"}},
	} {
		t.Run(f.name, func(t *testing.T) {
			c := newCluster(t, kfake.SeedTopics(4, "o"))
			f.fault.Count = -1
			h := c.Fault(f.fault)
			defer h.Remove()
			top := newTopology(t, "o")
			a, err := Read(t.Context(), c.Client, top)
			if err == nil {
				err = Apply(t.Context(), c.Client, top.Plan(a, topology.Policy{Create: true}))
			}
			if ClassOf(err) != f.class {
				t.Fatalf("class %q of %v, want %q", ClassOf(err), err, f.class)
			}
			for _, w := range f.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is not one line", err)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	c := newCluster(t)
	c.Close()
	_, err := Read(t.Context(), c.Client, newTopology(t, "o"))
	if ClassOf(err) != Unreachable || !strings.Contains(err.Error(), "--brokers") {
		t.Errorf("class %q of %v", ClassOf(err), err)
	}
}

func TestApplyRefusesProblems(t *testing.T) {
	c := newCluster(t)
	problem := errors.New("no")
	err := Apply(t.Context(), c.Client, topology.Plan{
		Problems: []error{problem},
		Changes:  []topology.Change{{Action: topology.Create, Topic: "x", Partitions: 1, Replication: 1}},
	})
	if !errors.Is(err, problem) {
		t.Errorf("%v", err)
	}
	if a := read(t, c, newTopology(t, "x")); len(a.Names) > 0 {
		t.Errorf("made %v", a.Names)
	}
}

// A wait that cannot succeed ends with its context and says what it waited for.
func TestAwaitEndsWithItsContext(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(2, "o"))
	ctx, cancel := context.WithCancel(t.Context())
	h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "o", Observe: true, Count: -1, When: func(r kmsg.Request) bool {
		if len(r.(*kmsg.MetadataRequest).Topics) == 1 {
			cancel()
		}
		return false
	}})
	defer h.Remove()
	err := await(ctx, c.Client, map[string]int{"o": 3})
	if err == nil {
		t.Fatal("found three partitions of two")
	}
}
