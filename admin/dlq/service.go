package dlq

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kconsume/kconsume/engine/topology"
	"github.com/segmentio/kafka-go"
)

// Config is what a Service works for.
type Config struct {
	Group string
	// Daemon names this process for people: in jobs, claims and the audit.
	Daemon string
	// Client's transport must know the topics of all lines: main, replay, DLQ
	// and state. It is not closed.
	Client *kafka.Client
	Lines  []topology.Line
	// HandlerVersion is the name@version of the handler that runs now, "" =
	// not known; nil = never known.
	HandlerVersion func() string
	Logger         *slog.Logger // nil = slog.Default()
}

// Service operates the DLQs of a group's lines. Its methods are safe for
// concurrent use; they wait until the state has been read once, as long as
// their context allows. Run must be running.
type Service struct {
	cfg    Config
	me     string // this process: the daemon's name and a random part
	queues []*queue
	count  atomic.Int64

	audits    sync.Mutex
	lastAudit int64 // unix ms in the last audit entry's id
}

// New makes a service. It asks no broker for anything.
func New(c Config) *Service {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	s := &Service{cfg: c, me: c.Daemon + "#" + rand.Text()[:10]}
	for _, l := range c.Lines {
		s.queues = append(s.queues, newQueue(&c, l))
	}
	return s
}

// Run follows the state topics, works on jobs, takes over those that nobody
// works on, and deletes what has expired, until ctx ends. Brokers that do not
// answer are waited for. It returns when all that it began has ended: a job's
// records that are claimed are sent before, the others later or elsewhere.
func (s *Service) Run(ctx context.Context) error {
	follow, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var followers, workers sync.WaitGroup
	for _, q := range s.queues {
		followers.Go(func() { q.log.Run(follow) })
		workers.Go(func() { q.scan(ctx) })
		workers.Go(func() { s.supervise(ctx, q) })
		workers.Go(func() { s.clean(ctx, q) })
	}
	workers.Wait()
	stop() // what the workers wrote last was read back
	followers.Wait()
	return nil
}

// number numbers this process' entries.
func (s *Service) number() int64 { return s.count.Add(1) }

// Topics are the DLQs, in the order of the lines.
func (s *Service) Topics() []string {
	var names []string
	for _, q := range s.queues {
		names = append(names, q.topic)
	}
	return names
}

func (s *Service) queueOf(topic string) (*queue, error) {
	for _, q := range s.queues {
		if q.topic == topic {
			return q, nil
		}
	}
	return nil, refuse(KindNotFound, "%.300q is no DLQ of group %s: see the list of DLQs", topic, s.cfg.Group)
}

// queuesOf is one DLQ, or all for "".
func (s *Service) queuesOf(topic string) ([]*queue, error) {
	if topic == "" {
		return s.queues, nil
	}
	q, err := s.queueOf(topic)
	return []*queue{q}, err
}

// Summaries are all DLQs in short. One that cannot be read says so in its scan's
// note; there is an error only if none can be.
func (s *Service) Summaries(ctx context.Context) ([]Summary, error) {
	out := make([]Summary, len(s.queues))
	errs := make([]error, len(s.queues))
	var all sync.WaitGroup
	for i, q := range s.queues {
		all.Go(func() { out[i], errs[i] = q.summary(ctx) })
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			out[i].Scan.Note = err.Error()
		}
	}
	if !slices.Contains(errs, nil) {
		return nil, errors.Join(errs[:min(len(errs), 1)]...)
	}
	return out, nil
}

// Groups are a DLQ's dead letters by what they failed with.
func (s *Service) Groups(ctx context.Context, topic string, f Filter) (GroupPage, error) {
	q, err := s.queueOf(topic)
	if err != nil {
		return GroupPage{}, err
	}
	return q.groups(ctx, f)
}

// Messages is a page of a DLQ's dead letters.
func (s *Service) Messages(ctx context.Context, topic string, query Query) (MessagePage, error) {
	q, err := s.queueOf(topic)
	if err != nil {
		return MessagePage{}, err
	}
	return q.messages(ctx, query)
}
