package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/kconsume/kconsume/plugin/internal/wire"
	"github.com/kconsume/kconsume/plugin/internal/wire/pb"
)

// closedPort is an address of this machine where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func httpError(t *testing.T, c *http.Client, url string) error {
	t.Helper()
	r, err := c.Get(url)
	if err == nil {
		r.Body.Close()
		t.Fatalf("GET %s succeeded", url)
	}
	return err
}

// hangingUp is a server that closes each connection without an answer.
func hangingUp(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// cutShort is the error of reading a body that ends before its length.
func cutShort(t *testing.T) error {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "short")
	}))
	t.Cleanup(s.Close)
	r, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	_, err = io.ReadAll(r.Body)
	return err
}

// silent is an address that accepts and never answers.
func silent(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

func readTimeout(t *testing.T) error {
	c, err := net.Dial("tcp", silent(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err = c.Read(make([]byte, 1))
	return err
}

func brokenPipe(t *testing.T) error {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	_, err = w.Write([]byte("x"))
	return err
}

func closedConn(t *testing.T) error {
	c, err := net.Dial("tcp", silent(t))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	_, err = c.Read(make([]byte, 1))
	return err
}

func dnsError(t *testing.T) error {
	// A resolver of its own that reaches no server: no name leaves this machine.
	at := closedPort(t)
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", at)
	}}
	_, err := r.LookupHost(context.Background(), "payments.invalid.")
	if dns := new(net.DNSError); !errors.As(err, &dns) {
		t.Fatalf("lookup: %v", err)
	}
	return err
}

func grpcError(t *testing.T) error {
	c, err := grpc.NewClient("passthrough:///"+closedPort(t), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = grpc_health_v1.NewHealthClient(c).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
	return err
}

func retryInfo(t *testing.T, c codes.Code, d time.Duration) error {
	s, err := status.New(c, "busy").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

func pgError(t *testing.T) error {
	_, err := pgconn.Connect(context.Background(), "postgres://u@"+closedPort(t)+"/db?sslmode=disable")
	if err == nil {
		t.Fatal("connected to a closed port")
	}
	return err
}

func decodeError(v any, s string) error { return json.Unmarshal([]byte(s), v) }

func protoError(t *testing.T) error {
	err := proto.Unmarshal([]byte{0xFF}, new(pb.Record))
	if err == nil {
		t.Fatal("protobuf decoded nonsense")
	}
	return err
}

type statusError int

func (e statusError) Error() string   { return fmt.Sprintf("status %d", int(e)) }
func (e statusError) StatusCode() int { return int(e) }

type waitError time.Duration

func (e waitError) Error() string             { return "busy" }
func (e waitError) RetryAfter() time.Duration { return time.Duration(e) }

type codeError string

func (e codeError) Error() string     { return "coded" }
func (e codeError) ErrorCode() string { return string(e) }

type temporaryError bool

func (e temporaryError) Error() string   { return "temporary or not" }
func (e temporaryError) Temporary() bool { return bool(e) }

func TestClassify(t *testing.T) {
	cause := errors.New("cause")
	value := []byte("http://[bad")
	_, urlErr := url.Parse(string(value))
	_, _, cidrErr := net.ParseCIDR("nonsense")
	_, _, portErr := net.SplitHostPort("no-port")
	timedOut, stop := context.WithTimeout(context.Background(), 0)
	defer stop()
	<-timedOut.Done()
	slow := &http.Client{Timeout: time.Millisecond}
	for _, c := range []struct {
		name   string
		err    error
		class  Class
		reason Reason
		rule   string
		code   string
		after  time.Duration
	}{
		{name: "done", class: ClassAck},
		{"transient", Transient(cause), ClassTransient, ReasonTransient, "explicit", "", 0},
		{"permanent", Permanent(cause), ClassPermanent, ReasonPermanent, "explicit", "", 0},
		{"retry after", RetryAfter(cause, time.Minute), ClassTransient, ReasonTransient, "explicit", "", time.Minute},
		{"retry after nothing", RetryAfter(cause, -1), ClassTransient, ReasonTransient, "explicit", "", 0},
		{"drop", Drop("old"), ClassDrop, "", "explicit", "", 0},
		{"wrapped permanent", fmt.Errorf("a: %w", fmt.Errorf("b: %w", Permanent(cause))), ClassPermanent, ReasonPermanent, "explicit", "", 0},
		{"joined drop", errors.Join(cause, Drop("old")), ClassDrop, "", "explicit", "", 0},
		{"the outermost counts", Transient(Permanent(cause)), ClassTransient, ReasonTransient, "explicit", "", 0},
		{"a wish further in", Transient(fmt.Errorf("x: %w", RetryAfter(cause, time.Second))), ClassTransient, ReasonTransient, "explicit", "", time.Second},
		{"a foreign wish further in", Transient(waitError(time.Second)), ClassTransient, ReasonTransient, "explicit", "", time.Second},
		{"explicit against type", Permanent(context.DeadlineExceeded), ClassPermanent, ReasonPermanent, "explicit", "", 0},

		{"explicit with a code", Permanent(&pgconn.PgError{Code: "40001"}), ClassPermanent, ReasonPermanent, "explicit", "40001", 0},
		{"explicit with a code of its own", Transient(codeError("\xc3\x28")), ClassTransient, ReasonTransient, "explicit", "\xc3\x28", 0},

		{"temporary", fmt.Errorf("x: %w", temporaryError(true)), ClassTransient, ReasonTransient, "temporary", "", 0},
		{"not temporary", temporaryError(false), ClassPermanent, ReasonPermanent, "unknown", "", 0},
		{"temporary behind one that is not", errors.Join(temporaryError(false), temporaryError(true)), ClassTransient, ReasonTransient, "temporary", "", 0},
		{"retry after of its own", waitError(3 * time.Second), ClassTransient, ReasonTransient, "retry-after", "", 3 * time.Second},
		{"no wish", waitError(0), ClassPermanent, ReasonPermanent, "unknown", "", 0},

		{"context's deadline", timedOut.Err(), ClassTransient, ReasonTransient, "temporary", "", 0},
		{"wrapped deadline", fmt.Errorf("query: %w", os.ErrDeadlineExceeded), ClassTransient, ReasonTransient, "temporary", "", 0},
		{"a context of its own", context.Canceled, ClassTransient, ReasonTransient, "canceled", "", 0},

		{"connection exception", &pgconn.PgError{Code: "08006"}, ClassTransient, ReasonTransient, "sqlstate", "08006", 0},
		{"serialization", fmt.Errorf("tx: %w", &pgconn.PgError{Code: "40001"}), ClassTransient, ReasonTransient, "sqlstate", "40001", 0},
		{"too many connections", &pgconn.PgError{Code: "53300"}, ClassTransient, ReasonTransient, "sqlstate", "53300", 0},
		{"shutdown", &pgconn.PgError{Code: "57P01"}, ClassTransient, ReasonTransient, "sqlstate", "57P01", 0},
		{"query cancelled", &pgconn.PgError{Code: "57014"}, ClassPermanent, ReasonPermanent, "unknown", "57014", 0},
		{"bad value", &pgconn.PgError{Code: "22P02"}, ClassPermanent, ReasonPermanent, "sqlstate", "22P02", 0},
		{"unique", &pgconn.PgError{Code: "23505"}, ClassPermanent, ReasonPermanent, "sqlstate", "23505", 0},
		{"no table", &pgconn.PgError{Code: "42P01"}, ClassPermanent, ReasonPermanent, "sqlstate", "42P01", 0},
		{"no such class", &pgconn.PgError{Code: "XX000"}, ClassPermanent, ReasonPermanent, "unknown", "XX000", 0},
		{"no database", pgError(t), ClassTransient, ReasonTransient, "network", "", 0},

		{"status 0", statusError(0), ClassTransient, ReasonTransient, "status", "0", 0},
		{"408", statusError(408), ClassTransient, ReasonTransient, "status", "408", 0},
		{"425", statusError(425), ClassTransient, ReasonTransient, "status", "425", 0},
		{"429", statusError(429), ClassTransient, ReasonTransient, "status", "429", 0},
		{"500", statusError(500), ClassTransient, ReasonTransient, "status", "500", 0},
		{"599", statusError(599), ClassTransient, ReasonTransient, "status", "599", 0},
		{"400", statusError(400), ClassPermanent, ReasonPermanent, "status", "400", 0},
		{"404", fmt.Errorf("get: %w", statusError(404)), ClassPermanent, ReasonPermanent, "status", "404", 0},
		{"302", statusError(302), ClassPermanent, ReasonPermanent, "unknown", "302", 0},

		{"gRPC to a closed port", grpcError(t), ClassTransient, ReasonTransient, "grpc", "Unavailable", 0},
		{"gRPC invalid", status.Error(codes.InvalidArgument, "x"), ClassPermanent, ReasonPermanent, "grpc", "InvalidArgument", 0},
		{"gRPC unknown", status.Error(codes.Unknown, "x"), ClassPermanent, ReasonPermanent, "unknown", "Unknown", 0},
		{"gRPC wrapped", fmt.Errorf("call: %w", status.Error(codes.Aborted, "x")), ClassTransient, ReasonTransient, "grpc", "Aborted", 0},
		{"gRPC with RetryInfo", retryInfo(t, codes.ResourceExhausted, 1500*time.Millisecond), ClassTransient, ReasonTransient, "grpc", "ResourceExhausted", 1500 * time.Millisecond},
		{"RetryInfo counts more than the code", retryInfo(t, codes.FailedPrecondition, time.Second), ClassTransient, ReasonTransient, "grpc", "FailedPrecondition", time.Second},

		{"HTTP to a closed port", httpError(t, http.DefaultClient, "http://"+closedPort(t)), ClassTransient, ReasonTransient, "network", "", 0},
		{"HTTP timeout", httpError(t, slow, "http://"+silent(t)), ClassTransient, ReasonTransient, "temporary", "", 0},
		{"HTTP connection closed", httpError(t, http.DefaultClient, hangingUp(t)), ClassTransient, ReasonTransient, "eof", "", 0},
		{"HTTP scheme", httpError(t, http.DefaultClient, "nonsense://x"), ClassPermanent, ReasonPermanent, "unknown", "", 0},
		{"body cut short", cutShort(t), ClassTransient, ReasonTransient, "eof", "", 0},
		{"read timeout", readTimeout(t), ClassTransient, ReasonTransient, "temporary", "", 0},
		{"closed connection", closedConn(t), ClassTransient, ReasonTransient, "network", "", 0},
		{"broken pipe", brokenPipe(t), ClassTransient, ReasonTransient, "network", "", 0},
		{"reset", fmt.Errorf("x: %w", os.NewSyscallError("read", syscall.ECONNRESET)), ClassTransient, ReasonTransient, "network", "", 0},
		{"no space", &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, ClassPermanent, ReasonPermanent, "unknown", "", 0},
		{"DNS", dnsError(t), ClassTransient, ReasonTransient, "temporary", "", 0},
		{"DNS, no such host", &net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}, ClassTransient, ReasonTransient, "network", "", 0},
		{"a URL in the data", urlErr, ClassPermanent, ReasonPermanent, "unknown", "", 0},
		{"a network in the data", cidrErr, ClassPermanent, ReasonPermanent, "unknown", "", 0},
		{"an address in the data", portErr, ClassPermanent, ReasonPermanent, "unknown", "", 0},

		{"JSON syntax", decodeError(new(int), "{"), ClassPermanent, ReasonPoison, "json", "", 0},
		{"JSON type", fmt.Errorf("x: %w", decodeError(new(int), `"a"`)), ClassPermanent, ReasonPoison, "json", "", 0},
		{"protobuf", protoError(t), ClassPermanent, ReasonPoison, "protobuf", "", 0},
		{"plain", cause, ClassPermanent, ReasonPermanent, "unknown", "", 0},
		{"end of file", io.EOF, ClassPermanent, ReasonPermanent, "unknown", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := Classify(c.err, Circumstances{})
			if v.Class != c.class || v.Reason != c.reason || v.Rule != c.rule || v.Code != c.code || v.RetryAfter != c.after {
				t.Errorf("%v:\n got class %d, reason %q, rule %q, code %q, retry after %v\nwant class %d, reason %q, rule %q, code %q, retry after %v",
					c.err, v.Class, v.Reason, v.Rule, v.Code, v.RetryAfter, c.class, c.reason, c.rule, c.code, c.after)
			}
			if c.err != nil && v.Message != c.err.Error() {
				t.Errorf("message %q, want %q", v.Message, c.err)
			}
		})
	}
}

func TestNilStaysNil(t *testing.T) {
	for name, err := range map[string]error{"Transient": Transient(nil), "Permanent": Permanent(nil), "RetryAfter": RetryAfter(nil, time.Second)} {
		if err != nil {
			t.Errorf("%s(nil) is %v", name, err)
		}
	}
}

func TestClassifyCircumstances(t *testing.T) {
	cause := errors.New("cause")
	late, cancelled, draining := Circumstances{Late: true}, Circumstances{Cancelled: true}, Circumstances{Draining: true}
	for _, c := range []struct {
		name   string
		err    error
		at     Circumstances
		class  Class
		reason Reason
		rule   string
	}{
		{"late, done", nil, late, ClassAck, "", ""},
		{"late, unknown", cause, late, ClassTransient, ReasonTimeout, "timeout"},
		{"late, permanent by type", &pgconn.PgError{Code: "23505"}, late, ClassTransient, ReasonTimeout, "timeout"},
		{"late, query cancelled", &pgconn.PgError{Code: "57014"}, late, ClassTransient, ReasonTimeout, "timeout"},
		{"late, closed", net.ErrClosed, late, ClassTransient, ReasonTimeout, "timeout"},
		{"late, transient", Transient(cause), late, ClassTransient, ReasonTimeout, "timeout"},
		{"late, permanent", fmt.Errorf("x: %w", Permanent(cause)), late, ClassPermanent, ReasonPermanent, "explicit"},
		{"late, drop", Drop("x"), late, ClassDrop, "", "explicit"},
		{"late, retry after", RetryAfter(cause, time.Second), late, ClassTransient, ReasonTransient, "explicit"},
		{"cancelled, done", nil, cancelled, ClassAck, "", ""},
		{"cancelled, unknown", cause, cancelled, ClassUnspecified, "", RuleCancelled},
		{"cancelled, permanent", Permanent(cause), cancelled, ClassUnspecified, "", RuleCancelled},
		{"draining, canceled", fmt.Errorf("x: %w", context.Canceled), draining, ClassUnspecified, "", RuleCancelled},
		{"draining, canceled, explicit", Transient(context.Canceled), draining, ClassTransient, ReasonTransient, "explicit"},
		{"draining, canceled, late", context.Canceled, Circumstances{Draining: true, Late: true}, ClassTransient, ReasonTimeout, "timeout"},
		{"draining, deadline", context.DeadlineExceeded, draining, ClassTransient, ReasonTransient, "temporary"},
		{"draining, unknown", cause, draining, ClassPermanent, ReasonPermanent, RuleUnknown},
		{"cancelled and late", cause, Circumstances{Cancelled: true, Late: true}, ClassUnspecified, "", RuleCancelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			if v := Classify(c.err, c.at); v.Class != c.class || v.Reason != c.reason || v.Rule != c.rule {
				t.Errorf("got %+v", v)
			}
		})
	}
}

