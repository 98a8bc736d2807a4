package dlq

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kconsume/kconsume/admin/dlq/state"
	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/engine/topology"
	"github.com/kconsume/kconsume/plugin"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// world is an embedded broker in a virtual network and in virtual time. Records
// are written and read by another client than the service's.
type world struct {
	t       *testing.T
	net     *kfake.VirtualNetwork
	cluster *kfake.Cluster
	client  *kgo.Client
	line    topology.Line
	n       int32
}

// inWorld runs a test in a world of its own, with the topics of a line t of n
// partitions.
func inWorld(t *testing.T, n int32, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, net: &kfake.VirtualNetwork{}, n: n}
		top, err := topology.New(topology.Config{Group: "g", Topics: []string{"t"}, RetryTopic: topology.DefaultRetryTopic, DLQTopic: topology.DefaultDLQTopic})
		if err != nil {
			t.Fatal(err)
		}
		w.line = top.Lines[0]
		w.cluster, err = kfake.NewCluster(kfake.Ports(9092), kfake.ListenFn(w.net.Listen))
		if err != nil {
			t.Fatal(err)
		}
		for topic, n := range map[string]int32{"t": n, "t.replay": n, "t.dlq": n, "t.dlq.state": 1} {
			w.create(topic, n)
		}
		w.connect()
		defer func() {
			w.client.Close()
			w.cluster.Close()
			synctest.Wait()
		}()
		f(w)
	})
}

func (w *world) create(topic string, n int32) {
	w.t.Helper()
	configs := map[string]string{"message.timestamp.type": "LogAppendTime"}
	if topic == w.line.State() {
		configs["cleanup.policy"] = "compact"
	}
	if err := w.cluster.CreateTopic(topic, n, configs); err != nil {
		w.t.Fatal(err)
	}
}

// remove deletes a topic.
func (w *world) remove(topic string) {
	w.t.Helper()
	if _, err := kadm.NewClient(w.client).DeleteTopics(w.t.Context(), topic); err != nil {
		w.t.Fatal(err)
	}
	w.client.Close() // it knows the topic
	w.connect()
}

// anew deletes a topic and creates it again.
func (w *world) anew(topic string, n int32) {
	w.t.Helper()
	w.remove(topic)
	w.create(topic, n)
}

