package topics

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/kconsume/kconsume/engine/internal/cursor"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// ID is a topic's identity: a topic that is deleted and created again has
// another one. The zero value is a broker's that does not tell.
type ID [16]byte

// Layout is a topic as one broker sees it at this moment.
type Layout struct {
	ID      ID
	Leaders []int32 // broker by partition, −1 = nobody for now
}

// Layouts asks a broker, past kafka-go's cache, for the topics that are named.
// One that does not exist, or that we may not see, is left out. No topic is
// ever created by it.
func Layouts(ctx context.Context, c *kafka.Client, names []string) (map[string]Layout, error) {
	res, err := send[*metadataAnswer](ctx, c, anyBroker, &metadataRequest{names: names})
	if err == nil {
		return res.layouts()
	}
	// A broker older than Kafka 3.0 closes the connection on this version.
	old, oldErr := describe(ctx, c, anyBroker, names)
	if oldErr != nil {
		return nil, err
	}
	return oldLayouts(old), nil
}

func oldLayouts(res *metadata.Response) map[string]Layout {
	brokers := map[int32]bool{}
	for _, b := range res.Brokers {
		brokers[b.NodeID] = true
	}
	out := map[string]Layout{}
	for _, t := range res.Topics {
		if t.ErrorCode != 0 {
			continue
		}
		l := newLayout(len(t.Partitions))
		for _, p := range t.Partitions {
			l.lead(p.PartitionIndex, p.LeaderID, brokers)
		}
		out[t.Name] = l
	}
	return out
}

func newLayout(partitions int) Layout {
	l := Layout{Leaders: make([]int32, partitions)}
	for i := range l.Leaders {
		l.Leaders[i] = -1
	}
	return l
}

func (l *Layout) lead(partition, leader int32, brokers map[int32]bool) {
	if partition >= 0 && int(partition) < len(l.Leaders) && brokers[leader] {
		l.Leaders[partition] = leader
	}
}

// metadataVersion is the first with topic ids in a request; kafka-go ends at 8.
const metadataVersion = 12

// metadataMost bounds an answer. Ten thousand partitions take half a megabyte.
const metadataMost = 64 << 20

// metadataRequest is a Metadata request that encodes itself.
type metadataRequest struct{ names []string }

// ApiKey implements protocol.Message.
func (*metadataRequest) ApiKey() protocol.ApiKey { return protocol.Metadata }

// encode is the whole request, its length in front.
func (m *metadataRequest) encode(id int32, clientID string) []byte {
	b := make([]byte, 4, 64+32*len(m.names))
	b = binary.BigEndian.AppendUint16(b, uint16(protocol.Metadata))
	b = binary.BigEndian.AppendUint16(b, metadataVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(id))
	b = binary.BigEndian.AppendUint16(b, uint16(len(clientID)))
	b = append(b, clientID...)
	b = append(b, 0) // tags
	b = binary.AppendUvarint(b, uint64(len(m.names))+1)
	for _, n := range m.names {
		b = append(b, make([]byte, 16)...) // asked for by name
		b = binary.AppendUvarint(b, uint64(len(n))+1)
		b = append(b, n...)
		b = append(b, 0)
	}
	b = append(b, 0, 0, 0) // no creation, no operations, tags
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func (m *metadataRequest) exchange(rw io.ReadWriter, clientID string) (protocol.Message, error) {
	const id = 1
	if _, err := rw.Write(m.encode(id, clientID)); err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	var head [8]byte
	if _, err := io.ReadFull(rw, head[:]); err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	size := int64(int32(binary.BigEndian.Uint32(head[:])))
	if size < 4 || size > metadataMost {
		return nil, fmt.Errorf("read answer: it says that it is %d bytes long", size)
	}
	if got := binary.BigEndian.Uint32(head[4:]); got != id {
		return nil, fmt.Errorf("read answer: it is for request %d, not %d", got, id)
	}
	body, err := io.ReadAll(io.LimitReader(rw, size-4)) // grows with what comes, not with what was said
	if err == nil && int64(len(body)) < size-4 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	return &metadataAnswer{body}, nil
}

// metadataAnswer is the body of an answer, behind the correlation id.
type metadataAnswer struct{ body []byte }

// ApiKey implements protocol.Message.
func (*metadataAnswer) ApiKey() protocol.ApiKey { return protocol.Metadata }

var errCutShort = errors.New("the answer ends too early")

// layouts decodes the answer.
func (m *metadataAnswer) layouts() (map[string]Layout, error) {
	r := &reader{cursor.Cursor{B: m.body}}
	r.tags()
	r.skip(4) // throttle
	brokers := map[int32]bool{}
	for range r.count() {
		brokers[r.Int32()] = true
		r.text() // host
		r.skip(4)
		r.text() // rack
		r.tags()
	}
	r.text()  // cluster id
	r.skip(4) // controller
	out := map[string]Layout{}
	for range r.count() {
		code := r.Int16()
		name := r.text()
		l := r.topic(brokers)
		if code == 0 && !r.Short {
			out[name] = l
		}
	}
	if r.Short {
		return nil, &Error{Refused, fmt.Errorf("read metadata: %w", errCutShort)}
	}
	return out, nil
}

func (r *reader) topic(brokers map[int32]bool) Layout {
	var id ID
	copy(id[:], r.Take(len(id)))
	r.skip(1) // internal
	l := newLayout(r.count())
	l.ID = id
	for range l.Leaders {
		r.skip(2) // error: the leader tells enough
		partition, leader := r.Int32(), r.Int32()
		r.skip(4) // epoch
		for range 3 {
			r.skip(4 * r.count()) // replicas, those in sync, those offline
		}
		r.tags()
		l.lead(partition, leader, brokers)
		if r.Short {
			break
		}
	}
	r.skip(4) // operations
	r.tags()
	return l
}

// reader reads Kafka's compact encoding.
type reader struct{ cursor.Cursor }

func (r *reader) skip(n int) { r.Take(n) }

func (r *reader) uvarint() uint64 {
	n, size := binary.Uvarint(r.B)
	if size <= 0 {
		r.End()
		return 0
	}
	r.B = r.B[size:]
	return n
}

// count is the length of an array: no more than the bytes that are left, of
// which each entry takes one at least.
func (r *reader) count() int {
	n := r.uvarint()
	if n == 0 {
		return 0
	}
	if n-1 > uint64(len(r.B)) {
		r.End()
		return 0
	}
	return int(n - 1)
}

func (r *reader) text() string { return string(r.Take(r.count())) }

func (r *reader) tags() {
	for range r.uvarint() {
		r.uvarint()
		n := r.uvarint()
		if r.Short || n > uint64(len(r.B)) {
			r.End()
			return
		}
		r.skip(int(n))
	}
}
