// Package operate proves on real Kafka, with real processes, what is promised of
// DLQ operations: nothing is lost and nothing sent twice silently, whoever is
// killed; two daemons agree; a topic made anew is another topic; bad input is
// refused. What was sent is counted by kcat, which shares no code with us.
package operate

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kconsume/kconsume/admin/dlq"
	"github.com/kconsume/kconsume/test/kafka"
	"github.com/kconsume/kconsume/test/kcat"
	"github.com/kconsume/kconsume/test/operate/lab"
	kafkago "github.com/segmentio/kafka-go"
)

// fullEnv names the variable that asks for everything: every write of a job as
// a place to kill at, and twenty rounds of races. Without it a share is run.
const fullEnv = "KCONSUME_OPERATE_FULL"

var (
	broker kafka.Shared // behind proxy
	proxy  *lab.Proxy
	bin    string
)

// waiters is how many tests may wait beside each other: they do little else.
const waiters = "14"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := flag.Set("test.parallel", waiters); err != nil {
		return fail(err)
	}
	var err error
	if bin, err = lab.Build(); err != nil {
		return fail(err)
	}
	defer os.RemoveAll(bin)
	if proxy, err = lab.NewProxy(); err != nil {
		return fail(err)
	}
	defer proxy.Close()
	broker.Options.Properties = map[string]string{"advertised.listeners": "PLAINTEXT://" + proxy.Address}
	return broker.Run(m)
}

// cluster is the shared one, reached through the proxy.
func cluster(t *testing.T) *kafka.Cluster {
	t.Helper()
	c := broker.Cluster(t)
	proxy.SetTarget(c.Addr(0))
	return c
}

// scene is a main topic with its DLQ, and daemons of one group on it.
type scene struct {
	t          *testing.T
	topic      string
	dlq        string
	group      string
	bootstrap  string
	partitions int
	proxy      *lab.Proxy
	daemons    int
}

func newScene(t *testing.T, topic string, partitions int) *scene {
	t.Helper()
	return stage(t, cluster(t), proxy, topic, partitions)
}

