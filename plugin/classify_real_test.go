package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/kconsume/kconsume/plugin/internal/wire/pb"
)

// wantVerdict checks what Classify makes of err, wrapped as handlers do.
func wantVerdict(t *testing.T, err error, want Verdict) {
	t.Helper()
	if err == nil {
		t.Fatal("it did not fail")
	}
	v := Classify(fmt.Errorf("handle order: %w", err), Circumstances{})
	if v.Class != want.Class || v.Reason != want.Reason || v.Rule != want.Rule || v.Code != want.Code || v.RetryAfter != want.RetryAfter {
		t.Errorf("%v (%T):\n got %v (%s) by rule %q, code %q, retry after %v\nwant %v (%s) by rule %q, code %q, retry after %v", err, err,
			v.Class, v.Reason, v.Rule, v.Code, v.RetryAfter, want.Class, want.Reason, want.Rule, want.Code, want.RetryAfter)
	}
}

func passing(rule, code string, after time.Duration) Verdict {
	return Verdict{Class: ClassTransient, Reason: ReasonTransient, Rule: rule, Code: code, RetryAfter: after}
}

func lasting(rule, code string) Verdict {
	return Verdict{Class: ClassPermanent, Reason: ReasonPermanent, Rule: rule, Code: code}
}

// Responses of a real server, by HTTPError.
func TestClassifyHTTP(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.FormValue("status"))
		if after := r.FormValue("after"); after != "" {
			w.Header().Set("Retry-After", after)
		}
		if date := r.FormValue("date"); date != "" {
			w.Header().Set("Date", date)
		}
		w.WriteHeader(code)
	}))
	t.Cleanup(s.Close)
	const now, later = "Mon, 02 Mar 2026 12:00:00 GMT", "Mon, 02 Mar 2026 12:01:30 GMT"
	for _, c := range []struct {
		status      int
		after, date string
		want        Verdict
	}{
		{408, "", "", passing("status", "408", 0)},
		{425, "", "", passing("status", "425", 0)},
		{429, "", "", passing("status", "429", 0)},
		{429, "7", "", passing("retry-after", "429", 7*time.Second)},
		{503, later, now, passing("retry-after", "503", 90*time.Second)},
		{503, now, later, passing("status", "503", 0)},
		{503, "soon", "", passing("status", "503", 0)},
		{503, "-7", "", passing("status", "503", 0)},
		{503, "99999999999999999999", "", passing("status", "503", 0)},
		{500, "", "", passing("status", "500", 0)},
		{599, "", "", passing("status", "599", 0)},
		{400, "", "", lasting("status", "400")},
		{404, "7", "", lasting("status", "404")},
		{422, "", "", lasting("status", "422")},
		{499, "", "", lasting("status", "499")},
		{600, "7", "", lasting(RuleUnknown, "600")},
	} {
		t.Run(fmt.Sprint(c.status, c.after), func(t *testing.T) {
			r, err := http.Get(fmt.Sprintf("%s/charges?status=%d&after=%s&date=%s", s.URL, c.status,
				strings.ReplaceAll(c.after, " ", "+"), strings.ReplaceAll(c.date, " ", "+")))
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			wantVerdict(t, HTTPError(r), c.want)
		})
	}
	for _, code := range []int{200, 204, 304, 399} {
		r, err := http.Get(fmt.Sprintf("%s/?status=%d", s.URL, code))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if err := HTTPError(r); err != nil {
			t.Errorf("%d: %v", code, err)
		}
	}
}

// What HTTPError tells a person, without a password that a URL holds.
func TestHTTPErrorText(t *testing.T) {
	r := &http.Response{StatusCode: 404, Request: httptest.NewRequest("POST", "http://shop:s3cret@gateway/charges", nil)}
	if got, want := HTTPError(r).Error(), "POST http://shop:xxxxx@gateway/charges: 404 Not Found"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := HTTPError(&http.Response{StatusCode: 503}).Error(); got != "503 Service Unavailable" {
		t.Errorf("%q", got)
	}
	if got := retryAfterHeader(http.Header{"Retry-After": {time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}}); got < 59*time.Minute || got > time.Hour {
		t.Errorf("a date without the server's clock: %v", got)
	}
}

// refusing is a gRPC service whose answer is the status that the request asks
// for.
type refusing struct {
	grpc_health_v1.UnimplementedHealthServer
	statuses map[string]*status.Status
}

func (r refusing) Check(_ context.Context, q *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	return nil, r.statuses[q.GetService()].Err()
}

