package fetch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/kconsume/kconsume/engine/record"
)

// largest is the most bytes of records that a partition may answer with beyond
// what it was asked for: a single batch, which comes whole whatever its size.
const largest = record.MaxBatch

// exchange is one Fetch as a message of kafka-go. It is used once. The
// goroutine of the connection may still run it when Do has returned, so Do
// changes nothing in it and takes nothing from it but the answer.
type exchange struct {
	ctx     context.Context // Do's; RawExchange is given none
	begin   *time.Timer     // ends ctx unless the exchange begins
	broker  int32
	id      int32 // correlation
	wire    []byte
	wants   []Want
	index   index
	maxWait time.Duration
	limit   int   // bytes of an answer
	aborted bool  // aborted transactions are wanted
	version int16 // of the broker; set by Required, on the connection's goroutine
}

var (
	_ protocol.RawExchanger  = (*exchange)(nil)
	_ protocol.BrokerMessage = (*exchange)(nil)
)

func newExchange(r Request) (*exchange, error) {
	wants := slices.Clone(r.Wants)
	ix, err := indexOf(wants)
	if err != nil {
		return nil, err
	}
	// An answer to an earlier request can only be met if the connection is out
	// of step, and then its id is another one.
	id := rand.Int32N(math.MaxInt32)
	wire, err := encode(r, ix, id)
	if err != nil {
		return nil, err
	}
	return &exchange{
		broker: r.Broker, id: id, wire: wire, wants: wants, index: ix,
		maxWait: r.MaxWait, limit: int(r.MaxBytes) + largest, aborted: r.ReadCommitted,
	}, nil
}

// ApiKey implements protocol.Message.
func (x *exchange) ApiKey() protocol.ApiKey { return protocol.Fetch }

// Broker implements protocol.BrokerMessage.
func (x *exchange) Broker(c protocol.Cluster) (protocol.Broker, error) {
	if b, ok := c.Brokers[x.broker]; ok && x.broker >= 0 {
		return b, nil
	}
	if len(c.Brokers) == 0 {
		return protocol.Broker{}, fmt.Errorf("no broker has told who is in the cluster yet: %w", kafka.BrokerNotAvailable)
	}
	return protocol.Broker{}, fmt.Errorf("broker %d is not in the cluster's metadata, find the partitions' leaders anew: %w", x.broker, kafka.BrokerNotAvailable)
}

// Required implements protocol.RawExchanger. It is always true: kafka-go
// cannot encode this message.
func (x *exchange) Required(versions map[protocol.ApiKey]int16) bool {
	x.version = versions[protocol.Fetch]
	return true
}

// RawExchange implements protocol.RawExchanger. An error closes the
// connection, so it is returned only where the connection cannot be used on.
func (x *exchange) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if !x.begin.Stop() { // too late, or Do has given up
		<-x.ctx.Done()
		return nil, context.Cause(x.ctx)
	}
	if x.version < apiVersion {
		return nil, fmt.Errorf("broker speaks Fetch up to v%d only, v%d is needed; upgrade it to Kafka 2.3 or later", x.version, apiVersion)
	}
	line := deadlinesOf(rw)
	stop := context.AfterFunc(x.ctx, func() { _ = line.SetDeadline(time.Unix(1, 0)) })
	got, err := x.exchange(rw, line)
	if !stop() { // the deadline may be set at any time now
		return nil, context.Cause(x.ctx)
	}
	if err != nil {
		return nil, err
	}
	if err := line.SetDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("lift deadline: %w", err)
	}
	return got, nil
}

func (x *exchange) exchange(rw io.ReadWriter, line deadlines) (*answer, error) {
	if err := line.SetDeadline(time.Now().Add(Patience)); err != nil {
		return nil, fmt.Errorf("set deadline: %w", err)
	}
	if err := x.ctx.Err(); err != nil { // the deadline just set may have undone the one of a cancelled ctx
		return nil, err
	}
	if _, err := rw.Write(x.wire); err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	in := &patient{ctx: x.ctx, r: rw, line: line, wait: x.maxWait + Patience}
	var head [8]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	in.wait = Patience
	size := int(int32(binary.BigEndian.Uint32(head[:])))
	if size < 4 || size > x.limit {
		return nil, fmt.Errorf("answer says it is %d bytes long, with %d at most expected", size, x.limit)
	}
	if id := int32(binary.BigEndian.Uint32(head[4:])); id != x.id {
		return nil, fmt.Errorf("answer is for request %d, not %d", id, x.id)
	}
	got, err := readAnswer(&frame{r: in, left: size - 4}, x)
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	return got, nil
}

// deadlines is what a net.Conn has of them.
type deadlines interface {
	SetDeadline(time.Time) error
	SetReadDeadline(time.Time) error
}

func deadlinesOf(rw io.ReadWriter) deadlines {
	if d, ok := rw.(deadlines); ok {
		return d
	}
	return noDeadlines{}
}

type noDeadlines struct{}

func (noDeadlines) SetDeadline(time.Time) error     { return nil }
func (noDeadlines) SetReadDeadline(time.Time) error { return nil }

// patient gives each read a time of its own, so that a large answer may take
// long over a slow line but a broker that has gone silent is noticed.
type patient struct {
	ctx  context.Context
	r    io.Reader
	line deadlines
	wait time.Duration
}

func (p *patient) Read(b []byte) (int, error) {
	if err := p.line.SetReadDeadline(time.Now().Add(p.wait)); err != nil {
		return 0, fmt.Errorf("set deadline: %w", err)
	}
	if err := p.ctx.Err(); err != nil { // as above
		return 0, err
	}
	n, err := p.r.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("broker was silent for %v: %w", p.wait, err)
	}
	return n, err
}
