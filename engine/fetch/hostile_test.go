package fetch

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kconsume/kconsume/engine/record"
)

func crc32c(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func ask(wants ...Want) Request {
	return Request{Broker: 7, ClientID: "test", MaxWait: time.Second, MinBytes: 1, MaxBytes: 1 << 20, Wants: wants}
}

// What no broker may send: an error, and the connection is not used again.
func TestHostileAnswers(t *testing.T) {
	good := func(id uint32) []byte {
		return answerOf(id, topicOf("t", partOf(0, batchOf(5, "a", "b"))))
	}
	put := func(at int, v uint32) func(uint32) []byte {
		return func(id uint32) []byte {
			b := good(id)
			binary.BigEndian.PutUint32(b[at:], v)
			return b
		}
	}
	const ( // in the good answer, with its topic of one letter
		atID, atTopics, atParts, atAborted, atSize = 4, 18, 25, 59, 67
	)
	if size := binary.BigEndian.Uint32(good(1)[atSize:]); int(size) != len(batchOf(5, "a", "b")) {
		t.Fatalf("the records' size is not at %d", atSize)
	}
	tests := []struct {
		name   string
		answer func(id uint32) []byte
		want   string // of the error
	}{
		{"length negative", put(0, math.MaxUint32), "-1 bytes long"},
		{"length zero", put(0, 0), "0 bytes long"},
		{"length huge", put(0, math.MaxInt32), "at most expected"},
		{"length too small for it", put(0, 40), "cannot be in"},
		{"other request", put(atID, 1<<31-1), "is for request 2147483647"},
		{"too many topics", put(atTopics, math.MaxInt32), "cannot be in"},
		{"too many partitions", put(atParts, math.MaxInt32), "cannot be in"},
		{"too many aborted transactions", put(atAborted, math.MaxInt32), "cannot be in"},
		{"records negative", put(atSize, math.MaxUint32-1), "-2 bytes long"},
		{"records longer than the answer", put(atSize, math.MaxInt32), "2147483647 bytes long"},
		{"records shorter than the answer", put(atSize, 10), "left behind its end"},
		{"fewer topics than there are", put(atTopics, 0), "left behind its end"},
		{"cut in its head", func(id uint32) []byte { return good(id)[:6] }, "EOF"},
		{"cut in a partition", func(id uint32) []byte { return good(id)[:40] }, "EOF"},
		{"cut in the records", func(id uint32) []byte { return good(id)[:100] }, "EOF"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakeBroker(t, func(id uint32, _ *kmsg.FetchRequest) []byte { return tt.answer(id) })
			a, err := Do(t.Context(), transport(t), f.addr, ask(want("t", 0, 5)))
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "fetch 1 partitions from broker 7: ") {
				t.Fatalf("error %v, want %q in it; answer %+v", err, tt.want, a)
			}
			<-f.closed
		})
	}
}

// Answers that are odd but say what they mean.
func TestOddAnswers(t *testing.T) {
	one := batchOf(5, "a", "b")
	withError := func(code int16) kmsg.FetchResponseTopicPartition {
		return kmsg.FetchResponseTopicPartition{Partition: 0, ErrorCode: code, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1}
	}
	tests := []struct {
		name   string
		topics []kmsg.FetchResponseTopic
		err    error
		values string
		next   int64
	}{
		{"as asked", []kmsg.FetchResponseTopic{topicOf("t", partOf(0, one))}, nil, "5=a 6=b ", 7},
		{"no records", []kmsg.FetchResponseTopic{topicOf("t", partOf(0, []byte{}))}, nil, "", 5},
		{"null records", []kmsg.FetchResponseTopic{topicOf("t", partOf(0, nil))}, nil, "", 5},
		{"left out", []kmsg.FetchResponseTopic{topicOf("t")}, ErrNoAnswer, "", 5},
		{"nothing at all", nil, ErrNoAnswer, "", 5},
		{"not asked for", []kmsg.FetchResponseTopic{topicOf("u", partOf(0, one)), topicOf("t", partOf(1, one), partOf(0, one))}, nil, "5=a 6=b ", 7},
		{"told twice", []kmsg.FetchResponseTopic{topicOf("t", partOf(0, one), partOf(0, batchOf(5, "other")))}, nil, "5=a 6=b ", 7},
		{"topic twice", []kmsg.FetchResponseTopic{topicOf("t"), topicOf("t", partOf(0, one))}, nil, "5=a 6=b ", 7},
		{"not leader", []kmsg.FetchResponseTopic{topicOf("t", withError(6))}, kafka.NotLeaderForPartition, "", 5},
		{"error of tomorrow", []kmsg.FetchResponseTopic{topicOf("t", withError(999))}, kafka.Error(999), "", 5},
		{"cut batch", []kmsg.FetchResponseTopic{topicOf("t", partOf(0, one[:70]))}, nil, "", 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakeBroker(t, func(id uint32, _ *kmsg.FetchRequest) []byte { return answerOf(id, tt.topics...) })
			a, err := Do(t.Context(), transport(t), f.addr, ask(want("t", 0, 5)))
			if err != nil {
				t.Fatal(err)
			}
			p := a.Parts[0]
			if !errors.Is(p.Err, tt.err) || values(p) != tt.values || p.Set.Next != tt.next || p.Want != want("t", 0, 5) {
				t.Errorf("got %+v with %q, want error %v, %q, next %d", p, values(p), tt.err, tt.values, tt.next)
			}
			if tt.err == nil && (p.HighWatermark != 50 || p.LastStable != 40 || p.LogStart != 1) {
				t.Errorf("offsets %d, %d, %d", p.HighWatermark, p.LastStable, p.LogStart)
			}
			if tt.name == "as asked" && p.Wire != len(one) {
				t.Errorf("%d bytes on the wire, want %d", p.Wire, len(one))
			}
			if tt.name == "cut batch" && p.Set.Truncated != len(one) {
				t.Errorf("%d bytes needed, want %d", p.Set.Truncated, len(one))
			}
		})
	}
}

