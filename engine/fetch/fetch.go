// Package fetch asks one broker for the records of many partitions at once,
// over kafka-go's connections.
//
// kafka-go's own Fetch asks for one partition a request, and its decoder loses
// what record.Decode keeps. This one is a message that kafka-go's Transport
// lets write and read its connection itself. What that relies on, in
// kafka-go v0.4.51:
//
//   - The Transport negotiates API versions once a connection, and tells the
//     message what came out; it does not choose the version of a raw message.
//   - A connection has one request in flight. Its reader is buffered (4 KiB)
//     and lives as long as the connection, and reads larger than that go to
//     the socket at once: there is nothing to gain from a buffer of our own.
//   - Any error from the message closes its connection.
//   - A ctx deadline becomes the connection's; a cancelled ctx is not told to
//     the message, so that the connection would be bound until the broker
//     answers. The message therefore watches the ctx itself.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/kconsume/kconsume/engine/record"
)

// Patience is how long a broker may keep silent: while a connection is made,
// beyond MaxWait before its answer begins, and between any two pieces of it.
const Patience = 30 * time.Second

// ErrNoAnswer is the error of a partition that the broker's answer left out.
var ErrNoAnswer = errors.New("the broker left the partition out of its answer; ask again")

// Want is one partition to read on.
type Want struct {
	Topic       string
	Partition   int32
	Offset      int64
	MaxBytes    int32 // a batch that is larger comes alone and whole
	LeaderEpoch int32 // the epoch that the caller knows, -1 = unknown
}

// Request is one Fetch of one broker.
type Request struct {
	Broker   int32 // must lead the partitions
	ClientID string
	// MaxWait is how long the broker may wait for MinBytes; whole milliseconds.
	MaxWait       time.Duration
	MinBytes      int32
	MaxBytes      int32 // of all partitions together
	ReadCommitted bool
	MaxInflate    int // see record.Options
	// Wants are served in their order while MaxBytes lasts, those of one topic
	// together; so rotate them. None may be there twice.
	Wants []Want
}

// Part is what became of one Want.
type Part struct {
	Want
	// Err is a kafka.Error that the broker gave for this partition, an
	// *record.Error with the records before the bad batch in Set, or
	// ErrNoAnswer.
	Err error
	// HighWatermark, LastStable and LogStart are offsets; -1 = not told.
	HighWatermark, LastStable, LogStart int64
	// Wire is the size of the records as they came, in bytes.
	Wire int
	// Set has the buffer of this partition alone, so it can be let go alone.
	Set record.Set
}

// Answer holds a Part for each Want, in the same order.
type Answer struct {
	Parts []Part
	// Throttle is how long the broker's quota held the answer back.
	Throttle time.Duration
}

// Do sends r to its broker, by one of the connections of rt, which is a
// kafka.Transport or wraps one, and decodes the answer once the connection is
// free again. addr names the cluster as for any request of rt. Errors of
// single partitions are in their Part; the error returned means that nothing
// was fetched, and Do may be called again after a while. It wraps
// kafka.BrokerNotAvailable where the cluster has no such broker now.
//
// Cancel ctx at shutdown only: it closes the connection, if the answer is not
// there yet, and the next Do has to make one.
func Do(ctx context.Context, rt kafka.RoundTripper, addr net.Addr, r Request) (Answer, error) {
	got, err := send(ctx, rt, addr, r)
	if err != nil {
		return Answer{}, fmt.Errorf("fetch %d partitions from broker %d: %w", len(r.Wants), r.Broker, err)
	}
	a := Answer{Parts: make([]Part, len(r.Wants)), Throttle: got.throttle}
	for i, w := range r.Wants {
		a.Parts[i] = got.parts[i].decode(w, r.MaxInflate)
		got.parts[i] = part{} // the buffer may go if the records do not need it
	}
	return a, nil
}

// send does the exchange, and bounds the time until it begins: waiting for the
// first metadata, dialling and SASL, which has no deadline in kafka-go.
func send(ctx context.Context, rt kafka.RoundTripper, addr net.Addr, r Request) (*answer, error) {
	x, err := newExchange(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	x.ctx = ctx
	x.begin = time.AfterFunc(Patience, func() {
		cancel(fmt.Errorf("no connection after %v; see whether the broker is up and its SASL settings", Patience))
	})
	defer x.begin.Stop()
	res, err := rt.RoundTrip(ctx, addr, x)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	got, ok := res.(*answer)
	if !ok {
		return nil, fmt.Errorf("answer is a %T; use a kafka.Transport", res)
	}
	if got.code != 0 {
		return nil, kafka.Error(got.code)
	}
	return got, nil
}

// decode makes a Part of what was read for a Want.
func (p *part) decode(w Want, maxInflate int) Part {
	out := Part{Want: w, Set: record.Set{Next: w.Offset}, HighWatermark: -1, LastStable: -1, LogStart: -1}
	if !p.told {
		out.Err = ErrNoAnswer
		return out
	}
	out.HighWatermark, out.LastStable, out.LogStart = p.highWatermark, p.lastStable, p.logStart
	if p.code != 0 {
		out.Err = kafka.Error(p.code)
		return out
	}
	out.Wire = len(p.records)
	out.Set, out.Err = record.Decode(p.records, record.Options{From: w.Offset, Aborted: p.aborted, MaxInflate: maxInflate})
	return out
}
