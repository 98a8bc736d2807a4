package fetch

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// pipe runs the exchange of r against a broker's end of a pipe, which serve
// gets after the request has been read from it. It must run in a bubble.
func pipe(t *testing.T, r Request, serve func(c net.Conn, id uint32)) (*answer, *protocol.Conn, error) {
	t.Helper()
	x, err := newExchange(r)
	if err != nil {
		t.Fatal(err)
	}
	x.ctx, x.begin = t.Context(), time.AfterFunc(Patience, func() {})
	x.Required(map[protocol.ApiKey]int16{protocol.Fetch: 11})
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	go func() {
		if id, _, err := readRequest(theirs); err == nil {
			serve(theirs, id)
		}
	}()
	conn := protocol.NewConn(ours, "test")
	m, err := x.RawExchange(conn)
	if err != nil {
		return nil, conn, err
	}
	return m.(*answer), conn, nil
}

func TestSilentBroker(t *testing.T) {
	for name, sent := range map[string]int{"from the start": 0, "after the head": 8, "in a partition": 45, "in the records": 110} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				r := ask(want("t", 0, 5))
				r.MaxWait = time.Minute
				_, _, err := pipe(t, r, func(c net.Conn, id uint32) {
					if sent == 0 {
						return
					}
					time.Sleep(r.MaxWait)
					c.Write(answerOf(id, topicOf("t", partOf(0, batchOf(5, "aaaaaaaaaaaaa"))))[:sent])
				})
				if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "silent") {
					t.Errorf("error %v", err)
				}
				if d := time.Since(start); d != r.MaxWait+Patience {
					t.Errorf("given up after %v", d)
				}
			})
		})
	}
}

// A slow line is no silent broker.
func TestSlowLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, conn, err := pipe(t, ask(want("t", 0, 5)), func(c net.Conn, id uint32) {
			for _, b := range answerOf(id, topicOf("t", partOf(0, batchOf(5, "a")))) {
				time.Sleep(Patience - time.Second)
				c.Write([]byte{b})
			}
		})
		if err != nil || !bytes.Equal(a.parts[0].records, batchOf(5, "a")) {
			t.Fatalf("error %v", err)
		}
		// The connection has no deadline left.
		go func() { time.Sleep(time.Hour); conn.Close() }()
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a deadline was left on the connection")
		}
	})
}

// The exchange takes its answer and not a byte of what follows.
func TestExchangeLeavesTheNextAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, conn, err := pipe(t, ask(want("t", 0, 5)), func(c net.Conn, id uint32) {
			c.Write(append(answerOf(id, topicOf("t", partOf(0, batchOf(5, "a")))), "next"...))
		})
		if err != nil {
			t.Fatal(err)
		}
		var b [4]byte
		if _, err := io.ReadFull(conn, b[:]); err != nil || string(b[:]) != "next" {
			t.Errorf("what follows is %q, error %v", b, err)
		}
	})
}

// An error of a partition must not come from RawExchange: kafka-go would close
// the connection.
func TestPartitionErrorKeepsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, err := pipe(t, ask(want("t", 0, 5)), func(c net.Conn, id uint32) {
			p := partOf(0, nil)
			p.ErrorCode = 1
			b := answerOf(id, topicOf("t", p))
			binary.BigEndian.PutUint16(b[12:], 70) // nor one of the request
			c.Write(b)
		})
		if err != nil || a.code != 70 || a.parts[0].code != 1 {
			t.Errorf("error %v, answer %+v", err, a)
		}
	})
}

// tripper is a RoundTripper that never gets a connection, or answers nonsense.
type tripper struct{ res kafka.Response }

func (r tripper) RoundTrip(ctx context.Context, _ net.Addr, _ kafka.Request) (kafka.Response, error) {
	if r.res != nil {
		return r.res, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := Do(t.Context(), tripper{}, nil, ask(want("t", 0, 5)))
		if err == nil || !strings.Contains(err.Error(), "no connection after 30s") || errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		if d := time.Since(start); d != Patience {
			t.Errorf("given up after %v", d)
		}
	})
}

func TestForeignRoundTripper(t *testing.T) {
	_, err := Do(t.Context(), tripper{res: new(exchange)}, nil, ask(want("t", 0, 5)))
	if err == nil || !strings.Contains(err.Error(), "use a kafka.Transport") {
		t.Errorf("error %v", err)
	}
}

// Whatever the bytes of an answer: no panic, no more memory than bytes have
// come, and nothing read beyond it.
func FuzzAnswer(f *testing.F) {
	part := partOf(0, batchOf(5, "a"))
	part.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 1, FirstOffset: 2}}
	f.Add(answerOf(1, topicOf("t", part, partOf(3, nil)), topicOf("u", partOf(1, batchOf(1, "b"))))[8:], 0)
	f.Add([]byte{}, 100)
	f.Fuzz(func(t *testing.T, b []byte, more int) {
		x, err := newExchange(Request{MaxBytes: 1, ReadCommitted: true, Wants: []Want{{"t", 0, 0, 1, -1}, {"t", 3, 0, 1, -1}}})
		if err != nil {
			t.Fatal(err)
		}
		in := bytes.NewReader(b)
		fr := &frame{r: in, left: max(0, len(b)+more%1000)}
		a, err := readAnswer(fr, x)
		if err == nil && (fr.left != 0 || len(a.parts) != 2) {
			t.Errorf("%d bytes left, %d parts", fr.left, len(a.parts))
		}
		for _, p := range a.parts {
			if len(p.records) > len(b) || len(p.aborted)*abortedTxn > len(b) || !p.told && p.records != nil {
				t.Errorf("%d bytes of records, %d transactions of %d bytes", len(p.records), len(p.aborted), len(b))
			}
		}
	})
}