func TestBadBatchIsData(t *testing.T) {
	bad := batchOf(7, "c")
	bad[len(bad)-2] ^= 1
	f := newFakeBroker(t, func(id uint32, _ *kmsg.FetchRequest) []byte {
		return answerOf(id, topicOf("t", partOf(0, append(batchOf(5, "a", "b"), bad...)), partOf(1, batchOf(0, "x"))))
	})
	a, err := Do(t.Context(), transport(t), f.addr, ask(want("t", 0, 5), want("t", 1, 0)))
	if err != nil {
		t.Fatal(err)
	}
	e, ok := errors.AsType[*record.Error](a.Parts[0].Err)
	if !ok || e.Class != record.Corrupt || e.Offset != 7 || values(a.Parts[0]) != "5=a 6=b " || a.Parts[0].Set.Next != 7 {
		t.Errorf("partition 0: %+v", a.Parts[0])
	}
	if a.Parts[1].Err != nil || values(a.Parts[1]) != "0=x " {
		t.Errorf("partition 1: %+v", a.Parts[1])
	}
}

func TestErrorOfTheWholeRequest(t *testing.T) {
	f := newFakeBroker(t, func(id uint32, _ *kmsg.FetchRequest) []byte {
		b := answerOf(id)
		binary.BigEndian.PutUint16(b[12:], 70)
		return b
	})
	_, err := Do(t.Context(), transport(t), f.addr, ask(want("t", 0, 5)))
	if !errors.Is(err, kafka.Error(70)) {
		t.Errorf("error %v, want Kafka's 70", err)
	}
}

// What is sent is what kmsg reads, partitions of a topic together in order.
func TestRequestOnTheWire(t *testing.T) {
	f := newFakeBroker(t, func(id uint32, _ *kmsg.FetchRequest) []byte { return answerOf(id) })
	r := Request{Broker: 7, ClientID: "me", MaxWait: 1500 * time.Millisecond, MinBytes: 2, MaxBytes: 3000, ReadCommitted: true, Wants: []Want{
		{"b", 4, 40, 400, 9}, {"a", 1, 10, 100, -1}, {"b", 3, 30, 300, 8},
	}}
	a, err := Do(t.Context(), transport(t), f.addr, r)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range a.Parts {
		if p.Want != r.Wants[i] || p.Err != ErrNoAnswer || p.HighWatermark != -1 {
			t.Errorf("part %d: %+v", i, p)
		}
	}
	got := <-f.asked
	part := func(p, epoch int32, offset int64, bytes int32) kmsg.FetchRequestTopicPartition {
		w := kmsg.NewFetchRequestTopicPartition()
		w.Partition, w.CurrentLeaderEpoch, w.FetchOffset, w.PartitionMaxBytes = p, epoch, offset, bytes
		w.LogStartOffset = -1
		return w
	}
	wantReq := kmsg.NewPtrFetchRequest()
	wantReq.SetVersion(11)
	wantReq.MaxWaitMillis, wantReq.MinBytes, wantReq.MaxBytes, wantReq.IsolationLevel = 1500, 2, 3000, 1
	wantReq.ReplicaID, wantReq.SessionID, wantReq.SessionEpoch = -1, 0, -1
	wantReq.Topics = []kmsg.FetchRequestTopic{
		{Topic: "b", Partitions: []kmsg.FetchRequestTopicPartition{part(4, 9, 40, 400), part(3, 8, 30, 300)}},
		{Topic: "a", Partitions: []kmsg.FetchRequestTopicPartition{part(1, -1, 10, 100)}},
	}
	if !reflect.DeepEqual(got.AppendTo(nil), wantReq.AppendTo(nil)) {
		t.Errorf("sent %+v, want %+v", got, wantReq)
	}
}

