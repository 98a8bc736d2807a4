package sim

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kmsgRecord is a record as it stands in a request.
type kmsgRecord struct {
	key, value []byte
	headers    []header
	timestamp  int64 // unix ms
}

// decodeBatch reads one record batch of a produce request. It shares no code
// with the engine's decoder.
func decodeBatch(raw []byte) ([]kmsgRecord, error) {
	var b kmsg.RecordBatch
	if err := b.ReadFrom(raw); err != nil {
		return nil, fmt.Errorf("read a batch: %w", err)
	}
	out := make([]kmsgRecord, 0, b.NumRecords)
	err := eachRecord(&b, func(_ []byte, r *kmsg.Record) {
		one := kmsgRecord{key: r.Key, value: r.Value, timestamp: b.FirstTimestamp + r.TimestampDelta64}
		for _, h := range r.Headers {
			one.headers = append(one.headers, header{h.Key, h.Value})
		}
		out = append(out, one)
	})
	return out, err
}

// eachRecord goes over the records of a batch, each with its bytes.
func eachRecord(b *kmsg.RecordBatch, f func(raw []byte, r *kmsg.Record)) error {
	body, err := kgo.DefaultDecompressor().Decompress(b.Records, kgo.CompressionCodecType(b.Attributes&7))
	if err != nil {
		return fmt.Errorf("decompress a batch: %w", err)
	}
	for range b.NumRecords {
		size, n := binary.Varint(body)
		if n <= 0 || size < 0 || int64(len(body)-n) < size {
			return errors.New("a batch ends within a record")
		}
		var r kmsg.Record
		if err := r.ReadFrom(body[:n+int(size)]); err != nil {
			return fmt.Errorf("read a record: %w", err)
		}
		f(body[:n+int(size)], &r)
		body = body[n+int(size):]
	}
	return nil
}

// decodeProduce reads a produce request from its frame, length in front.
func decodeProduce(frame []byte) (*kmsg.ProduceRequest, error) {
	q := kmsg.NewPtrProduceRequest()
	q.SetVersion(int16(binary.BigEndian.Uint16(frame[6:])))
	at := 12 // behind length, key, version and correlation
	if at+2 > len(frame) {
		return nil, errors.New("a request without a client id")
	}
	if n := int(int16(binary.BigEndian.Uint16(frame[at:]))); n > 0 {
		at += n
	}
	at += 2
	if q.IsFlexible() {
		at++ // no tags
	}
	if at > len(frame) {
		return nil, errors.New("a request ends within its client id")
	}
	return q, q.ReadFrom(frame[at:])
}

// decodeProduced reads the answer to a produce request from its frame.
func decodeProduced(version int16, frame []byte) (*kmsg.ProduceResponse, error) {
	res := kmsg.NewPtrProduceResponse()
	_, err := decodeAnswer(res, version, frame)
	return res, err
}

// decodeFetched reads the answer to a fetch from its frame, and tells where its
// body begins.
func decodeFetched(version int16, frame []byte) (*kmsg.FetchResponse, int, error) {
	res := kmsg.NewPtrFetchResponse()
	at, err := decodeAnswer(res, version, frame)
	return res, at, err
}

func decodeAnswer(res kmsg.Response, version int16, frame []byte) (body int, err error) {
	res.SetVersion(version)
	at := 8
	if res.IsFlexible() {
		at++
	}
	if at > len(frame) {
		return at, errors.New("an answer without a body")
	}
	return at, res.ReadFrom(frame[at:])
}
