package dlq

import (
	"context"
	"io"
	"log/slog"

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
	cfg Config
}

// New makes a service. It asks no broker for anything.
func New(c Config) *Service {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Service{cfg: c}
}

// Run follows the state topics, works on jobs, takes over those that nobody
// works on, and deletes what has expired, until ctx ends. Brokers that do not
// answer are waited for. It returns when all that it began has ended.
func (s *Service) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Topics are the DLQs, in the order of the lines.
func (s *Service) Topics() []string {
	var names []string
	for i := range s.cfg.Lines {
		names = append(names, s.cfg.Lines[i].DLQ)
	}
	return names
}

var errSkeleton = &Error{Kind: KindUnavailable, Text: "not built yet: come back later"}

// Summaries are all DLQs in short.
func (s *Service) Summaries(ctx context.Context) ([]Summary, error) { return nil, errSkeleton }

// Groups are a DLQ's dead letters by what they failed with.
func (s *Service) Groups(ctx context.Context, topic string, f Filter) (GroupPage, error) {
	return GroupPage{}, errSkeleton
}

// Messages is a page of a DLQ's dead letters.
func (s *Service) Messages(ctx context.Context, topic string, q Query) (MessagePage, error) {
	return MessagePage{}, errSkeleton
}

// Message is one dead letter and its timeline. An expired one is gone.
func (s *Service) Message(ctx context.Context, topic string, r Ref, payload bool) (Detail, error) {
	return Detail{}, errSkeleton
}

// Plan says what an action would do, and does nothing.
func (s *Service) Plan(ctx context.Context, topic string, r PlanRequest, a Actor) (Plan, error) {
	return Plan{}, errSkeleton
}

// PlanOf is a plan that was made before; it is gone after an hour.
func (s *Service) PlanOf(ctx context.Context, digest string) (Plan, error) {
	return Plan{}, errSkeleton
}

// Apply begins what a plan says, and returns its job at once. With the key of
// an earlier call it is that call's job; without one a plan can be applied once.
func (s *Service) Apply(ctx context.Context, digest, idempotencyKey string, a Actor) (Job, error) {
	return Job{}, errSkeleton
}

// Replay sends the oldest new dead letters again, by partition and offset, and
// returns when that is done: how many were sent, by which job. The job goes on
// when ctx ends. limit is 1 to MaxReplay.
func (s *Service) Replay(ctx context.Context, topic string, limit int, idempotencyKey string, a Actor) (int, Job, error) {
	return 0, Job{}, errSkeleton
}

// Act resolves, discards or restores one dead letter and returns it as it is then.
func (s *Service) Act(ctx context.Context, topic string, r Ref, action Action, reason string, a Actor) (Message, error) {
	return Message{}, errSkeleton
}

// Jobs is a page of jobs.
func (s *Service) Jobs(ctx context.Context, q JobQuery) (JobPage, error) {
	return JobPage{}, errSkeleton
}

// Job is one job.
func (s *Service) Job(ctx context.Context, id string) (Job, error) { return Job{}, errSkeleton }

// Cancel ends a job: nothing more is sent; its Note says what was.
func (s *Service) Cancel(ctx context.Context, id, reason string, a Actor) (Job, error) {
	return Job{}, errSkeleton
}

// Audit is a page of who did what and why.
func (s *Service) Audit(ctx context.Context, q AuditQuery) (AuditPage, error) {
	return AuditPage{}, errSkeleton
}

// Export writes dead letters by partition and offset, a line of JSON each, with
// "about" what the API shows of them, and returns how many.
func (s *Service) Export(ctx context.Context, topic string, sel Selection, w io.Writer) (int, error) {
	return 0, errSkeleton
}
