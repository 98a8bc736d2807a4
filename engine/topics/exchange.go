package topics

import (
	"context"
	"io"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// anyBroker lets the transport choose.
const anyBroker = -1

// requestTimeout bounds a request where the client sets no bound.
const requestTimeout = 10 * time.Second

// exchange is a request that goes to the broker itself. kafka-go's transport
// answers plain metadata requests from a cache that is seconds old and may know
// some topics only, and after a plain CreateTopics it waits, with no bound, for
// the new topics to show in that cache.
type exchange struct {
	protocol.Message
	broker   int32
	clientID string
	version  int16 // chosen on the connection, whose goroutine alone uses it
}

// answer hides the response's type, which would set off the same handling.
type answer struct{ protocol.Message }

func (e *exchange) Broker(cluster protocol.Cluster) (protocol.Broker, error) {
	if e.broker == anyBroker {
		return protocol.Broker{ID: anyBroker}, nil
	}
	b, ok := cluster.Brokers[e.broker]
	if !ok {
		return protocol.Broker{}, kafka.BrokerNotAvailable
	}
	return b, nil
}

func (e *exchange) Required(versions map[protocol.ApiKey]int16) bool {
	e.version = versions[e.ApiKey()]
	return true
}

// selfEncoded is a request of a version that kafka-go does not know.
type selfEncoded interface {
	exchange(rw io.ReadWriter, clientID string) (protocol.Message, error)
}

// RawExchange sends the request alone on its connection, so any correlation id will do.
func (e *exchange) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if own, ok := e.Message.(selfEncoded); ok {
		res, err := own.exchange(rw, e.clientID)
		if err != nil {
			return nil, err
		}
		return answer{res}, nil
	}
	res, err := protocol.RoundTrip(rw, e.version, 1, e.clientID, e.Message)
	if err != nil {
		return nil, err
	}
	return answer{res}, nil
}

// send exchanges one request with a broker.
func send[R protocol.Message](ctx context.Context, c *kafka.Client, broker int32, req protocol.Message) (R, error) {
	timeout := c.Timeout
	if timeout <= 0 {
		timeout = requestTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var none R
	transport := c.Transport
	if transport == nil {
		transport = kafka.DefaultTransport
	}
	clientID := ClientID(transport)
	res, err := transport.RoundTrip(ctx, c.Addr, &exchange{Message: req, broker: broker, clientID: clientID})
	if err != nil {
		return none, unreachable(c.Addr, err)
	}
	return res.(answer).Message.(R), nil
}

// ClientID is the name under which a transport's requests go out.
func ClientID(transport kafka.RoundTripper) string {
	switch t := transport.(type) {
	case *kafka.Transport:
		return t.ClientID
	case interface{ Current() *kafka.Transport }:
		return t.Current().ClientID
	}
	return ""
}
