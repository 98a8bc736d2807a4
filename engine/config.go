package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/engine/secure"
	"github.com/kconsume/kconsume/engine/topology"
	"github.com/kconsume/kconsume/plugin"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// Deliverer is where the engine sends records: a pool of calls in this process
// (plugin.NewPool) or a handler process. It answers each delivery exactly once.
type Deliverer interface {
	// Deliver queues a batch and returns at once. The slice is the receiver's
	// from then on; the bytes of its messages stay unchanged until answered.
	Deliver([]plugin.Delivery)
	// Cancel asks that these calls end early. Each is still answered.
	Cancel(handles []uint64)
	// Answers yields what has been answered, in batches.
	Answers() <-chan plugin.Answers
}

// Order says which records may be handled at the same time.
type Order string

const (
	OrderKey       Order = "key"       // one at a time per key, null keys in parallel
	OrderPartition Order = "partition" // one at a time per partition and stage
	OrderNone      Order = "none"
)

// OffsetPolicy says where to go on when an offset is missing or gone.
type OffsetPolicy string

const (
	OffsetEarliest OffsetPolicy = "earliest"
	OffsetLatest   OffsetPolicy = "latest"
	OffsetFail     OffsetPolicy = "fail" // only for OffsetLost
)

// OversizePolicy says what becomes of a record that the broker refuses, by
// itself and without our diagnostics, as too large for a topic.
type OversizePolicy string

const (
	// OversizeStop: nothing new of its partition is handled until the topic
	// takes it.
	OversizeStop OversizePolicy = "stop"
	// OversizePointer: a small record that names it goes to the DLQ in its place.
	OversizePointer OversizePolicy = "pointer"
)

// Config is what an engine needs. Brokers, Group, Topics and one of Handler and
// Deliverer must be given; every zero value stands for the default named.
type Config struct {
	Brokers []string // host:port
	Group   string
	Topics  []string // main topics

	// Handler is called in this process. Deliverer takes its place where
	// records leave the process. Exactly one of them is set.
	Handler   plugin.Handler
	Deliverer Deliverer

	// Retry are the tiers' delays: the failed delivery n goes to tier n.
	// nil = 5s, 30s; empty but not nil = no retries. What waits in tiers of
	// earlier settings is delivered all the same.
	Retry []time.Duration
	// MaxAttempts counts all deliveries. 0 = tiers + 1; more: the last tier repeats.
	MaxAttempts int
	RetryTopic  string // template, "" = {topic}.retry.{delay}
	DLQTopic    string // template, "" = {topic}.dlq
	// RetryAfterMax cuts a handler's retry-after. 0 = the longest tier.
	RetryAfterMax time.Duration
	// UnknownTransient retries errors that no rule knows; by default they are permanent.
	UnknownTransient bool

	// KeepTopics leaves missing topics missing, and New's Run fails over them.
	// By default the topics beside the main ones are created.
	KeepTopics bool
	// DLQRetention is the retention of a DLQ that the engine creates. 0 = unlimited.
	DLQRetention time.Duration

	Order       Order // "" = key
	Concurrency int   // handler calls that may run at once, 0 = 64
	MaxBuffer   int   // bytes fetched and not settled, 0 = 32 MiB

	// Start is where a main topic without a committed offset begins; StartTime,
	// if set, takes its place.
	Start     OffsetPolicy // "" = earliest
	StartTime time.Time
	// OffsetLost is what to do when a main topic's committed offset is gone.
	OffsetLost      OffsetPolicy // "" = earliest
	ReadUncommitted bool

	CommitInterval time.Duration // 0 = 1s
	HandlerTimeout time.Duration // 0 = 30s
	DrainTimeout   time.Duration // 0 = 35s

	ClientID          string        // "" = kconsume-GROUP
	SessionTimeout    time.Duration // 0 = 45s
	HeartbeatInterval time.Duration // 0 = 1s
	RebalanceTimeout  time.Duration // 0 = 60s

	WriteAttempts   int           // 0 = 10
	WriteBackoffMin time.Duration // 0 = 100ms
	WriteBackoffMax time.Duration // 0 = 1s
	WriteTimeout    time.Duration // 0 = 10s
	ReadTimeout     time.Duration // 0 = 10s

	// Emit are the topics that a handler may emit to, and what becomes of a
	// record that cannot be sent. Outbox records count towards MaxBuffer; the
	// others may take a quarter of it besides.
	Emit map[string]EmitPolicy
	// Oversize is what becomes of a record that is too large for a topic.
	Oversize OversizePolicy // "" = stop

	// Headers are the dialects of other tools that dead letters speak, too.
	Headers []history.Dialect

	// ExitIfUnreachable ends Run with an error of class "unreachable" when no
	// broker answers at the start, rather than waiting for one.
	ExitIfUnreachable bool

	// StateFile is where the engine remembers, over the death of the process,
	// what it had in hand, so that a record which takes the process down does not
	// do so for ever. It belongs to one engine. "" = it remembers nothing.
	StateFile string

	Registerer prometheus.Registerer // nil = the metrics are not exported
	Logger     *slog.Logger          // nil = slog.Default()
	// TracerProvider makes a span of each delivery. nil = none, at no cost.
	TracerProvider trace.TracerProvider
	// Observer is called by the engine's loop for each step of each record. It
	// must return at once. nil = none, at no cost.
	Observer func(Event)
	// Dial opens connections to brokers, beneath what Security adds to them.
	// nil = net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Security is how connections are protected and who we are on them.
	Security secure.Settings
}

