package fetch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

const (
	apiKey     = 1
	apiVersion = 11 // Kafka 2.3: leader epochs, and topics by name
)

// index finds the place of a partition in Request.Wants.
type index map[string]map[int32]int

func indexOf(wants []Want) (index, error) {
	if len(wants) == 0 {
		return nil, errors.New("no partition is wanted")
	}
	ix := make(index)
	for i, w := range wants {
		if w.Topic == "" || len(w.Topic) > math.MaxInt16 || w.Partition < 0 || w.Offset < 0 || w.MaxBytes < 1 {
			return nil, fmt.Errorf("want %d cannot be asked for: topic %.40q, partition %d, offset %d, %d bytes", i, w.Topic, w.Partition, w.Offset, w.MaxBytes)
		}
		parts := ix[w.Topic]
		if parts == nil {
			parts = make(map[int32]int)
			ix[w.Topic] = parts
		}
		if _, ok := parts[w.Partition]; ok {
			return nil, fmt.Errorf("%s/%d is wanted twice", w.Topic, w.Partition)
		}
		parts[w.Partition] = i
	}
	return ix, nil
}

// encode is the request as it goes over the wire.
func encode(r Request, ix index, correlation int32) ([]byte, error) {
	if len(r.ClientID) > math.MaxInt16 || r.MaxBytes < 1 || r.MinBytes < 0 || r.MaxWait < 0 {
		return nil, fmt.Errorf("request cannot be sent: client id of %d bytes, %d to %d bytes wanted within %v", len(r.ClientID), r.MinBytes, r.MaxBytes, r.MaxWait)
	}
	const none = math.MaxUint32 // -1
	be := binary.BigEndian
	b := make([]byte, 4, 128+64*len(r.Wants))
	b = be.AppendUint16(b, apiKey)
	b = be.AppendUint16(b, apiVersion)
	b = be.AppendUint32(b, uint32(correlation))
	b = appendString(b, r.ClientID)
	b = be.AppendUint32(b, none) // replica: a consumer
	b = be.AppendUint32(b, uint32(min(r.MaxWait/time.Millisecond, math.MaxInt32)))
	b = be.AppendUint32(b, uint32(r.MinBytes))
	b = be.AppendUint32(b, uint32(r.MaxBytes))
	if r.ReadCommitted {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = be.AppendUint32(b, 0)    // session: none
	b = be.AppendUint32(b, none) // and none to be made
	b = appendWants(b, r.Wants, ix)
	b = be.AppendUint32(b, 0) // no forgotten topics
	b = appendString(b, "")   // rack: only the leader is asked
	be.PutUint32(b, uint32(len(b)-4))
	return b, nil
}

// appendWants puts the partitions of a topic together, in the order in which
// they are wanted.
func appendWants(b []byte, wants []Want, ix index) []byte {
	be := binary.BigEndian
	b = be.AppendUint32(b, uint32(len(ix)))
	for _, topic := range topicsOf(wants, ix) {
		b = appendString(b, wants[topic[0]].Topic)
		b = be.AppendUint32(b, uint32(len(topic)))
		for _, i := range topic {
			w := &wants[i]
			b = be.AppendUint32(b, uint32(w.Partition))
			b = be.AppendUint32(b, uint32(w.LeaderEpoch))
			b = be.AppendUint64(b, uint64(w.Offset))
			b = be.AppendUint64(b, math.MaxUint64) // log start: a follower's
			b = be.AppendUint32(b, uint32(w.MaxBytes))
		}
	}
	return b
}

// topicsOf are the places of the wants, by topic.
func topicsOf(wants []Want, ix index) [][]int {
	topics := make([][]int, 0, len(ix))
	place := make(map[string]int, len(ix))
	for i, w := range wants {
		t, ok := place[w.Topic]
		if !ok {
			t = len(topics)
			place[w.Topic] = t
			topics = append(topics, make([]int, 0, len(ix[w.Topic])))
		}
		topics[t] = append(topics[t], i)
	}
	return topics
}

func appendString(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}