func TestClassifiers(t *testing.T) {
	errMine := errors.New("mine")
	mine := func(v Verdict) Classifier {
		return func(err error) (Verdict, bool) { return v, errors.Is(err, errMine) }
	}
	never := func(error) (Verdict, bool) { return Verdict{Class: ClassDrop}, false }
	ack := func(error) (Verdict, bool) { return Verdict{Class: ClassAck}, true }
	nothing := func(error) (Verdict, bool) { return Verdict{}, true }
	v := Classify(fmt.Errorf("x: %w", errMine), Circumstances{}, never, ack, nothing,
		mine(Verdict{Class: ClassTransient, Code: "E7", RetryAfter: time.Second, Reason: ReasonHandlerCrash, Emitted: []Record{{}}}),
		mine(Verdict{Class: ClassPermanent}))
	if v.Class != ClassTransient || v.Code != "E7" || v.RetryAfter != time.Second || v.Rule != "classifier" || v.Message != "x: mine" {
		t.Errorf("got %+v", v)
	}
	if v.Reason != ReasonTransient || v.Emitted != nil {
		t.Errorf("a handler cannot say %q, nor emit %v with an error", v.Reason, v.Emitted)
	}
	if v := Classify(Permanent(errMine), Circumstances{}, mine(Verdict{Class: ClassDrop})); v.Rule != "explicit" {
		t.Errorf("a classifier came before an explicit verdict: %+v", v)
	}
	if v := Classify(statusError(500), Circumstances{}, func(error) (Verdict, bool) {
		return Verdict{Class: ClassPermanent, Reason: ReasonPoison, Message: "own", Rule: "own rule"}, true
	}); v.Class != ClassPermanent || v.Reason != ReasonPoison || v.Message != "own" || v.Rule != "own rule" {
		t.Errorf("a built-in rule came before a classifier: %+v", v)
	}
}

