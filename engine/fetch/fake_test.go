package fetch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fakeBroker is a broker that answers a Fetch with the bytes it is told to.
type fakeBroker struct {
	addr     net.Addr
	maxFetch int16                                        // version
	answer   func(id uint32, r *kmsg.FetchRequest) []byte // with its length; nothing is silence
	closed   chan struct{}                                // gets a value when a connection that fetched has ended
	asked    chan *kmsg.FetchRequest                      // the Fetches
}

func newFakeBroker(t *testing.T, answer func(uint32, *kmsg.FetchRequest) []byte) *fakeBroker {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeBroker{addr: ln.Addr(), maxFetch: 17, answer: answer, closed: make(chan struct{}, 100), asked: make(chan *kmsg.FetchRequest, 100)}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() { f.serve(t, c) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return f
}

// serve answers one connection until it ends.
func (f *fakeBroker) serve(t *testing.T, c net.Conn) {
	fetched := false
	defer func() {
		c.Close()
		if fetched {
			f.closed <- struct{}{}
		}
	}()
	for {
		id, req, err := readRequest(c)
		if err != nil {
			return
		}
		var out []byte
		switch req := req.(type) {
		case *kmsg.ApiVersionsRequest:
			out = frameOf(id, f.versions(req))
		case *kmsg.MetadataRequest:
			out = frameOf(id, f.metadata(req))
		case *kmsg.FetchRequest:
			fetched = true
			f.asked <- req
			if out = f.answer(id, req); len(out) == 0 {
				continue // for ever silent
			}
		default:
			t.Errorf("unexpected request %T", req)
			return
		}
		_, err = c.Write(out)
		if err != nil || len(out) < 4 || len(out)-4 < int(binary.BigEndian.Uint32(out)) {
			return // a broker that dies in the middle
		}
	}
}

func readRequest(r io.Reader) (id uint32, req kmsg.Request, err error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return 0, nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		return 0, nil, err
	}
	req = kmsg.RequestForKey(int16(binary.BigEndian.Uint16(b)))
	req.SetVersion(int16(binary.BigEndian.Uint16(b[2:])))
	client := int(int16(binary.BigEndian.Uint16(b[8:])))
	return binary.BigEndian.Uint32(b[4:]), req, req.ReadFrom(b[10+max(client, 0):])
}

func frameOf(id uint32, res kmsg.Response) []byte {
	b := res.AppendTo(binary.BigEndian.AppendUint32(make([]byte, 4), id))
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func (f *fakeBroker) versions(req *kmsg.ApiVersionsRequest) kmsg.Response {
	res := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	res.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: 1, MinVersion: 4, MaxVersion: f.maxFetch}, {ApiKey: 3, MaxVersion: 8}, {ApiKey: 18, MaxVersion: 2}}
	return res
}

func (f *fakeBroker) metadata(req *kmsg.MetadataRequest) kmsg.Response {
	res := req.ResponseKind().(*kmsg.MetadataResponse)
	host, port, _ := net.SplitHostPort(f.addr.String())
	n, _ := strconv.Atoi(port)
	res.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 7, Host: host, Port: int32(n)}}
	res.ControllerID = 7
	return res
}

// answerOf is what kmsg encodes of a v11 answer.
func answerOf(id uint32, topics ...kmsg.FetchResponseTopic) []byte {
	res := kmsg.NewPtrFetchResponse()
	res.SetVersion(11)
	res.Topics = topics
	return frameOf(id, res)
}

func topicOf(name string, parts ...kmsg.FetchResponseTopicPartition) kmsg.FetchResponseTopic {
	return kmsg.FetchResponseTopic{Topic: name, Partitions: parts}
}

func partOf(p int32, records []byte) kmsg.FetchResponseTopicPartition {
	return kmsg.FetchResponseTopicPartition{Partition: p, HighWatermark: 50, LastStableOffset: 40, LogStartOffset: 1, PreferredReadReplica: -1, RecordBatches: records}
}

// transport is a Transport that the test closes.
func transport(t *testing.T) *kafka.Transport {
	tr := &kafka.Transport{ClientID: "test"}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func want(topic string, partition int32, offset int64) Want {
	return Want{Topic: topic, Partition: partition, Offset: offset, MaxBytes: 1 << 20, LeaderEpoch: -1}
}

// batchOf is a batch of records with the values, from the offset on.
func batchOf(offset int64, values ...string) []byte {
	var recs []byte
	for i, v := range values {
		r := kmsg.Record{OffsetDelta: int32(i), Value: []byte(v)}
		r.Length = int32(len(r.AppendTo(nil)) - 1)
		recs = r.AppendTo(recs)
	}
	b := kmsg.RecordBatch{FirstOffset: offset, Magic: 2, LastOffsetDelta: int32(len(values) - 1), ProducerID: -1, NumRecords: int32(len(values)), Records: recs}
	b.Length = int32(len(b.AppendTo(nil)) - 12)
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32c(raw[21:]))
	return raw
}

func values(p Part) string {
	var b bytes.Buffer
	for _, r := range p.Set.Records {
		fmt.Fprintf(&b, "%d=%s ", r.Offset, r.Value)
	}
	return b.String()
}
