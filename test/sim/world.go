package sim

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	brokers   = 3
	firstPort = 9092
)

// world is the cluster, its network, and who is at work in it.
type world struct {
	net       *kfake.VirtualNetwork
	cluster   *kfake.Cluster
	addresses []string
	ledger    *ledger
	history   *history
	begin     time.Time
	tasks     sync.WaitGroup

	producer, transactor *kgo.Client

	mu       sync.Mutex
	current  [slots]*member
	pauses   map[int32]*gate
	refusing map[int32]bool
	injected []injection
	lastSeen map[string]time.Time // by member id
	faults   map[Kind]int
	hits     map[Kind]int
}

// injection is an error that brokers are told to answer with.
type injection struct {
	kind   Kind
	handle *kfake.FaultHandle
}

func newWorld(s *Schedule) (*world, error) {
	w := &world{
		net: &kfake.VirtualNetwork{}, begin: time.Now(), pauses: map[int32]*gate{}, refusing: map[int32]bool{},
		lastSeen: map[string]time.Time{},
		faults:   map[Kind]int{}, hits: map[Kind]int{},
	}
	w.history = &history{begin: w.begin}
	w.ledger = newLedger(s, w.history)
	w.ledger.end = w.endOf
	w.ledger.committed = w.committed
	w.ledger.partitions = w.partitions
	var ports []int
	for i := range brokers {
		ports = append(ports, firstPort+i)
	}
	var err error
	if w.cluster, err = kfake.NewCluster(kfake.Ports(ports...), kfake.ListenFn(w.net.Listen)); err != nil {
		return nil, fmt.Errorf("start the brokers: %w", err)
	}
	w.addresses = w.cluster.ListenAddrs()
	for _, topic := range []string{mainTopic, outTopic} {
		if err := w.cluster.CreateTopic(topic, partitions, nil); err != nil {
			return nil, fmt.Errorf("create topic %s: %w", topic, err)
		}
	}
	w.observe()
	opts := []kgo.Opt{kgo.SeedBrokers(w.addresses...), kgo.Dialer(w.net.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.SnappyCompression())}
	if w.producer, err = kgo.NewClient(opts...); err != nil {
		return nil, fmt.Errorf("make the producer: %w", err)
	}
	if w.transactor, err = kgo.NewClient(append(opts, kgo.TransactionalID("sim"))...); err != nil {
		return nil, fmt.Errorf("make the transactional producer: %w", err)
	}
	return w, nil
}

// observe has the ledger see requests in the order in which the brokers take
// them, before they are applied.
func (w *world) observe() {
	keep := func(key kmsg.Key, see func(kmsg.Request)) {
		w.cluster.ControlKey(int16(key), func(q kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			see(q)
			return nil, nil, false
		})
	}
	keep(kmsg.OffsetCommit, func(q kmsg.Request) { w.ledger.commits(q.(*kmsg.OffsetCommitRequest)) })
	keep(kmsg.Heartbeat, func(q kmsg.Request) { w.seen(q.(*kmsg.HeartbeatRequest).MemberID) })
	keep(kmsg.SyncGroup, func(q kmsg.Request) {
		w.seen(q.(*kmsg.SyncGroupRequest).MemberID)
		w.ledger.sync(q.(*kmsg.SyncGroupRequest))
	})
	keep(kmsg.Produce, func(q kmsg.Request) {
		p := q.(*kmsg.ProduceRequest)
		for i := range p.Topics {
			if t := &p.Topics[i]; t.Topic == "" { // later versions name topics by id
				t.Topic = w.cluster.TopicIDInfo(t.TopicID).Topic
			}
		}
		eachBatch(p, func(tp topicPartition, rs []kmsgRecord) {
			if tp.topic == mainTopic {
				w.ledger.took(tp, rs)
			} else {
				w.ledger.forwardTook(tp, rs)
			}
		})
	})
}

// eachBatch goes over a produce request. What is not readable holds nothing.
func eachBatch(q *kmsg.ProduceRequest, f func(topicPartition, []kmsgRecord)) {
	for _, t := range q.Topics {
		for _, p := range t.Partitions {
			rs, err := decodeBatch(p.Records)
			if err != nil {
				panic(err) // a producer of ours wrote it
			}
			f(topicPartition{t.Topic, p.Partition}, rs)
		}
	}
}