func TestRefusesWhatCannotBeSent(t *testing.T) {
	for name, edit := range map[string]func(*Request){
		"nothing wanted":     func(r *Request) { r.Wants = nil },
		"wanted twice":       func(r *Request) { r.Wants = append(r.Wants, r.Wants[0]) },
		"no topic":           func(r *Request) { r.Wants[0].Topic = "" },
		"long topic":         func(r *Request) { r.Wants[0].Topic = strings.Repeat("t", 1<<15) },
		"offset negative":    func(r *Request) { r.Wants[0].Offset = -1 },
		"no bytes":           func(r *Request) { r.Wants[0].MaxBytes = 0 },
		"no bytes in all":    func(r *Request) { r.MaxBytes = 0 },
		"long client":        func(r *Request) { r.ClientID = strings.Repeat("c", 1<<15) },
		"wait negative":      func(r *Request) { r.MaxWait = -1 },
		"min negative":       func(r *Request) { r.MinBytes = -1 },
		"partition negative": func(r *Request) { r.Wants[0].Partition = -1 },
	} {
		r := ask(want("t", 0, 0))
		edit(&r)
		if _, err := Do(t.Context(), nil, nil, r); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestUnknownBroker(t *testing.T) {
	f := newFakeBroker(t, func(id uint32, _ *kmsg.FetchRequest) []byte { return answerOf(id) })
	for _, id := range []int32{8, -1} {
		r := ask(want("t", 0, 0))
		r.Broker = id
		_, err := Do(t.Context(), transport(t), f.addr, r)
		if !errors.Is(err, kafka.BrokerNotAvailable) || !strings.Contains(err.Error(), "is not in the cluster's metadata") {
			t.Errorf("broker %d: %v", id, err)
		}
	}
}

func TestOldBroker(t *testing.T) {
	f := newFakeBroker(t, func(id uint32, _ *kmsg.FetchRequest) []byte { return answerOf(id) })
	f.maxFetch = 10
	_, err := Do(t.Context(), transport(t), f.addr, ask(want("t", 0, 0)))
	if err == nil || !strings.Contains(err.Error(), "up to v10 only") {
		t.Errorf("error %v", err)
	}
}

// A cancelled fetch ends at once, and so does its connection.
func TestCancel(t *testing.T) {
	f := newFakeBroker(t, func(uint32, *kmsg.FetchRequest) []byte { return nil })
	ctx, cancel := context.WithCancel(t.Context())
	tr := transport(t)
	done := make(chan error)
	go func() {
		r := ask(want("t", 0, 0))
		r.MaxWait = time.Hour
		_, err := Do(ctx, tr, f.addr, r)
		done <- err
	}()
	<-f.asked
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	<-f.closed
}

// A size costs no memory until its bytes are there.
func TestSizesAreNotTrusted(t *testing.T) {
	f := newFakeBroker(t, func(id uint32, _ *kmsg.FetchRequest) []byte {
		b := answerOf(id, topicOf("t", partOf(0, batchOf(5, "a"))))
		binary.BigEndian.PutUint32(b, 200<<20)
		binary.BigEndian.PutUint32(b[67:], 199<<20)
		return b // and the end
	})
	tr := transport(t)
	r := ask(want("t", 0, 5))
	r.Wants[0].MaxBytes = 1000
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	_, err := Do(t.Context(), tr, f.addr, r)
	runtime.ReadMemStats(&b)
	if n := b.TotalAlloc - a.TotalAlloc; err == nil || n > 4<<20 {
		t.Errorf("%d bytes were allocated, error %v", n, err)
	}
}

// A partition may answer with more than it was asked for: one batch, whole.
func TestLargerThanAsked(t *testing.T) {
	big := strings.Repeat("x", 3<<20)
	f := newFakeBroker(t, func(id uint32, _ *kmsg.FetchRequest) []byte {
		return answerOf(id, topicOf("t", partOf(0, batchOf(5, big)), partOf(1, batchOf(0, "y"))))
	})
	r := ask(want("t", 0, 5), want("t", 1, 0))
	r.MaxBytes, r.Wants[0].MaxBytes = 100, 100
	a, err := Do(t.Context(), transport(t), f.addr, r)
	if err != nil || values(a.Parts[0]) != "5="+big+" " || values(a.Parts[1]) != "0=y " {
		t.Errorf("error %v, %d and %d records", err, len(a.Parts[0].Set.Records), len(a.Parts[1].Set.Records))
	}
}