func stage(t *testing.T, c *kafka.Cluster, p *lab.Proxy, topic string, partitions int) *scene {
	t.Helper()
	for _, cfg := range []kafkago.TopicConfig{{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}, lab.DLQ(topic, partitions)} {
		if err := c.CreateTopic(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	return &scene{t: t, topic: topic, dlq: topic + ".dlq", group: topic + "-group", bootstrap: c.Bootstrap(), partitions: partitions, proxy: p}
}

// handled are failures of which every copy is handled.
func handled() []lab.Failure {
	return []lab.Failure{{Class: "permanent", Code: "503", Message: "gateway %d is busy", Handler: "orders@1.4.2", Value: "ok"}}
}

// refused are failures of which every copy fails again.
func refused() []lab.Failure {
	return []lab.Failure{{Class: "permanent", Code: "404", Message: "customer %d is not known", Handler: "orders@1.4.2", Value: "perm"}}
}

// letters writes n dead letters from a number on.
func (s *scene) letters(first, n int, fs []lab.Failure) {
	s.t.Helper()
	l := lab.Letters{Topic: s.topic, Group: s.group, Partitions: int32(s.partitions), First: first, N: n, Failures: fs}
	if err := l.Write(s.t.Context(), s.bootstrap); err != nil {
		s.t.Fatal(err)
	}
}

// start starts a daemon of the group; its client id is the second value.
func (s *scene) start(flags ...string) (*lab.Daemon, string) {
	s.t.Helper()
	s.daemons++
	client := s.topic + "-" + strconv.Itoa(s.daemons)
	d := lab.Start(s.t, lab.Options{Bin: bin, Bootstrap: s.bootstrap, Group: s.group, Topic: s.topic, Flags: append([]string{"--client-id", client}, flags...)})
	return d, client
}

// plan makes a plan of all that are new.
func (s *scene) plan(api *lab.API, r dlq.PlanRequest) dlq.Plan {
	s.t.Helper()
	if r.Action == "" {
		r.Action = dlq.ActionReplay
	}
	var p dlq.Plan
	lab.Until(s.t, "the plan is made", func() bool {
		got := api.Do(s.t, http.MethodPost, "/v1/dlq/"+s.dlq+"/plans", r)
		if got.Status == http.StatusServiceUnavailable { // the daemon has just begun
			return false
		}
		decodeAs(s.t, got, http.StatusCreated, &p)
		return true
	})
	return p
}

// apply applies a plan.
func (s *scene) apply(api *lab.API, digest string, header ...string) dlq.Job {
	s.t.Helper()
	var j dlq.Job
	api.Want(s.t, http.StatusAccepted, http.MethodPost, "/v1/plans/"+digest+"/apply", nil, &j, header...)
	return j
}

// ended waits for a job's end, at whoever answers.
func (s *scene) ended(id string, apis ...*lab.API) (j dlq.Job) {
	s.t.Helper()
	lab.Until(s.t, "job "+id+" ends", func() bool { return ask(s.t, "/v1/jobs/"+id, &j, apis...) && j.Status.Ended() })
	return j
}

// settled waits until it is known of all copies of a job how they ended.
func (s *scene) settled(id string, apis ...*lab.API) (j dlq.Job) {
	s.t.Helper()
	lab.Until(s.t, "all copies of job "+id+" have ended", func() bool {
		return ask(s.t, "/v1/jobs/"+id, &j, apis...) && j.Status.Ended() && j.Succeeded+j.Failed >= j.Done
	})
	return j
}

// ask reads something from the first daemon that has it.
func ask(t *testing.T, path string, v any, apis ...*lab.API) bool {
	t.Helper()
	for _, a := range apis {
		got, err := a.Try(t.Context(), http.MethodGet, path, nil)
		if err == nil && got.Status == http.StatusOK {
			decodeAs(t, got, http.StatusOK, v)
			return true
		}
	}
	return false
}

// messages are all dead letters that a query means.
func (s *scene) messages(api *lab.API, query url.Values) (all []dlq.Message) {
	s.t.Helper()
	q := url.Values{"limit": {"500"}, "order": {"oldest"}}
	for name, v := range query {
		q[name] = v
	}
	for {
		var page dlq.MessagePage
		api.Get(s.t, "/v1/dlq/"+s.dlq+"/messages?"+q.Encode(), &page)
		all = append(all, page.Messages...)
		if page.Cursor == "" {
			return all
		}
		q.Set("cursor", page.Cursor)
	}
}

// statuses counts dead letters by status.
func (s *scene) statuses(api *lab.API) map[dlq.Status]int {
	s.t.Helper()
	out := map[dlq.Status]int{}
	for _, m := range s.messages(api, nil) {
		out[m.State.Status]++
	}
	return out
}

// copies counts a topic's records by a header, as kcat reads them.
func (s *scene) copies(topic, header string) map[string]int {
	s.t.Helper()
	out := map[string]int{}
	for _, r := range kcat.Consume(s.t, s.bootstrap, topic) {
		out[headerOf(r, header)]++
	}
	return out
}

func headerOf(r kcat.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// twice are the keys that were counted more than once.
func twice(counts map[string]int) (out []string) {
	for key, n := range counts {
		if n > 1 {
			out = append(out, fmt.Sprintf("%s (%d times)", key, n))
		}
	}
	slices.Sort(out)
	return out
}

// client asks the brokers themselves.
func (s *scene) client() *kafkago.Client {
	transport := &kafkago.Transport{}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &kafkago.Client{Addr: kafkago.TCP(s.bootstrap), Timeout: 10 * time.Second, Transport: transport}
}

// wait is a context for work at the side of a test.
func wait(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func kindOf(key string) string { kind, _, _ := strings.Cut(key, "/"); return kind }