// Statuses that a real server sent.
func TestClassifyGRPC(t *testing.T) {
	detailed := func(c codes.Code, d time.Duration) *status.Status {
		s, err := status.New(c, "busy").WithDetails(&errdetails.ErrorInfo{Reason: "QUOTA"}, &errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	statuses := map[string]*status.Status{
		"wait":              detailed(codes.ResourceExhausted, 1500*time.Millisecond),
		"wait all the same": detailed(codes.FailedPrecondition, time.Second),
	}
	want := map[string]Verdict{
		"wait":              passing("grpc", "ResourceExhausted", 1500*time.Millisecond),
		"wait all the same": passing("grpc", "FailedPrecondition", time.Second),
	}
	for c, v := range map[codes.Code]Verdict{
		codes.Canceled:           passing("grpc", "Canceled", 0),
		codes.Unknown:            lasting(RuleUnknown, "Unknown"),
		codes.InvalidArgument:    lasting("grpc", "InvalidArgument"),
		codes.DeadlineExceeded:   passing("grpc", "DeadlineExceeded", 0),
		codes.NotFound:           lasting("grpc", "NotFound"),
		codes.AlreadyExists:      lasting("grpc", "AlreadyExists"),
		codes.PermissionDenied:   lasting("grpc", "PermissionDenied"),
		codes.ResourceExhausted:  passing("grpc", "ResourceExhausted", 0),
		codes.FailedPrecondition: lasting("grpc", "FailedPrecondition"),
		codes.Aborted:            passing("grpc", "Aborted", 0),
		codes.OutOfRange:         lasting("grpc", "OutOfRange"),
		codes.Unimplemented:      lasting("grpc", "Unimplemented"),
		codes.Internal:           passing("grpc", "Internal", 0),
		codes.Unavailable:        passing("grpc", "Unavailable", 0),
		codes.DataLoss:           lasting("grpc", "DataLoss"),
		codes.Unauthenticated:    lasting("grpc", "Unauthenticated"),
	} {
		statuses[c.String()], want[c.String()] = status.New(c, "no"), v
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(s, refusing{statuses: statuses})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		s.Stop()
		<-served
	})
	client := grpc_health_v1.NewHealthClient(conn)
	for name, v := range want {
		t.Run(name, func(t *testing.T) {
			_, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: name})
			wantVerdict(t, err, v)
		})
	}
	t.Run("the client's own deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		_, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "wait"})
		wantVerdict(t, err, passing("grpc", "DeadlineExceeded", 0))
	})
	t.Run("no such service", func(t *testing.T) {
		err := conn.Invoke(t.Context(), "/no.such/Call", &grpc_health_v1.HealthCheckRequest{}, new(grpc_health_v1.HealthCheckResponse))
		wantVerdict(t, err, lasting("grpc", "Unimplemented"))
	})
}

// Errors of real sockets, pipes and files.
func TestClassifySystem(t *testing.T) {
	for name, c := range map[string]struct {
		fail  func(*testing.T) error
		errno syscall.Errno // that is in the chain; 0 = none
		want  Verdict
	}{
		"refused": {func(t *testing.T) error {
			_, err := net.Dial("tcp", closedPort(t))
			return err
		}, syscall.ECONNREFUSED, passing("network", "", 0)},
		"no such unix socket": {func(t *testing.T) error {
			_, err := net.Dial("unix", t.TempDir()+"/s")
			return err
		}, syscall.ENOENT, passing("network", "", 0)},
		"reset":             {reset, syscall.ECONNRESET, passing("network", "", 0)},
		"reset, bare":       {func(t *testing.T) error { return bare[syscall.Errno](t, reset(t)) }, syscall.ECONNRESET, passing("network", "", 0)},
		"timed out":         {timedOut, syscall.ETIMEDOUT, passing("temporary", "", 0)},
		"broken pipe":       {brokenPipe, syscall.EPIPE, passing("network", "", 0)},
		"broken pipe, bare": {func(t *testing.T) error { return bare[syscall.Errno](t, brokenPipe(t)) }, syscall.EPIPE, passing("network", "", 0)},
		"read deadline":     {readTimeout, 0, passing("temporary", "", 0)},
		"DNS, server away":  {dnsError, 0, passing("temporary", "", 0)},
		"DNS, no such host": {noSuchHost, 0, passing("network", "", 0)},
		"DNS, server fails": {func(t *testing.T) error { return resolve(t, 2) }, 0, passing("temporary", "", 0)},
		"disk full": {func(t *testing.T) error {
			f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			_, err = f.WriteString("x")
			return err
		}, syscall.ENOSPC, lasting(RuleUnknown, "")},
		"no such file": {func(t *testing.T) error {
			_, err := os.ReadFile(t.TempDir() + "/x")
			return err
		}, syscall.ENOENT, lasting(RuleUnknown, "")},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.fail(t)
			if c.errno != 0 && !errors.Is(err, c.errno) {
				t.Errorf("%v (%T), want %v in the chain", err, err, c.errno)
			}
			wantVerdict(t, err, c.want)
		})
	}
}