func TestVerdictTexts(t *testing.T) {
	inner := errors.New("inner \xff\xfe")
	v := Classify(fmt.Errorf("outer: %w", Permanent(fmt.Errorf("middle: %w", errors.Join(inner, io.EOF)))), Circumstances{})
	want := []string{"middle: inner \xff\xfe\nEOF", "inner \xff\xfe\nEOF", "inner \xff\xfe", "EOF"}
	if !slices.Equal(v.Causes, want) {
		t.Errorf("causes %q, want %q", v.Causes, want)
	}
	if v := Classify(Drop("old \xff"), Circumstances{}); v.Message != "old \xff" || len(v.Causes) != 0 {
		t.Errorf("drop: %+v", v)
	}

	err := errors.New(strings.Repeat("x", wire.MaxTextBytes+1))
	for range 3 * wire.MaxCauses {
		err = fmt.Errorf("y%w", err)
	}
	v = Classify(err, Circumstances{})
	if len(v.Message) != wire.MaxTextBytes || len(v.Causes) != wire.MaxCauses {
		t.Errorf("message of %d bytes, %d causes", len(v.Message), len(v.Causes))
	}
	for _, c := range v.Causes {
		if len(c) > wire.MaxTextBytes {
			t.Errorf("a cause of %d bytes", len(c))
		}
	}
	v = panicVerdict("x", make([]byte, 2*wire.MaxStackBytes), Circumstances{})
	if len(v.Stack) != wire.MaxStackBytes {
		t.Errorf("a stack of %d bytes", len(v.Stack))
	}
}

