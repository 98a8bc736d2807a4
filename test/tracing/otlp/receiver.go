// Package otlp receives traces as a collector does, over HTTP and gRPC, for
// tests: it is an OTLP server made from the protocol's own definitions.
package otlp

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	pb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // a client may compress
	"google.golang.org/protobuf/proto"
)

// Span is a span as it was received. Ids are hex, "" = none.
type Span struct {
	Service, Name     string
	Trace, ID, Parent string
	Kind              string
	Start, End        time.Time
	Error             bool
	Status            string // the status' text
	Attributes        map[string]string
	Links             []Link
	Schema            string
}

// Link is a link of a span.
type Link struct {
	Trace, ID string
	Kind      string // the attribute kconsume.link
}

// Receiver is a collector that keeps what it gets.
type Receiver struct {
	collector.UnimplementedTraceServiceServer
	http *httptest.Server
	grpc *grpc.Server
	addr string

	mu    sync.Mutex
	spans []Span
}

// Listen starts a receiver on the loopback address, which ends with the test.
func Listen(t testing.TB) *Receiver {
	t.Helper()
	r := &Receiver{grpc: grpc.NewServer()}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", r.post)
	r.http = httptest.NewServer(mux)
	t.Cleanup(r.http.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	collector.RegisterTraceServiceServer(r.grpc, r)
	var serving sync.WaitGroup
	serving.Go(func() { _ = r.grpc.Serve(l) }) // it ends with Stop
	t.Cleanup(func() { r.grpc.Stop(); serving.Wait() })
	return r
}

// HTTP is the endpoint for http/protobuf.
func (r *Receiver) HTTP() string { return r.http.URL }

// GRPC is the endpoint for grpc.
func (r *Receiver) GRPC() string { return "http://" + r.addr }

// Spans are those received so far, in order of their start.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.spans)
	slices.SortStableFunc(all, func(a, b Span) int { return a.Start.Compare(b.Start) })
	return all
}

// Export is the call over gRPC.
func (r *Receiver) Export(_ context.Context, q *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.keep(q)
	return &collector.ExportTraceServiceResponse{}, nil
}

func (r *Receiver) post(w http.ResponseWriter, q *http.Request) {
	var request collector.ExportTraceServiceRequest
	if err := read(q, &request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.keep(&request)
	answer, err := proto.Marshal(&collector.ExportTraceServiceResponse{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(answer) // who has gone needs none
}

func read(q *http.Request, into proto.Message) error {
	if got := q.Header.Get("Content-Type"); got != "application/x-protobuf" {
		return fmt.Errorf("content type %q", got)
	}
	body := io.Reader(q.Body)
	if q.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			return fmt.Errorf("decompress: %w", err)
		}
		body = z
	}
	b, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return proto.Unmarshal(b, into)
}

func (r *Receiver) keep(q *collector.ExportTraceServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range q.ResourceSpans {
		service := attributes(rs.GetResource().GetAttributes())["service.name"]
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				r.spans = append(r.spans, spanOf(service, ss.SchemaUrl, s))
			}
		}
	}
}

func spanOf(service, schema string, s *pb.Span) Span {
	out := Span{
		Service: service, Schema: schema, Name: s.Name, Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
		Kind: s.Kind.String(), Start: time.Unix(0, int64(s.StartTimeUnixNano)), End: time.Unix(0, int64(s.EndTimeUnixNano)),
		Error: s.GetStatus().GetCode() == pb.Status_STATUS_CODE_ERROR, Status: s.GetStatus().GetMessage(), Attributes: attributes(s.Attributes),
	}
	for _, l := range s.Links {
		out.Links = append(out.Links, Link{hex.EncodeToString(l.TraceId), hex.EncodeToString(l.SpanId), attributes(l.Attributes)["kconsume.link"]})
	}
	return out
}

func attributes(list []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range list {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			out[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			out[a.Key] = fmt.Sprint(v.IntValue)
		case *common.AnyValue_BoolValue:
			out[a.Key] = fmt.Sprint(v.BoolValue)
		case *common.AnyValue_DoubleValue:
			out[a.Key] = fmt.Sprint(v.DoubleValue)
		default:
			out[a.Key] = a.GetValue().String()
		}
	}
	return out
}