// Error is a failure that ends an engine, with a bounded class.
type Error struct {
	Class ErrorClass
	Err   error
}

// ErrorClass is the kind of an Error.
type ErrorClass string

const (
	ErrConfig      ErrorClass = "config"      // what was asked for cannot be: mend the configuration
	ErrUnreachable ErrorClass = "unreachable" // no broker answered
	ErrDenied      ErrorClass = "denied"      // a permission is missing
	ErrOffset      ErrorClass = "offset"      // a committed offset is gone and OffsetLost says fail
)

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

func configError(format string, args ...any) error {
	return &Error{ErrConfig, fmt.Errorf(format, args...)}
}

func orDefault[T comparable](p *T, d T) {
	var zero T
	if *p == zero {
		*p = d
	}
}

// withDefaults returns the configuration with every zero value replaced.
func (c Config) withDefaults() Config {
	if c.Retry == nil {
		c.Retry = []time.Duration{5 * time.Second, 30 * time.Second}
	}
	orDefault(&c.MaxAttempts, len(c.Retry)+1)
	orDefault(&c.RetryTopic, topology.DefaultRetryTopic)
	orDefault(&c.DLQTopic, topology.DefaultDLQTopic)
	for _, d := range c.Retry {
		if c.RetryAfterMax < d {
			c.RetryAfterMax = d
		}
	}
	orDefault(&c.Order, OrderKey)
	orDefault(&c.Concurrency, 64)
	orDefault(&c.MaxBuffer, 32<<20)
	orDefault(&c.Start, OffsetEarliest)
	orDefault(&c.OffsetLost, OffsetEarliest)
	orDefault(&c.CommitInterval, time.Second)
	orDefault(&c.HandlerTimeout, 30*time.Second)
	orDefault(&c.DrainTimeout, 35*time.Second)
	orDefault(&c.ClientID, "kconsume-"+c.Group)
	orDefault(&c.SessionTimeout, 45*time.Second)
	orDefault(&c.HeartbeatInterval, time.Second)
	orDefault(&c.RebalanceTimeout, 60*time.Second)
	orDefault(&c.WriteAttempts, 10)
	orDefault(&c.WriteBackoffMin, 100*time.Millisecond)
	orDefault(&c.WriteBackoffMax, time.Second)
	orDefault(&c.WriteTimeout, 10*time.Second)
	orDefault(&c.ReadTimeout, 10*time.Second)
	orDefault(&c.Oversize, OversizeStop)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Topology is the configuration's topics: its stages, tiers and dead letter queues.
func (c Config) Topology() (*topology.Topology, error) {
	d := c.withDefaults()
	t, err := topology.New(topology.Config{
		Group: d.Group, Topics: d.Topics, Retry: d.Retry,
		RetryTopic: d.RetryTopic, DLQTopic: d.DLQTopic,
	})
	if err != nil {
		return nil, &Error{ErrConfig, err}
	}
	return t, nil
}

// Validate says what is wrong with the configuration, without any effect.
// Its errors are of class "config".
func (c Config) Validate() error {
	d := c.withDefaults()
	switch {
	case len(d.Brokers) == 0:
		return configError("no brokers: give at least one host:port")
	case d.Group == "":
		return configError("no group: give the consumer group's name")
	case len(d.Topics) == 0:
		return configError("no topic: give at least one")
	case (d.Handler == nil) == (d.Deliverer == nil):
		return configError("give exactly one of Handler and Deliverer")
	case d.MaxAttempts < 1:
		return configError("max attempts %d: at least 1, the first delivery counts", d.MaxAttempts)
	case len(d.Retry) == 0 && d.MaxAttempts > 1:
		return configError("max attempts %d without a retry tier: add a tier, or leave it at 1", d.MaxAttempts)
	case d.Concurrency < 1:
		return configError("concurrency %d: at least 1", d.Concurrency)
	case d.MaxBuffer < 1<<20:
		return configError("max buffer %d bytes: at least 1 MiB", d.MaxBuffer)
	case d.Order != OrderKey && d.Order != OrderPartition && d.Order != OrderNone:
		return configError("order %q: one of key, partition, none", d.Order)
	case d.Start != OffsetEarliest && d.Start != OffsetLatest:
		return configError("start %q: earliest, latest, or a time", d.Start)
	case d.OffsetLost != OffsetEarliest && d.OffsetLost != OffsetLatest && d.OffsetLost != OffsetFail:
		return configError("offset lost %q: one of earliest, latest, fail", d.OffsetLost)
	case d.Oversize != OversizeStop && d.Oversize != OversizePointer:
		return configError("oversize %q: one of stop, pointer", d.Oversize)
	case slices.ContainsFunc(d.Headers, func(h history.Dialect) bool { return h != history.DialectSpring && h != history.DialectKIP1191 }):
		return configError("headers %q: of spring and kip1191", d.Headers)
	case d.WriteAttempts < 1:
		return configError("write attempts %d: at least 1", d.WriteAttempts)
	case d.WriteBackoffMin > d.WriteBackoffMax:
		return configError("write backoff %v at least and %v at most: make the first the shorter one", d.WriteBackoffMin, d.WriteBackoffMax)
	case d.HeartbeatInterval >= d.SessionTimeout:
		return configError("heartbeat interval %v is not shorter than the session timeout %v: a member must beat several times a session", d.HeartbeatInterval, d.SessionTimeout)
	}
	for _, b := range d.Brokers {
		if _, _, err := net.SplitHostPort(b); err != nil {
			return configError("broker %q: want host:port", b)
		}
	}
	if err := c.Security.Validate(); err != nil {
		return &Error{ErrConfig, err}
	}
	t, err := c.Topology()
	if err != nil {
		return err
	}
	return d.checkEmit(t)
}

// Dialer makes connections to brokers as the configuration says.
func (c Config) Dialer() *secure.Dialer {
	d := c.withDefaults()
	return secure.New(secure.Config{Settings: d.Security, ClientID: d.ClientID, Dial: d.Dial, Logger: d.Logger})
}

// ClassOf is the class of an engine's error, "" for any other error.
func ClassOf(err error) ErrorClass {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return ""
}