// forwardsSent looks at a produce request on a member's wire.
func (w *world) forwardsSent(wr *wire, frame []byte) (sent []*forwardSent) {
	q, err := decodeProduce(frame)
	if err != nil {
		panic(err)
	}
	m := w.memberOf(wr)
	eachBatch(q, func(tp topicPartition, rs []kmsgRecord) { sent = append(sent, w.ledger.forwarding(m, tp, rs)...) })
	return sent
}

func (w *world) memberOf(wr *wire) *member {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	return w.ledger.members[wr.name]
}

// forwardsAnswered looks at the answer to one.
func (w *world) forwardsAnswered(wr *wire, q request, frame []byte) {
	res, err := decodeProduced(q.version, frame)
	if err != nil {
		panic(err)
	}
	w.ledger.forwardsAnswered(w.memberOf(wr), q, res)
}

// endOf is where a partition ends.
func (w *world) endOf(tp topicPartition) int64 {
	if i := w.cluster.PartitionInfo(tp.topic, tp.partition); i != nil {
		return i.HighWatermark
	}
	return 0
}

// committed is what the group has committed.
func (w *world) committed() map[string]map[int32]int64 {
	out := map[string]map[int32]int64{}
	if g := w.cluster.GroupInfo(group); g != nil {
		for topic, parts := range g.Commits {
			out[topic] = map[int32]int64{}
			for p, c := range parts {
				out[topic][p] = c.Offset
			}
		}
	}
	return out
}

// produce writes one batch, as often as it takes.
func (w *world) produce(b *Batch) {
	tp := topicPartition{mainTopic, b.Partition}
	w.ledger.producing(tp, b)
	var rs []*kgo.Record
	for _, in := range b.Records {
		rs = append(rs, &kgo.Record{Topic: mainTopic, Partition: b.Partition, Key: in.Key, Value: in.Value, Headers: in.Headers})
	}
	ctx := context.Background()
	c := w.producer
	if b.Txn {
		c = w.transactor
		if err := c.BeginTransaction(); err != nil {
			panic(err)
		}
	}
	if err := c.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		panic(err)
	}
	if b.Txn {
		if err := c.EndTransaction(ctx, kgo.TransactionEndTry(!b.Aborted)); err != nil {
			panic(err)
		}
	}
}

// now is the time since the begin.
func (w *world) now() time.Duration { return time.Since(w.begin) }

// until waits for a time, or returns false when the run has failed.
func (w *world) until(t time.Duration) bool {
	select {
	case <-time.After(t - w.now()):
		return true
	case <-w.ledger.failing:
		return false
	}
}

// close ends everything.
func (w *world) close() {
	for slot, m := range w.current {
		if m != nil {
			w.crash(slot, m)
		}
	}
	w.producer.Close()
	w.transactor.Close()
	w.cluster.Close()
	w.tasks.Wait()
}

func (w *world) setCurrent(slot int, m *member) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.current[slot] = m
}

func (w *world) member(slot int) *member {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current[slot]
}

func (w *world) paused(broker int32) *gate {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pauses[broker]
}

func (w *world) refuses(broker int32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refusing[broker]
}

func (w *world) hit(k Kind, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hits[k] += n
}

// brokerOf is the id of the broker at an address.
func brokerOf(address string) (int32, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < firstPort || n >= firstPort+brokers {
		return 0, fmt.Errorf("no broker at %s", address)
	}
	return int32(n - firstPort), nil
}

// drained reports whether every stage is committed to its end.
func (w *world) drained() bool {
	done := w.committed()
	return !slices.ContainsFunc(stageTopics(), func(topic string) bool {
		return slices.ContainsFunc(w.cluster.PartitionInfos(topic), func(i *kfake.PartitionInfo) bool {
			return done[topic][i.Partition] < i.HighWatermark
		})
	})
}

// partitions is how many a topic has.
func (w *world) partitions(topic string) int32 { return int32(len(w.cluster.PartitionInfos(topic))) }

// tellGroup tells the group's state.
func (w *world) tellGroup() string {
	g := w.cluster.GroupInfo(group)
	if g == nil {
		return "is not there"
	}
	s := fmt.Sprintf("%s, generation %d", g.State, g.Epoch)
	for _, m := range g.Members {
		s += fmt.Sprintf(", %s %v", m.MemberID, m.Assignment)
	}
	return s
}