func (w *world) connect() {
	w.t.Helper()
	var err error
	w.client, err = kgo.NewClient(kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.Dialer(w.net.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		w.t.Fatal(err)
	}
}

// daemon is a service at work.
type daemon struct {
	*Service
	w    *world
	stop context.CancelFunc
	done chan struct{}

	mu    sync.Mutex
	conns map[net.Conn]bool
	hook  func(what string, do func() error) error
}

func (w *world) daemon(name string, change ...func(*Config)) *daemon {
	w.t.Helper()
	d := &daemon{w: w, done: make(chan struct{}), conns: map[net.Conn]bool{}}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := w.net.DialContext(ctx, network, address)
		if err == nil {
			d.mu.Lock()
			d.conns[c] = true
			d.mu.Unlock()
		}
		return c, err
	}
	transport := &kafka.Transport{Dial: dial, ClientID: "kconsume-" + name, MetadataTTL: 2 * time.Second, MetadataTopics: []string{"t", "t.replay", "t.dlq", "t.dlq.state"}}
	out := io.Discard
	if os.Getenv("KCONSUME_TEST_LOG") != "" {
		out = os.Stderr
	}
	c := Config{
		Group: "g", Daemon: name, Lines: []topology.Line{w.line},
		Client: &kafka.Client{Addr: kafka.TCP(w.cluster.ListenAddrs()...), Transport: transport, Timeout: 10 * time.Second},
		Logger: slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug})).With("daemon", name),
	}
	for _, f := range change {
		f(&c)
	}
	d.Service = New(c)
	for _, q := range d.queues {
		q.hook = func(what string, do func() error) error {
			d.mu.Lock()
			hook := d.hook
			d.mu.Unlock()
			if hook == nil {
				return do()
			}
			return hook(what, do)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = cancel
	go func() {
		defer close(d.done)
		if err := d.Run(ctx); err != nil {
			w.t.Error(err)
		}
		transport.CloseIdleConnections()
		d.mu.Lock()
		defer d.mu.Unlock()
		for c := range d.conns {
			_ = c.Close()
		}
	}()
	return d
}

// end stops a daemon as a signal does, and waits for it.
func (d *daemon) end() {
	d.stop()
	<-d.done
}

// on sets what becomes of the daemon's writes.
func (d *daemon) on(hook func(what string, do func() error) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hook = hook
}

// kill ends a daemon as kill -9 does: nothing is written any more.
func (d *daemon) kill() {
	d.on(func(string, func() error) error { return state.ErrStopped })
	d.end()
}

// dead describes dead letters to write.
type dead struct {
	partition int32
	key       []byte
	value     string
	class     string
	message   string
	group     string
	handler   string
	origin    string
	replays   int
	headers   []plugin.Header
}

// bury writes n dead letters, alternating over the partitions, and returns their
// positions.
func (w *world) bury(n int, change func(i int, d *dead)) []Position {
	w.t.Helper()
	var rs []*kgo.Record
	for i := range n {
		d := dead{
			partition: int32(i) % w.n, key: fmt.Append(nil, "k", i), value: fmt.Sprint("v", i), class: "transient", message: fmt.Sprintf("gateway %d down", i), group: "g",
			handler: "orders@1", origin: "t",
		}
		if change != nil {
			change(i, &d)
		}
		rs = append(rs, w.record(&d, int64(i)))
	}
	if err := w.client.ProduceSync(w.t.Context(), rs...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
	var out []Position
	for _, r := range rs {
		out = append(out, Position{r.Partition, r.Offset})
	}
	return out
}

func (w *world) record(d *dead, offset int64) *kgo.Record {
	now := time.Now().UnixMilli()
	m := history.Meta{
		Group: d.group, Failed: 3, Origin: history.Origin{Topic: d.origin, Partition: d.partition, Offset: offset, Timestamp: now},
		FirstFailure: now - 5000, Class: d.class, Message: d.message, ErrorTime: now, Handler: d.handler, ReplayCount: d.replays,
	}
	r := &kgo.Record{Topic: "t.dlq", Partition: d.partition, Key: d.key, Value: []byte(d.value)}
	for _, h := range m.Headers(d.headers, false) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return r
}

// read is everything that a topic holds, by partition and offset.
func (w *world) read(topic string) []*kgo.Record {
	w.t.Helper()
	adm := kadm.NewClient(w.client)
	ends, err := adm.ListEndOffsets(w.t.Context(), topic)
	if err != nil {
		w.t.Fatal(err)
	}
	starts, err := adm.ListStartOffsets(w.t.Context(), topic)
	if err != nil {
		w.t.Fatal(err)
	}
	left := map[int32]int64{}
	from := map[string]map[int32]kgo.Offset{topic: {}}
	ends.Each(func(o kadm.ListedOffset) {
		if s, _ := starts.Lookup(topic, o.Partition); o.Offset > s.Offset {
			left[o.Partition] = o.Offset
			from[topic][o.Partition] = kgo.NewOffset().At(s.Offset)
		}
	})
	if len(left) == 0 {
		return nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.Dialer(w.net.DialContext), kgo.ConsumePartitions(from))
	if err != nil {
		w.t.Fatal(err)
	}
	defer client.Close()
	var out []*kgo.Record
	for len(left) > 0 {
		client.PollFetches(w.t.Context()).EachRecord(func(r *kgo.Record) {
			out = append(out, r)
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	slices.SortFunc(out, func(a, b *kgo.Record) int {
		return comparePositions(Position{a.Partition, a.Offset}, Position{b.Partition, b.Offset})
	})
	return out
}

func headersOf(r *kgo.Record) map[string]string {
	m := map[string]string{}
	for _, h := range r.Headers {
		m[h.Key] = string(h.Value)
	}
	return m
}

// outcome is what the engine writes once a copy has been handled.
func (w *world) outcome(replay string, status Status, again *Position) {
	w.t.Helper()
	o := state.Out{Version: 1, ReplayID: replay, Status: string(status), At: time.Now().UnixMilli(), Handler: "orders@2", Attempts: 1}
	if again != nil {
		o.Again = &state.Again{Partition: again.Partition, Offset: again.Offset}
	}
	w.put("out/"+replay, o)
}

func (w *world) put(key string, value any) {
	w.t.Helper()
	b, err := json.Marshal(value)
	if err != nil {
		w.t.Fatal(err)
	}
	r := &kgo.Record{Topic: "t.dlq.state", Key: []byte(key), Value: b}
	if err := w.client.ProduceSync(w.t.Context(), r).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

// handle answers for the engine: every copy in a topic that has no outcome yet
// is handled, or fails again.
func (w *world) handle(topic string, ok func(r *kgo.Record) bool) int {
	w.t.Helper()
	done := map[string]bool{}
	for _, r := range w.read("t.dlq.state") {
		done[string(r.Key)] = true
	}
	n := 0
	for _, r := range w.read(topic) {
		h := headersOf(r)
		id := h[history.HeaderReplayID]
		if id == "" || done["out/"+id] {
			continue
		}
		done["out/"+id] = true
		n++
		if ok(r) {
			w.outcome(id, StatusSucceeded, nil)
			continue
		}
		count, _ := strconv.Atoi(h[history.HeaderReplayCount])
		d := dead{partition: r.Partition, key: r.Key, value: string(r.Value), class: "transient", message: "again", group: "g", handler: "orders@2", origin: "t", replays: count}
		next := w.record(&d, r.Offset)
		for i, hd := range next.Headers {
			if hd.Key == history.HeaderRecordID {
				next.Headers[i].Value = []byte(h[history.HeaderRecordID])
			}
		}
		if err := w.client.ProduceSync(w.t.Context(), next).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
		w.outcome(id, StatusFailedAgain, &Position{next.Partition, next.Offset})
	}
	return n
}

var (
	ada   = Actor{Name: "uid 1000 (ada)", Via: "socket", Role: RoleOperator}
	admin = Actor{Name: "uid 0 (root)", Via: "socket", Role: RoleAdmin}
	guest = Actor{Name: "uid 1001 (bob)", Via: "socket", Role: RoleReader}
)

// plan plans, and fails the test if that cannot be done.
func (d *daemon) plan(r PlanRequest, a Actor) Plan {
	d.w.t.Helper()
	p, err := d.Plan(d.w.t.Context(), "t.dlq", r, a)
	if err != nil {
		d.w.t.Fatal(err)
	}
	return p
}

// wait waits until a job has ended.
func (d *daemon) wait(id string) Job {
	d.w.t.Helper()
	d.sync()
	j, err := d.queues[0].awaitJob(d.w.t.Context(), id)
	if err != nil {
		d.w.t.Fatal(err)
	}
	return j
}

func (d *daemon) apply(digest string) Job {
	d.w.t.Helper()
	j, err := d.Apply(d.w.t.Context(), digest, "", ada)
	if err != nil {
		d.w.t.Fatal(err)
	}
	return j
}

// sync waits until the daemon knows all that is written.
func (d *daemon) sync() {
	d.w.t.Helper()
	if err := d.queues[0].log.Sync(d.w.t.Context()); err != nil {
		d.w.t.Fatal(err)
	}
}

// list is every message, oldest first.
func (d *daemon) list() []Message {
	d.w.t.Helper()
	d.sync()
	var out []Message
	for cursor := ""; ; {
		p, err := d.Messages(d.w.t.Context(), "t.dlq", Query{Oldest: true, Cursor: cursor, Limit: MaxPage})
		if err != nil {
			d.w.t.Fatal(err)
		}
		out = append(out, p.Messages...)
		if cursor = p.Cursor; cursor == "" {
			return out
		}
	}
}

// statuses counts all messages by status.
func (d *daemon) statuses() map[Status]int {
	out := map[Status]int{}
	for _, m := range d.list() {
		out[m.State.Status]++
	}
	return out
}

func same[K comparable, V comparable](a, b map[K]V) bool { return maps.Equal(a, b) }
