package plugin

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const ruleJSON = "json"

// rule is one of Classify's built-in rules.
type rule struct {
	name  string
	match func(error) (Verdict, bool)
}

// builtin are the rules in their order.
func builtin() [12]rule {
	return [...]rule{
		{"temporary", temporary},
		{"retry-after", retryAfter},
		{"safe-to-retry", safeToRetry},
		{"deadline", deadline},
		{"canceled", canceled},
		{"sqlstate", sqlState},
		{"status", httpStatus},
		{"grpc", rpcStatus},
		{"network", network},
		{"eof", unexpectedEOF},
		{ruleJSON, jsonDecode},
		{"protobuf", protoDecode},
	}
}

func transient() (Verdict, bool) { return Verdict{Class: ClassTransient}, true }
func permanent() (Verdict, bool) { return Verdict{Class: ClassPermanent}, true }
func none() (Verdict, bool)      { return Verdict{}, false }

func temporary(err error) (Verdict, bool) {
	type temporary interface{ Temporary() bool }
	if _, ok := find(err, func(t temporary) bool { return t.Temporary() }); !ok {
		return none()
	}
	return Verdict{Class: ClassTransient, RetryAfter: wish(err)}, true
}

func retryAfter(err error) (Verdict, bool) {
	if d := wish(err); d > 0 {
		return Verdict{Class: ClassTransient, RetryAfter: d}, true
	}
	return none()
}

// safeToRetry is about pgx's errors of a connection, which tell whether the
// server may have got the request. It may, here: deliveries are repeated anyway.
func safeToRetry(err error) (Verdict, bool) {
	type connection interface{ SafeToRetry() bool }
	if _, ok := find(err, func(connection) bool { return true }); ok {
		return transient()
	}
	return none()
}

// wish is how long err, by a method of its own, asks to wait; 0 = not told.
func wish(err error) time.Duration {
	type retrier interface{ RetryAfter() time.Duration }
	r, ok := find(err, func(r retrier) bool { return r.RetryAfter() > 0 })
	if !ok {
		return 0
	}
	return r.RetryAfter()
}

func deadline(err error) (Verdict, bool) {
	if errors.Is(err, context.DeadlineExceeded) {
		return transient()
	}
	return none()
}

// canceled is about contexts of the handler's own; the host's cancelling never
// comes this far. It says nothing about the record.
func canceled(err error) (Verdict, bool) {
	if errors.Is(err, context.Canceled) {
		return transient()
	}
	return none()
}

type (
	sqlStater  interface{ SQLState() string }
	statusCode interface{ StatusCode() int }
	grpcStatus interface{ GRPCStatus() *status.Status }
)

func sqlStateOf(err error) string {
	e, ok := find(err, func(e sqlStater) bool { return len(e.SQLState()) == 5 })
	if !ok {
		return ""
	}
	return e.SQLState()
}

func grpcStatusOf(err error) *status.Status {
	e, ok := find(err, func(e grpcStatus) bool { return e.GRPCStatus() != nil })
	if !ok {
		return nil
	}
	return e.GRPCStatus()
}

func sqlState(err error) (Verdict, bool) {
	code := sqlStateOf(err)
	if code == "" {
		return none()
	}
	switch code[:2] {
	case "08", "40", "53": // connection, serialization and deadlock, resources
		return transient()
	case "22", "23", "42": // data, constraint, syntax and access
		return permanent()
	}
	if code[:3] == "57P" { // the server is stopped or starting
		return transient()
	}
	return none()
}

func httpStatus(err error) (Verdict, bool) {
	e, ok := find(err, func(statusCode) bool { return true })
	if !ok {
		return none()
	}
	switch n := e.StatusCode(); {
	case mayPass(n):
		return transient()
	case n >= 400 && n <= 499:
		return permanent()
	}
	return none()
}

// mayPass tells of an HTTP status whether the same request may succeed later. 0 is
// what clients have that got no answer.
func mayPass(status int) bool {
	switch status {
	case 0, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500 && status <= 599
}

func rpcStatus(err error) (Verdict, bool) {
	s := grpcStatusOf(err)
	if s == nil {
		return none()
	}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return Verdict{Class: ClassTransient, RetryAfter: info.GetRetryDelay().AsDuration()}, true
		}
	}
	switch s.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.Internal, codes.Unavailable:
		return transient()
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.FailedPrecondition,
		codes.OutOfRange, codes.Unimplemented, codes.DataLoss, codes.Unauthenticated:
		return permanent()
	}
	return none() // OK and Unknown tell nothing
}

// codeOf is the machine-readable word that err has, whatever rule fires:
// ErrorCode(), SQLState(), StatusCode() or a gRPC status; empty = none.
func codeOf(err error) string {
	type coded interface{ ErrorCode() string }
	if e, ok := find(err, func(e coded) bool { return e.ErrorCode() != "" }); ok {
		return e.ErrorCode()
	}
	if code := sqlStateOf(err); code != "" {
		return code
	}
	if e, ok := find(err, func(statusCode) bool { return true }); ok {
		return strconv.Itoa(e.StatusCode())
	}
	if s := grpcStatusOf(err); s != nil {
		return s.Code().String()
	}
	return ""
}

func network(err error) (Verdict, bool) {
	if _, ok := find(err, isNetwork); ok {
		return transient()
	}
	for _, lost := range []error{
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, syscall.ETIMEDOUT,
		driver.ErrBadConn, sql.ErrConnDone,
	} {
		if errors.Is(err, lost) {
			return transient()
		}
	}
	return none()
}

// isNetwork tells errors of the network, DNS among them, from those that have
// their methods and are about an address's or a URL's text, which is data.
func isNetwork(e net.Error) bool {
	switch e.(type) {
	case *url.Error: // what it wraps decides
		return false
	case *net.ParseError, *net.AddrError, net.InvalidAddrError, net.UnknownNetworkError:
		return false
	case syscall.Errno: // has the methods whatever its number
		return false
	}
	return true
}

// unexpectedEOF: a connection that ended early. net/http reports that as a
// plain EOF.
func unexpectedEOF(err error) (Verdict, bool) {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return transient()
	}
	if _, ok := find(err, func(e *url.Error) bool { return errors.Is(e.Err, io.EOF) }); ok {
		return transient()
	}
	return none()
}

func jsonDecode(err error) (Verdict, bool) {
	_, syntax := find(err, func(*json.SyntaxError) bool { return true })
	_, kind := find(err, func(*json.UnmarshalTypeError) bool { return true })
	if !syntax && !kind {
		return none()
	}
	return Verdict{Class: ClassPermanent, Reason: ReasonPoison}, true
}

func protoDecode(err error) (Verdict, bool) {
	if errors.Is(err, proto.Error) {
		return Verdict{Class: ClassPermanent, Reason: ReasonPoison}, true
	}
	return none()
}