func TestPanicVerdictCircumstances(t *testing.T) {
	if v := panicVerdict("x", nil, Circumstances{Cancelled: true}); v.Class != ClassUnspecified || v.Rule != RuleCancelled {
		t.Errorf("cancelled: %+v", v)
	}
	if v := panicVerdict("x", []byte("stack"), Circumstances{Late: true}); v.Reason != ReasonTimeout || v.Stack != "stack" {
		t.Errorf("late: %+v", v)
	}
}

func TestJSON(t *testing.T) {
	type order struct{ ID int }
	var got order
	h := JSON(func(_ context.Context, o order, m *Message) error {
		got = o
		return Drop(m.Topic)
	})
	if err := h.Handle(context.Background(), &Message{Topic: "t", Value: []byte(`{"ID":7}`)}); err == nil || got.ID != 7 {
		t.Errorf("decoded %+v, error %v", got, err)
	}
	for name, value := range map[string][]byte{"null": nil, "empty": {}, "cut": []byte(`{"ID":`), "type": []byte(`{"ID":"x"}`), "bytes": {0xFF}} {
		v := Classify(h.Handle(context.Background(), &Message{Value: value}), Circumstances{})
		if v.Class != ClassPermanent || v.Reason != ReasonPoison || v.Rule != "json" {
			t.Errorf("%s: %+v", name, v)
		}
		late := Classify(h.Handle(context.Background(), &Message{Value: value}), Circumstances{Late: true})
		if late.Reason != ReasonPoison {
			t.Errorf("%s, late: %+v", name, late)
		}
	}
}