// bare is what a library has left that unwraps too much.
func bare[E error](t *testing.T, err error) error {
	t.Helper()
	e, ok := errors.AsType[E](err)
	if !ok {
		t.Fatalf("no %T in %v", e, err)
	}
	return e
}

// reset is what a client reads whose connection the server throws away.
func reset(t *testing.T) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	server.Close()
	_, err = client.Read(make([]byte, 1))
	return err
}

// timedOut is what a client gets whose connection is never answered: those of a
// full backlog are not, and the system gives up.
func timedOut(t *testing.T) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 1)
		}), err)
	}}
	for range 10 {
		c, err := d.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port))
		if err != nil {
			return err
		}
		defer c.Close()
	}
	return nil
}

// resolve asks a real DNS server on this machine that answers everything with
// one response code.
func resolve(t *testing.T, code byte) error {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	answering := make(chan struct{})
	go func() {
		defer close(answering)
		buf := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil || n < 12 {
				return
			}
			buf[2], buf[3] = 0x81, 0x80|code
			// The question goes back; what follows it, an option, does not.
			end := 12 + bytes.IndexByte(buf[12:n], 0) + 5
			clear(buf[6:12])
			if _, err := server.WriteTo(buf[:end], from); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		server.Close()
		<-answering
	})
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
	_, err = r.LookupHost(t.Context(), "payments.invalid.")
	return err
}

func noSuchHost(t *testing.T) error {
	err := resolve(t, 3)
	if e, ok := errors.AsType[*net.DNSError](err); !ok || !e.IsNotFound {
		t.Errorf("%v (%T), want no such host", err, err)
	}
	return err
}

// Errors of real decoders.
func TestClassifyDecoding(t *testing.T) {
	type order struct {
		ID int `json:"id"`
	}
	poison := func(rule string) Verdict {
		return Verdict{Class: ClassPermanent, Reason: ReasonPoison, Rule: rule}
	}
	message, err := proto.Marshal(&pb.Record{Topic: []byte("orders"), Offset: 7})
	if err != nil {
		t.Fatal(err)
	}
	stream := func(text string) error { return json.NewDecoder(strings.NewReader(text)).Decode(new(order)) }
	for name, c := range map[string]struct {
		err  error
		want Verdict
	}{
		"JSON, syntax":           {json.Unmarshal([]byte(`{"id":7,}`), new(order)), poison("json")},
		"JSON, cut":              {json.Unmarshal([]byte(`{"id":`), new(order)), poison("json")},
		"JSON, empty":            {json.Unmarshal(nil, new(order)), poison("json")},
		"JSON, type":             {json.Unmarshal([]byte(`{"id":"7"}`), new(order)), poison("json")},
		"JSON, a stream, syntax": {stream(`{"id":7,}`), poison("json")},
		// A decoder of a stream cannot tell a cut value from a cut connection.
		"JSON, a stream, cut":    {stream(`{"id":`), passing("eof", "", 0)},
		"JSON, a stream, empty":  {stream(""), lasting(RuleUnknown, "")},
		"protobuf, nonsense":     {proto.Unmarshal([]byte{0xFF}, new(pb.Record)), poison("protobuf")},
		"protobuf, cut":          {proto.Unmarshal(message[:len(message)-1], new(pb.Record)), poison("protobuf")},
		"protobuf as JSON":       {protojson.Unmarshal([]byte(`{"topic":`), new(pb.Record)), poison("protobuf")},
		"protobuf as JSON, type": {protojson.Unmarshal([]byte(`{"topic":7}`), new(pb.Record)), poison("protobuf")},
		"body cut short":         {cutShort(t), passing("eof", "", 0)},
		"file cut short":         {func() error { _, err := io.ReadFull(strings.NewReader("x"), make([]byte, 2)); return err }(), passing("eof", "", 0)},
	} {
		t.Run(name, func(t *testing.T) { wantVerdict(t, c.err, c.want) })
	}
}
